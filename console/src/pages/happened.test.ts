import { expect, test } from "vitest";
import type { Deployment, Drain, Node, Reset } from "../api/types.ts";
import { drained, reset, type Selection, selected } from "./happened.ts";

// inv: INV-W13
test("a drain of a node with nothing to wait for is over at once, and is not taken for one that was not made", () => {
  const asked = (then: Drain["then"] = "archive"): Drain => ({
    deadline_seconds: 60,
    idle: "suspend",
    then,
    retained: "keep",
  });
  const mine = asked();
  const node = { cordoned: false, drain: null, active: 0 } as Node;
  const standing = (change: Partial<NonNullable<Node["drain"]>> = {}): Node => ({
    ...node,
    cordoned: true,
    drain: { ...mine, requested_at: "", deadline_at: null, deadline_passed_at: null, ...change },
  });
  expect(drained(node, mine, standing())).toBe(true);
  expect(drained(node, mine, standing({ idle: null, retained: null }))).toBe(true);
  // Another operator's, over which this one was refused.
  expect(drained(node, mine, standing({ ...asked("terminate") }))).toBe(false);
  expect(drained(node, mine, { ...node, cordoned: true })).toBeUndefined();
  expect(drained({ ...node, cordoned: true }, mine, { ...node, cordoned: true })).toBeUndefined();
  const busy = { ...node, cordoned: true, active: 1 };
  expect(drained(busy, mine, busy)).toBe(false);
  expect(drained(node, mine, node)).toBe(false);
  expect(drained(node, mine, undefined)).toBeUndefined();
});

const bound = { provider: "docker", generation: 3, reset: null } as Deployment;

// inv: INV-W13
test("another's change of size is no reset, and one that ended leaves nothing selected", () => {
  expect(reset(bound, "auto", bound)).toBe(false);
  expect(reset(bound, "auto", { ...bound, generation: 4 })).toBe(false);
  expect(reset(bound, "force", { ...bound, generation: 4, provider: null })).toBe(true);
  const standing = (forced_at: string | null) => ({ ...bound, reset: { forced_at } as Reset });
  expect(reset(bound, "auto", standing(null))).toBe(true);
  expect(reset(bound, "auto", standing("2026-11-30T15:00:00Z"))).toBeUndefined();
  expect(reset(bound, "force", standing(null))).toBe(false);
  expect(reset(bound, "force", standing("2026-11-30T15:00:00Z"))).toBe(true);
});

// inv: INV-W13
test("a first selection is one's own only if all of it is", () => {
  const artifacts = { image_id: "one", image_manifest_digest: "two" } as Selection["runtime"]["artifacts"];
  const asked: Selection = {
    provider: "microsandbox",
    resources: { cpus: 2, memory_mib: 2048, root_disk_mib: 8192 },
    runtime: { source_commit: "a".repeat(40), artifacts },
    workspace: { store_id: "AB", mount: "host:/path" },
  };
  const specification = { ...asked, workspace: { ...asked.workspace, store_id: "ab", kind: "nfs" } };
  const now = (change: object = {}) =>
    ({ ...bound, provider: asked.provider, specification: { ...specification, ...change } }) as Deployment;
  expect(selected(asked, now())).toBe(true);
  for (const change of [
    { resources: { ...asked.resources, cpus: 4 } },
    { resources: { ...asked.resources, memory_mib: 4096 } },
    { resources: { ...asked.resources, root_disk_mib: 4096 } },
    { resources: { ...asked.resources, environment_disk_mib: 4096 } },
    { runtime: { ...asked.runtime, source_commit: "b".repeat(40) } },
    { workspace: { ...specification.workspace, mount: "host:/other" } },
    { workspace: undefined },
  ]) {
    expect(selected(asked, now(change)), JSON.stringify(change)).toBe(false);
  }
  expect(selected(asked, { ...now(), provider: "docker" })).toBe(false);
  expect(selected(asked, bound)).toBe(false);
});
