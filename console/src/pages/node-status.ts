// A node's one status, its badges and its configuration state (console.md section 4).

import type { Node } from "../api/types.ts";
import { ago, moment, parse } from "../format/format.ts";
import { readiness } from "../text/codes.ts";
import { type Key, t } from "../text/text.ts";
import type { IconName } from "../ui/icon.tsx";

export type Status =
  | "unconfirmed"
  | "oldAddress"
  | "offline"
  | "providerNotReady"
  | "needsAttention"
  | "available";

/** The first that applies, in this order (INV-W11). `publicUrl` is the installation's address. */
export function statusOf(node: Node, publicUrl: string | null, stale: boolean): Status {
  if (stale) {
    return "unconfirmed";
  }
  if (publicUrl !== null && node.core_url !== publicUrl) {
    return "oldAddress";
  }
  if (!node.online) {
    return "offline";
  }
  if (!node.provider_ready) {
    return "providerNotReady";
  }
  return node.cleanup_pending > 0 || node.issues > 0 ? "needsAttention" : "available";
}

export const ICON: Record<Status, IconName> = {
  unconfirmed: "question",
  oldAddress: "warn",
  offline: "off",
  providerNotReady: "bad",
  needsAttention: "warn",
  available: "ok",
};

/** What explains the status and says what to do; none where there is nothing to say. */
export function statusTip(status: Status, node: Node, now: number): string | undefined {
  switch (status) {
    case "oldAddress":
      return t("status.tip.oldAddress");
    case "offline":
      return node.last_seen_at === null
        ? t("status.tip.neverSeen")
        : t("status.tip.offline", { time: ago(parse(node.last_seen_at), now) });
    case "providerNotReady":
      // Whatever the node reports: that is for its configuration (INV-W9).
      return t("readiness.provider_unavailable");
    case "needsAttention":
      return t("status.tip.attention", { issues: node.issues, cleanup: node.cleanup_pending });
    default:
      return undefined;
  }
}

/** Whether all that is shown of a node is the same but its last sign of life. What did not change is the same object. */
export function isSteady(one: Node, other: Node): boolean {
  const members = Object.keys({ ...one, ...other }) as (keyof Node)[];
  return members.every((name) => one[name] === other[name] || (name === "last_seen_at" && one.online));
}

export function badges(node: Node): string[] {
  const shown: string[] = [];
  if (node.drain?.deadline_at) {
    shown.push(t("badge.draining", { time: moment(parse(node.drain.deadline_at)) }));
  }
  if (node.cordoned) {
    shown.push(t("badge.cordoned"));
  }
  return shown;
}

const CONFIGURATION: Record<Node["rollout"]["state"], Key> = {
  preparing: "configuration.preparing",
  ready: "configuration.ready",
  failed: "configuration.failed",
  update_required: "configuration.update_required",
  unknown: "configuration.unknown",
};

/** Where the node stands with the target, and why it failed. */
export function configuration(node: Node): { text: string; tip: string | undefined } {
  const { state, diagnostic } = node.rollout;
  const failed = state === "failed" ? t(readiness(diagnostic ?? "")) : undefined;
  return { text: t(CONFIGURATION[state]), tip: failed };
}
