import { afterEach, expect, test, vi } from "vitest";
import { ServerClock } from "./clock.ts";

afterEach(() => {
  vi.useRealTimers();
});

/** A Core whose true time is `core()`, and answers that it sends. */
function setUp(start = "2026-11-30T15:00:00.700Z") {
  let passed = 0;
  let set = 0;
  const clock = new ServerClock(() => passed);
  const core = () => Date.parse(start) + passed + set;
  return {
    clock,
    core,
    pass: (milliseconds: number) => {
      passed += milliseconds;
    },
    /** Core's clock is set. */
    set: (milliseconds: number) => {
      set += milliseconds;
    },
    /** A request that takes `there` to Core and `back` from it. */
    answer: (there: number, back: number) => {
      const began = passed;
      passed += there;
      const date = new Date(core()).toUTCString();
      passed += back;
      clock.observe(date, began, passed);
    },
  };
}

// inv: INV-W22
test("Core's time does not depend on the browser's clock", () => {
  vi.useFakeTimers({ now: Date.parse("2031-01-01T00:00:00Z") });
  const { clock, core, answer, pass } = setUp();
  answer(100, 100);
  const behind = core() - clock.now();
  expect(behind).toBeLessThanOrEqual(1200);
  pass(60_000);
  vi.setSystemTime(Date.parse("1999-01-01T00:00:00Z"));
  expect(core() - clock.now()).toBe(behind);
  clock.observe("no date", 0, 0);
  clock.observe(null, 0, 0);
  expect(core() - clock.now()).toBe(behind);
});

// inv: INV-W6, INV-W22
test("an answer that was slow on either way puts the clock neither ahead nor back", () => {
  for (const [there, back] of [
    [7900, 100],
    [100, 7900],
    [14_900, 0],
    [0, 14_900],
  ] as const) {
    for (const first of [true, false]) {
      const { clock, core, answer, pass } = setUp();
      if (!first) {
        answer(50, 50);
        pass(5000);
      }
      const before = core() - clock.now();
      answer(there, back);
      expect(clock.now()).toBeLessThanOrEqual(core());
      if (!first) {
        expect(core() - clock.now()).toBeLessThanOrEqual(before);
      }
    }
  }
});

// inv: INV-W22
test("many answers tell the time better, each time without a step back, however far the two clocks run apart", () => {
  const { clock, core, answer, pass, set } = setUp();
  answer(50, 50);
  for (let round = 0; round < 2000; round += 1) {
    const told = clock.now();
    pass(3137);
    set(-0.1);
    answer(50, 50);
    expect(clock.now()).toBeGreaterThan(told);
    expect(Math.abs(core() - clock.now())).toBeLessThanOrEqual(1100);
  }
  expect(Math.abs(core() - clock.now())).toBeLessThanOrEqual(300);
});

test("a Core whose clock was set is believed at once", () => {
  for (const hour of [3_600_000, -3_600_000]) {
    const { clock, core, answer, set } = setUp();
    answer(50, 50);
    set(hour);
    answer(50, 50);
    expect(clock.now()).toBeLessThanOrEqual(core());
    expect(core() - clock.now()).toBeLessThanOrEqual(1100);
  }
});
