// What this Core serves to hosts, read from the documents of its current release (releases.md sections 2 and 6).

import type { RuntimeRelease } from "./types.ts";

/** `index.json`, as far as the console goes by it. */
export interface ReleaseIndex {
  commit: string;
  /** Whether the installer can be fetched. */
  installer: boolean;
  /** The backends whose every node file can be fetched. */
  providers: { docker: boolean; microsandbox: boolean };
}

/** What a new selection runs in its sandboxes, by backend; null where the release has nothing for one. */
export interface RuntimeOffer {
  commit: string;
  docker: RuntimeRelease | null;
  microsandbox: RuntimeRelease | null;
}

type Members = Record<string, unknown>;

const members = (value: unknown): Members =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Members) : {};
const text = (value: unknown, pattern: RegExp): string | undefined =>
  typeof value === "string" && pattern.test(value) ? value : undefined;

const COMMIT = /^[0-9a-f]{40}$/;
const DIGEST = /^sha256:[0-9a-f]{64}$/;
const HEX = /^[0-9a-f]{64}$/;

/** `undefined` for what is no index of a form that is known here. */
export function readIndex(document: unknown): ReleaseIndex | undefined {
  const { format, source_commit, installer, providers } = members(document);
  const { docker, microsandbox } = members(providers);
  const commit = text(source_commit, COMMIT);
  if (
    format !== 1 ||
    commit === undefined ||
    typeof docker !== "boolean" ||
    typeof microsandbox !== "boolean"
  ) {
    return undefined;
  }
  return {
    commit,
    installer: members(installer).filename !== undefined,
    providers: { docker, microsandbox },
  };
}

/** The runtime that a manifest stands for, by the table of releases.md section 2. */
export function readRuntime(document: unknown): RuntimeOffer | undefined {
  const { format, source_commit, images, artifacts } = members(document);
  const commit = text(source_commit, COMMIT);
  if (format !== 1 || commit === undefined) {
    return undefined;
  }
  const image = members(members(images).runtime);
  const image_id = text(image.config_digest, DIGEST);
  const image_manifest_digest = text(image.manifest_digest, DIGEST);
  const files = members(artifacts);
  const sha = (key: string | undefined) =>
    key === undefined ? undefined : text(members(files[key]).sha256, HEX);
  const runtime_sha256 = sha("native/microsandbox/msb");
  const firmware = Object.keys(files).filter((key) => key.startsWith("native/microsandbox/libkrunfw.so."));
  const firmware_sha256 = firmware.length === 1 ? sha(firmware[0]) : undefined;
  return {
    commit,
    docker:
      image_id && image_manifest_digest
        ? { source_commit: commit, artifacts: { image_id, image_manifest_digest } }
        : null,
    microsandbox:
      image_manifest_digest && runtime_sha256 && firmware_sha256
        ? {
            source_commit: commit,
            artifacts: {
              microsandbox_ref: `oac-runtime@${image_manifest_digest}`,
              runtime_sha256,
              firmware_sha256,
            },
          }
        : null,
  };
}
