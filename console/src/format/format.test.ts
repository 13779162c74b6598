import { expect, test } from "vitest";
import { ago, gib, mib, percent, size, span, utc } from "./format.ts";

test("sizes are GiB with one decimal", () => {
  expect(gib(1536 * 1024 ** 2)).toBe("1.5 GiB");
  expect(mib(2048)).toBe("2.0 GiB");
  expect(mib(1000)).toBe("1,000 MiB");
  expect(size({ cpus: 1, memory_mib: 4096, root_disk_mib: 8192, environment_disk_mib: 8192 })).toBe(
    "1 CPU, 4.0 GiB, 8.0 GiB root and 8.0 GiB environment disk",
  );
  expect(percent(0.349)).toBe("35 %");
});

test("a time is relative up to 24 hours and a date from then on", () => {
  const now = Date.parse("2026-11-30T15:00:00Z");
  const before = (seconds: number) => ago(now - seconds * 1000, now);
  expect([0, -60, 59, 60, 3600, 86_399].map(before)).toEqual([
    "just now",
    "just now",
    "just now",
    "1 minute ago",
    "1 hour ago",
    "23 hours ago",
  ]);
  expect(before(86_400)).toMatch(/Nov .*2026/);
  expect(utc(now)).toBe("2026-11-30T15:00:00Z");
});

test("a span is its largest whole unit", () => {
  expect([59, 60, 7200, 86_400 * 3].map((seconds) => span(seconds * 1000))).toEqual([
    "less than a minute",
    "1 minute",
    "2 hours",
    "3 days",
  ]);
});
