// What stands in the way of adding a node, or of giving a host back (console.md sections 5 and 6).

import type { ReleaseIndex } from "../api/release.ts";
import type { Deployment } from "../api/types.ts";
import type { Key } from "../text/text.ts";

export type Blocker =
  | "unread"
  | "configuration"
  | "direct"
  | "reset"
  | "address"
  | { files: "docker" | "microsandbox" }
  | "installer";

/** What a public address is good for, as far as it tells (core.md section 1). */
export function verdict(address: string | null): Extract<Key, `service.${"usable" | "unset" | "loopback"}`> {
  if (address === null) {
    return "service.unset";
  }
  const host = new URL(address).hostname.replace(/\.$/, "").replace(/^\[|\]$/g, "");
  const own =
    host === "localhost" ||
    host.endsWith(".localhost") ||
    /^(127\.|0\.0\.0\.0$)/.test(host) ||
    /^(::1?|::ffff:(7f[0-9a-f]{2}:|0:0$).*)$/.test(host);
  return own ? "service.loopback" : "service.usable";
}

/** What was read; `undefined` for what could not be, `null` for a Core without a release. */
export interface Ground {
  deployment: Deployment | undefined;
  release: ReleaseIndex | null | undefined;
}

/** The first thing that keeps a node from being added; none when it can be. */
export function blocker({ deployment, release }: Ground): Blocker | undefined {
  if (deployment === undefined || release === undefined) {
    return "unread";
  }
  const { provider } = deployment;
  if (provider === null) {
    return "configuration";
  }
  if (provider === "e2b") {
    return "direct";
  }
  if (deployment.reset !== null) {
    return "reset";
  }
  if (verdict(deployment.core_url) !== "service.usable") {
    return "address";
  }
  if (!release?.providers[provider]) {
    return { files: provider };
  }
  return release.installer ? undefined : "installer";
}

/** The first thing that keeps a host from being given back by a command of this Core. */
export function cleanUpBlocker({ deployment, release }: Ground): Blocker | undefined {
  if (deployment === undefined || release === undefined) {
    return "unread";
  }
  if (verdict(deployment.core_url) !== "service.usable") {
    return "address";
  }
  return release?.installer ? undefined : "installer";
}
