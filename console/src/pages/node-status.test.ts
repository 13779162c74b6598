import { expect, test } from "vitest";
import type { Node } from "../api/types.ts";
import { READINESS, readiness } from "../text/codes.ts";
import { t } from "../text/text.ts";
import { configuration, isSteady, type Status, statusOf, statusTip } from "./node-status.ts";

const PUBLIC = "https://core.example.com";
const good: Node = {
  id: "11111111-1111-4111-8111-111111111111",
  name: "one",
  provider: "docker",
  online: true,
  last_seen_at: "2026-11-30T15:00:00Z",
  created_at: "2026-11-30T15:00:00Z",
  max_active: 2,
  max_retained: 2,
  limits: "custom",
  recommended: null,
  active: 0,
  reserved: 0,
  running: 0,
  retained: 0,
  snapshots: 0,
  cleanup_pending: 0,
  issues: 0,
  provider_ready: true,
  cpu_count: null,
  available_memory_bytes: null,
  available_disk_bytes: null,
  rollout: { state: "ready", ready_generation: 1 },
  labels: {},
  cordoned: false,
  drain: null,
  enrollment_id: null,
  core_url: PUBLIC,
};

// inv: INV-W11, INV-W12
test("a node has exactly one status, the first that applies", () => {
  // Each fault that comes first hides all that follow it.
  const faults: [Status, Partial<Node>][] = [
    ["oldAddress", { core_url: "https://old.example.com" }],
    ["offline", { online: false }],
    ["providerNotReady", { provider_ready: false }],
    ["needsAttention", { issues: 1 }],
  ];
  for (const [at, [status]] of faults.entries()) {
    const all = Object.assign({}, good, ...faults.slice(at).map(([, fault]) => fault));
    expect(statusOf(all, PUBLIC, false)).toBe(status);
    expect(statusOf(all, PUBLIC, true)).toBe("unconfirmed");
  }
  expect(statusOf({ ...good, cleanup_pending: 1 }, PUBLIC, false)).toBe("needsAttention");
  expect(statusOf(good, PUBLIC, false)).toBe("available");
  expect(statusOf(good, PUBLIC, true)).toBe("unconfirmed");
});

// inv: INV-W9
test("the tip beside Provider not ready is one text whatever the node reports", () => {
  for (const code of Object.keys(READINESS) as (keyof typeof READINESS)[]) {
    const node: Node = { ...good, provider_ready: false, diagnostic: code };
    expect(statusTip("providerNotReady", node, 0)).toBe("Sandbox provider unavailable");
  }
});

// req: P-178, P-179
// inv: INV-W10
test("every known code has its text and an unknown one reads as a provider that is unavailable", () => {
  const texts = Object.keys(READINESS).map((code) => t(readiness(code)));
  expect(new Set(texts).size).toBe(6);
  for (const unknown of ["", "something_new", "toString", "__proto__"]) {
    expect(t(readiness(unknown))).toBe("Sandbox provider unavailable");
  }
});

test("a failed preparation says why, and nothing else has a tip", () => {
  const failed: Node = {
    ...good,
    rollout: { state: "failed", ready_generation: 1, diagnostic: "capacity_insufficient" },
  };
  expect(configuration(failed)).toEqual({ text: "Preparation failed", tip: "Host too small" });
  expect(configuration(good)).toEqual({ text: "Ready for target", tip: undefined });
});

test("a node that was only seen again is the same; one of which anything else is known is not", () => {
  const later = { ...good, last_seen_at: "2026-11-30T15:00:10Z" };
  expect(isSteady(good, later)).toBe(true);
  expect(isSteady({ ...good, online: false }, { ...later, online: false })).toBe(false);
  const changes: Partial<Node>[] = [
    { online: false },
    { name: "two" },
    { active: 1 },
    { labels: { zone: "west" } },
    { rollout: { state: "preparing", ready_generation: 1 } },
    { diagnostic: "host_unsupported" },
    { cordoned: true },
  ];
  for (const change of changes) {
    expect(isSteady(good, { ...later, ...change })).toBe(false);
    expect(isSteady({ ...later, ...change }, good)).toBe(false);
  }
});
