// How far a node came that is being added, and whether it needs somebody (console.md section 5). Times are Core's.

import type { Node } from "../api/types.ts";
import { parse } from "../format/format.ts";

/** Each contains those before it. */
export const STAGES = ["registered", "connected", "ready"] as const;
export type Stage = (typeof STAGES)[number];

/** From so long after its registration on, a node that is not ready needs somebody. */
export const PATIENCE = 60_000;

export function stageOf(node: Node): Stage {
  if (!node.online) {
    return "registered";
  }
  return node.provider_ready ? "ready" : "connected";
}

/** The later of the two: on the screen nothing goes back. */
export function further(one: Stage, other: Stage): Stage {
  return STAGES.indexOf(one) > STAGES.indexOf(other) ? one : other;
}

/** Whether the node, which came as far as `reached`, needs somebody: it says so, it fell back, or it takes too long. */
export function needsSomebody(node: Node, reached: Stage, now: number): boolean {
  if (stageOf(node) === "ready") {
    return false;
  }
  const says = node.diagnostic !== undefined || node.rollout.diagnostic !== undefined;
  const fell = !node.online && reached !== "registered";
  return says || fell || now - parse(node.created_at) >= PATIENCE;
}
