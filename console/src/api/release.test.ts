import { expect, test } from "vitest";
import { readIndex, readRuntime } from "./release.ts";

const commit = "a".repeat(40);
const hex = (digit: string) => digit.repeat(64);

test("an index is read for what it offers, and another form is none", () => {
  const index = {
    format: 1,
    source_commit: commit,
    manifest_sha256: hex("1"),
    installer: { filename: "x", size: 1, sha256: hex("2") },
    providers: { docker: true, microsandbox: false },
    releases: [commit],
  };
  expect(readIndex(index)).toEqual({
    commit,
    installer: true,
    providers: { docker: true, microsandbox: false },
  });
  expect(readIndex({ ...index, installer: null })?.installer).toBe(false);
  for (const wrong of [
    null,
    [],
    "",
    { ...index, format: 2 },
    { ...index, providers: null },
    { ...index, source_commit: "x" },
  ]) {
    expect(readIndex(wrong)).toBeUndefined();
  }
});

test("a manifest stands for one runtime of each backend that it has the files of", () => {
  const manifest = {
    format: 1,
    source_commit: commit,
    images: { runtime: { config_digest: `sha256:${hex("1")}`, manifest_digest: `sha256:${hex("2")}` } },
    artifacts: {
      "native/microsandbox/msb": { sha256: hex("3") },
      "native/microsandbox/libkrunfw.so.5.2.1": { sha256: hex("4") },
    },
  };
  expect(readRuntime(manifest)).toEqual({
    commit,
    docker: {
      source_commit: commit,
      artifacts: { image_id: `sha256:${hex("1")}`, image_manifest_digest: `sha256:${hex("2")}` },
    },
    microsandbox: {
      source_commit: commit,
      artifacts: {
        microsandbox_ref: `oac-runtime@sha256:${hex("2")}`,
        runtime_sha256: hex("3"),
        firmware_sha256: hex("4"),
      },
    },
  });
  expect(readRuntime({ ...manifest, artifacts: {} })?.microsandbox).toBeNull();
  expect(readRuntime({ ...manifest, images: {} })?.docker).toBeNull();
  expect(readRuntime({})).toBeUndefined();
});
