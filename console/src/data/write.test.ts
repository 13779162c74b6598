import { expect, test } from "vitest";
import type { Answer } from "./answer.ts";
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
