import { expect, test, vi } from "vitest";
import { ServerClock } from "./clock.ts";

test("Core's time does not depend on the browser's clock", () => {
  vi.useFakeTimers({ now: Date.parse("2031-01-01T00:00:00Z") });
  let passed = 1000;
  const clock = new ServerClock(() => passed);
  clock.observe("Mon, 30 Nov 2026 15:00:00 GMT", 900, 1100);
  const begin = Date.parse("2026-11-30T15:00:00.500Z");
  expect(clock.now()).toBe(begin);
  passed += 60_000;
  vi.setSystemTime(Date.parse("1999-01-01T00:00:00Z"));
  expect(clock.now()).toBe(begin + 60_000);
  clock.observe("no date", passed, passed);
  clock.observe(null, passed, passed);
  expect(clock.now()).toBe(begin + 60_000);
  vi.useRealTimers();
});
