// A release as `oac-core release publish` would leave it: small files, true digests, and an installer that only notes what
// it was started with.

import { createHash } from "node:crypto";
import { chmod, mkdir, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

/** The rows of releases.md section 2: key, suffix, role, backend. */
const ROWS = [
  ["bin/oac-node", "node", "node", "both"],
  ["bin/oac-node-install", "node-install", "installer", "both"],
  ["images/runtime.tar.gz", "runtime.tar.gz", "image", "both"],
  ["native/bin/oac-microsandbox-helper", "microsandbox-helper", "runtime", "microsandbox"],
  ["native/microsandbox/libkrunfw.so.5.6.1", "libkrunfw", "runtime", "microsandbox"],
  ["native/microsandbox/msb", "msb", "runtime", "microsandbox"],
  ["runtime/seccomp.json", "seccomp.json", "policy", "docker"],
] as const;

/** Notes its arguments and the token that it reads, and is done. */
const INSTALLER = `#!/bin/sh
read -r token
printf '%s\\n' "$@" > "$HOME/arguments"
printf '%s' "$token" > "$HOME/token"
`;

const sha = (bytes: string): string => createHash("sha256").update(bytes).digest("hex");

export interface Made {
  commit: string;
  manifestSha256: string;
  installer: { filename: string; sha256: string };
  runtime: { docker: object; microsandbox: object };
}

export interface MadeOptions {
  /** Its one digit. */
  digit?: string;
  /** Suffixes of files that the release names and Core does not hold. */
  missing?: string[];
}

/** Makes a release the current one below `folder`. */
export async function publish(
  folder: string,
  { digit = "a", missing = [] }: MadeOptions = {},
): Promise<Made> {
  const commit = digit.repeat(40);
  const bytes = (suffix: string) => (suffix === "node-install" ? INSTALLER : `${suffix} of ${commit}`);
  const name = (suffix: string) => `oac-${commit}-linux-amd64-${suffix}`;
  const digest = (text: string) => `sha256:${sha(text)}`;
  const image = { config_digest: digest("config"), manifest_digest: digest("manifest") };
  const artifacts = Object.fromEntries(
    ROWS.map(([key, suffix, role, provider]) => [
      key,
      {
        filename: name(suffix),
        role,
        provider,
        size: bytes(suffix).length,
        sha256: sha(bytes(suffix)),
        ...(role === "image" && { unpacked_size: 1, unpacked_sha256: sha("x") }),
      },
    ]),
  );
  const manifest = JSON.stringify({
    format: 1,
    platform: "linux/amd64",
    source_commit: commit,
    images: { runtime: image },
    artifacts,
  });
  const sums = [
    ["manifest.json", sha(manifest)] as const,
    ...ROWS.map(([, suffix]) => [name(suffix), sha(bytes(suffix))] as const),
  ]
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([file, sum]) => `${sum}  ${file}\n`)
    .join("");
  const place = join(folder, commit);
  await rm(place, { recursive: true, force: true });
  const files: [string, string][] = [
    ["manifest.json", manifest],
    ["SHA256SUMS", sums],
    ...ROWS.filter(([, suffix]) => !missing.includes(suffix)).map(([, suffix]): [string, string] => [
      `artifacts/${name(suffix)}`,
      bytes(suffix),
    ]),
  ];
  await mkdir(join(place, "artifacts"), { recursive: true });
  for (const [file, text] of files) {
    await writeFile(join(place, file), text);
    await chmod(join(place, file), 0o444);
  }
  const current = join(folder, "current.json");
  await writeFile(`${current}.new`, JSON.stringify({ format: 1, source_commit: commit }));
  await chmod(`${current}.new`, 0o444);
  await rename(`${current}.new`, current);
  return {
    commit,
    manifestSha256: sha(manifest),
    installer: { filename: name("node-install"), sha256: sha(INSTALLER) },
    runtime: {
      docker: {
        source_commit: commit,
        artifacts: { image_id: image.config_digest, image_manifest_digest: image.manifest_digest },
      },
      microsandbox: {
        source_commit: commit,
        artifacts: {
          microsandbox_ref: `oac-runtime@${image.manifest_digest}`,
          runtime_sha256: sha(bytes("msb")),
          firmware_sha256: sha(bytes("libkrunfw")),
        },
      },
    },
  };
}
