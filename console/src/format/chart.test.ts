import { expect, test } from "vitest";
import { draw, fill } from "./chart.ts";

// inv: INV-W18
test("an interval without a value draws nothing, and a lone value is a dot", () => {
  const drawn = draw([0, 50, null, 100, null, null, 25, 25], 100, 70, 10);
  expect(drawn.lines).toEqual([
    [
      { x: 0, y: 10 },
      { x: 10, y: 5 },
    ],
    [
      { x: 60, y: 7.5 },
      { x: 70, y: 7.5 },
    ],
  ]);
  expect(drawn.dots).toEqual([{ x: 30, y: 0 }]);
  expect(draw([null, null], 100, 70, 10)).toEqual({ lines: [], dots: [] });
});

test("what lies outside the scale is drawn at its edge", () => {
  expect(draw([200, -1], 100, 10, 10).lines).toEqual([
    [
      { x: 0, y: 0 },
      { x: 10, y: 10 },
    ],
  ]);
});

// inv: INV-W18
test("a range has every interval before the current one, named by Core or not", () => {
  const now = Date.parse("2026-11-30T15:03:20Z");
  const filled = fill([{ start: "2026-11-30T15:01:00Z" }], 60, 3, now);
  expect(filled.map(({ start, point }) => [new Date(start).toISOString(), point !== undefined])).toEqual([
    ["2026-11-30T15:00:00.000Z", false],
    ["2026-11-30T15:01:00.000Z", true],
    ["2026-11-30T15:02:00.000Z", false],
  ]);
});
