import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Answer, Refusal } from "./answer.ts";
import { Resource, type Surroundings } from "./resource.ts";

/** A tab that a test hides and shows, and requests that it answers when it likes. */
class Stage {
  visible = true;
  private readonly callbacks = new Set<() => void>();
  requests: ((answer: Answer<number>) => void)[] = [];
  around: Surroundings = {
    tab: {
      visible: () => this.visible,
      onChange: (callback) => {
        this.callbacks.add(callback);
        return () => this.callbacks.delete(callback);
      },
    },
    now: () => Date.now(),
    monotonic: () => performance.now(),
  };
  /** What each request was told of the value that is kept. */
  tags: (string | undefined)[] = [];
  resource = new Resource<number>((tag) => {
    this.tags.push(tag);
    return new Promise((resolve) => this.requests.push(resolve));
  }, this.around);

  show(visible: boolean): void {
    this.visible = visible;
    for (const callback of this.callbacks) {
      callback();
    }
  }

  /** Answers the oldest open request. */
  async answer(answer: Answer<number>): Promise<void> {
    this.requests.shift()?.(answer);
    await vi.advanceTimersByTimeAsync(0);
  }
}

const ok = (value: number, tag?: string): Answer<number> => ({ kind: "ok", value, tag });
const lost: Answer<number> = { kind: "lost" };
const standby = (retryAfter: number): Answer<number> => ({
  kind: "refused",
  status: 503,
  code: "core_standby",
  param: null,
  message: "",
  details: {},
  retryAfter,
});

let stage: Stage;
beforeEach(() => {
  vi.useFakeTimers();
  stage = new Stage();
});
afterEach(() => {
  vi.useRealTimers();
});

test("one request is in flight, however often it is asked for", async () => {
  void stage.resource.refresh();
  void stage.resource.refresh();
  await vi.advanceTimersByTimeAsync(0);
  expect(stage.requests.length).toBe(1);
  await stage.answer(ok(1));
  expect(stage.resource.get().value).toBe(1);
});

test("an answer whose request began before a write is dropped and read again", async () => {
  void stage.resource.refresh();
  await vi.advanceTimersByTimeAsync(0);
  const first = stage.resource.written();
  const second = stage.resource.written();
  await stage.answer(ok(1));
  expect(stage.resource.get().value).toBeUndefined();
  expect(stage.requests.length).toBe(1);
  await stage.answer(ok(2));
  await Promise.all([first, second]);
  expect(stage.resource.get().value).toBe(2);
  expect(stage.requests.length).toBe(0);
});

// inv: INV-W13
test("whoever waits for a read that a write makes too old waits for the one that follows", async () => {
  const known: (number | undefined)[] = [];
  const wait = (read: Promise<void>) => void read.then(() => known.push(stage.resource.get().value));
  wait(stage.resource.refresh());
  await vi.advanceTimersByTimeAsync(0);
  wait(stage.resource.written());
  await stage.answer(ok(1));
  wait(stage.resource.written());
  await stage.answer(ok(2));
  expect(known).toEqual([]);
  await stage.answer(ok(3));
  expect(known).toEqual([3, 3, 3]);
  expect(stage.requests.length).toBe(0);
});

test("the tag that is asked with is that of the value that is kept, and never that of a dropped answer", async () => {
  void stage.resource.refresh();
  await vi.advanceTimersByTimeAsync(0);
  await stage.answer(ok(1, "first"));
  void stage.resource.refresh();
  await vi.advanceTimersByTimeAsync(0);
  // It may already show what the write did: were its tag kept, "still stands" would be said of a value that nobody took.
  void stage.resource.written();
  await stage.answer(ok(2, "second"));
  expect(stage.tags).toEqual([undefined, "first", "first"]);
  await stage.answer(ok(2, "second"));
  void stage.resource.refresh();
  await vi.advanceTimersByTimeAsync(0);
  await stage.answer({ kind: "unchanged" });
  expect(stage.tags.at(-1)).toBe("second");
  expect(stage.resource.get()).toMatchObject({ value: 2, stale: false });
});

test("a failed read doubles the pause up to 30 s and honours what Core asks for", async () => {
  stage.resource.watch(() => 10_000);
  await vi.advanceTimersByTimeAsync(0);
  await stage.answer(ok(1));
  await vi.advanceTimersByTimeAsync(10_000);
  for (const pause of [20_000, 30_000, 30_000]) {
    await stage.answer(lost);
    await vi.advanceTimersByTimeAsync(pause - 1);
    expect(stage.requests.length).toBe(0);
    await vi.advanceTimersByTimeAsync(1);
    expect(stage.requests.length).toBe(1);
  }
  await stage.answer(standby(45_000));
  await vi.advanceTimersByTimeAsync(44_999);
  expect(stage.requests.length).toBe(0);
  await vi.advanceTimersByTimeAsync(1);
  await stage.answer(ok(2));
  await vi.advanceTimersByTimeAsync(10_000);
  expect(stage.requests.length).toBe(1);
});

test("what a failed read leaves is kept and stale until the next answer", async () => {
  stage.resource.watch(() => 10_000);
  await vi.advanceTimersByTimeAsync(0);
  await stage.answer(ok(1));
  const at = stage.resource.get().at;
  await vi.advanceTimersByTimeAsync(10_000);
  await stage.answer(lost);
  expect(stage.resource.get()).toMatchObject({ value: 1, at, stale: true, failure: lost });
  await vi.advanceTimersByTimeAsync(20_000);
  await stage.answer({ kind: "unchanged" });
  expect(stage.resource.get()).toMatchObject({ value: 1, stale: false, failure: undefined });
});

test("polled data is stale after 30 s without an answer", async () => {
  stage.resource.watch(() => 10_000);
  await vi.advanceTimersByTimeAsync(0);
  await stage.answer(ok(1));
  await vi.advanceTimersByTimeAsync(29_999);
  expect(stage.resource.get().stale).toBe(false);
  await vi.advanceTimersByTimeAsync(1);
  expect(stage.resource.get().stale).toBe(true);
});

// inv: INV-W17
test("a hidden tab asks for nothing, and at once when it is seen again", async () => {
  stage.resource.watch(() => 10_000);
  await vi.advanceTimersByTimeAsync(0);
  await stage.answer(ok(1));
  // It is hidden while it reads: what comes then begins nothing.
  await vi.advanceTimersByTimeAsync(10_000);
  stage.show(false);
  await stage.answer(ok(2));
  await vi.advanceTimersByTimeAsync(3_600_000);
  expect(stage.requests.length).toBe(0);
  expect(stage.resource.get().stale).toBe(false);
  stage.show(true);
  await vi.advanceTimersByTimeAsync(0);
  expect(stage.requests.length).toBe(1);
});

test("what is not polled now is read once and again when its value says so", async () => {
  stage.resource.watch((value) => (value === 2 ? 5000 : null));
  await vi.advanceTimersByTimeAsync(0);
  await stage.answer(ok(1));
  await vi.advanceTimersByTimeAsync(3_600_000);
  expect(stage.requests.length).toBe(0);
  void stage.resource.refresh();
  await vi.advanceTimersByTimeAsync(0);
  await stage.answer(ok(2));
  await vi.advanceTimersByTimeAsync(5000);
  expect(stage.requests.length).toBe(1);
});

test("a session that ended is asked no more until somebody signs in", async () => {
  stage.resource.watch(() => 10_000);
  await vi.advanceTimersByTimeAsync(0);
  await stage.answer({ ...(standby(0) as Refusal), status: 401 });
  await vi.advanceTimersByTimeAsync(3_600_000);
  expect(stage.requests.length).toBe(0);
  void stage.resource.written();
  await vi.advanceTimersByTimeAsync(0);
  await stage.answer(ok(1));
  await vi.advanceTimersByTimeAsync(10_000);
  expect(stage.requests.length).toBe(1);
});

test("nobody watching means nothing is read", async () => {
  const leave = stage.resource.watch(() => 10_000);
  await vi.advanceTimersByTimeAsync(0);
  await stage.answer(ok(1));
  leave();
  stage.show(true);
  await vi.advanceTimersByTimeAsync(3_600_000);
  expect(stage.requests.length).toBe(0);
});
