import { expect, test } from "vitest";
import type { Node } from "../api/types.ts";
import { countdown, secondsLeft, spoken } from "./countdown.ts";
import { further, needsSomebody, PATIENCE } from "./progress.ts";

const NOW = Date.parse("2026-11-30T15:00:00Z");
const node = (change: Partial<Node>): Node =>
  ({
    online: true,
    provider_ready: false,
    created_at: new Date(NOW).toISOString(),
    rollout: { state: "preparing", ready_generation: null },
    ...change,
  }) as Node;

test("a node needs somebody from a minute after it registered, or at once when it says so or fell back", () => {
  expect(needsSomebody(node({}), "connected", NOW + PATIENCE - 1)).toBe(false);
  expect(needsSomebody(node({}), "connected", NOW + PATIENCE)).toBe(true);
  expect(needsSomebody(node({ provider_ready: true }), "ready", NOW + 2 * PATIENCE)).toBe(false);
  expect(needsSomebody(node({ diagnostic: "host_unsupported" }), "connected", NOW)).toBe(true);
  const rollout = { state: "failed", diagnostic: "runtime_download_failed" } as Node["rollout"];
  expect(needsSomebody(node({ rollout }), "registered", NOW)).toBe(true);
  expect(needsSomebody(node({ online: false }), "registered", NOW)).toBe(false);
  expect(needsSomebody(node({ online: false }), "connected", NOW)).toBe(true);
  expect(further("connected", "registered")).toBe("connected");
});

// inv: INV-W6
test("0:00 is shown only once the command has surely expired", () => {
  const left = (millis: number) => countdown(secondsLeft(NOW, NOW - millis));
  expect([3_600_000, 3_599_000, 600_000, 59_001, 1000, 1, 0, -999, -1000].map(left)).toEqual([
    "1:00:00",
    "59:59",
    "10:00",
    "1:00",
    "0:01",
    "0:01",
    "0:01",
    "0:01",
    "0:00",
  ]);
});

test("the countdown speaks at ten, five and one minutes", () => {
  expect([601, 600, 301, 300, 61, 60, 1, 0].map(spoken)).toEqual([undefined, 10, 10, 5, 5, 1, 1, undefined]);
});
