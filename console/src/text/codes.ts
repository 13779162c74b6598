// The one normalizer of Core's codes: a known code has its text, an unknown one reads as a provider that is unavailable
// (INV-W10). The records name every code of Core's description, so a new one without text does not compile.

import type { ReadinessCode } from "../api/types.ts";
import type { Key } from "./en.ts";

export const READINESS: Record<ReadinessCode, Key> = {
  provider_unavailable: "readiness.provider_unavailable",
  host_unsupported: "readiness.host_unsupported",
  capacity_insufficient: "readiness.capacity_insufficient",
  runtime_image_unavailable: "readiness.runtime_image_unavailable",
  artifacts_unavailable: "readiness.artifacts_unavailable",
  runtime_download_failed: "readiness.runtime_download_failed",
};

/** What an allocation's diagnostic may be; Core's description knows it as a text. */
export const ISSUES: Record<string, Key> = {
  node_unavailable: "issue.node_unavailable",
  resource_missing: "issue.resource_missing",
  compute_unconfirmed: "issue.compute_unconfirmed",
  ownership_mismatch: "issue.ownership_mismatch",
  provider_unavailable: "issue.provider_unavailable",
};

export function readiness(code: string): Key {
  return Object.hasOwn(READINESS, code) ? READINESS[code as ReadinessCode] : "readiness.provider_unavailable";
}

export function issue(code: string): Key {
  return (Object.hasOwn(ISSUES, code) ? ISSUES[code] : undefined) ?? "issue.provider_unavailable";
}
