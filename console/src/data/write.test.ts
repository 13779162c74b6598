import { expect, test } from "vitest";
import type { Answer, Refusal } from "./answer.ts";
import { Resource } from "./resource.ts";
import { write } from "./write.ts";

const around = {
  tab: { visible: () => true, onChange: () => () => {} },
  now: () => 0,
  monotonic: () => 0,
};

function setUp(reads: Answer<string>[]) {
  const sent: string[] = [];
  const resource = new Resource<string>(async () => {
    sent.push("read");
    return reads.shift() ?? { kind: "lost" };
  }, around);
  const send = (answer: Answer<null>) => async () => {
    sent.push("write");
    return answer;
  };
  return { sent, resource, send };
}

// inv: INV-W13
test("a lost answer is decided by a read begun afterwards, and nothing is sent again", async () => {
  for (const [after, happened] of [
    ["new", true],
    ["old", false],
  ] as const) {
    const { sent, resource, send } = setUp([{ kind: "ok", value: after }]);
    const written = await write(send({ kind: "lost" }), { resource, happened: (value) => value === "new" });
    expect(written).toEqual({ kind: "lost", happened });
    expect(sent).toEqual(["write", "read"]);
  }
});

test("a lost answer whose read is lost too is not decided", async () => {
  const { sent, resource, send } = setUp([{ kind: "lost" }]);
  const written = await write(send({ kind: "lost" }), { resource, happened: () => true });
  expect(written).toEqual({ kind: "lost", happened: undefined });
  expect(sent).toEqual(["write", "read"]);
});

test("an answer is handed on, and what it changed is read afresh", async () => {
  const { resource, send } = setUp([{ kind: "ok", value: "new" }]);
  expect(await write(send({ kind: "ok", value: null }), { resource })).toEqual({ kind: "ok", value: null });
  await resource.refresh();
  expect(resource.get().value).toBe("new");
});

const refused = (status: number): Refusal => ({
  kind: "refused",
  status,
  code: null,
  param: null,
  message: "Core's database did not say whether this was stored: look before you ask again.",
  details: {},
  retryAfter: undefined,
});

// inv: INV-W13
test("a server error may have come after the write was stored: it is decided by a read, and a 503 is a refusal", async () => {
  for (const status of [500, 502, 504]) {
    const { sent, resource, send } = setUp([{ kind: "ok", value: "new" }]);
    const written = await write(send(refused(status)), { resource, happened: (value) => value === "new" });
    expect(written).toEqual({ kind: "lost", happened: true });
    expect(sent).toEqual(["write", "read"]);
  }
  for (const status of [409, 503]) {
    const { resource, send } = setUp([{ kind: "ok", value: "new" }]);
    expect(await write(send(refused(status)), { resource, happened: () => true })).toEqual(refused(status));
  }
});

// inv: INV-W13
test("a read that another write makes too old does not decide: the one after it does", async () => {
  const answers: ((answer: Answer<string>) => void)[] = [];
  const resource = new Resource<string>(() => new Promise((resolve) => answers.push(resolve)), around);
  const turn = () => new Promise((resolve) => setTimeout(resolve));
  void resource.refresh();
  await turn();
  answers.shift()?.({ kind: "ok", value: "old" });
  await turn();
  const written = write(async (): Promise<Answer<null>> => ({ kind: "lost" }), {
    resource,
    happened: (value) => value === "new",
  });
  await turn();
  // As a sign-in does while the read is under way.
  void resource.written();
  answers.shift()?.({ kind: "ok", value: "new" });
  await turn();
  answers.shift()?.({ kind: "ok", value: "new" });
  expect(await written).toEqual({ kind: "lost", happened: true });
});
