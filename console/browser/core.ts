// A Core program of this checkout on SQLite, on a port and in a folder of its own.

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { type Made, type MadeOptions, publish } from "./release.ts";

const run = promisify(execFile);
const programs = process.env.OAC_TEST_PROGRAMS ?? "../target/debug";

async function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.on("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address ? address.port : 0));
    });
  });
}

/** Waits until `ready` gives something. */
export async function until<T>(ready: () => Promise<T | undefined>, what: string): Promise<T> {
  const end = Date.now() + 60_000;
  for (;;) {
    const found = await ready();
    if (found !== undefined) {
      return found;
    }
    if (Date.now() > end) {
      throw new Error(`${what} did not come`);
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

export interface CoreOptions {
  /** `null` for none; without it one that other machines could reach, by its look. */
  publicUrl?: string | null;
}

async function configure(folder: string, port: number, publicUrl: string | null): Promise<void> {
  const lines = [
    `listen = ["127.0.0.1:${port}"]`,
    'metrics_listen = ""',
    `release_dir = "${folder}/releases"`,
    ...(publicUrl === null ? [] : [`public_url = "${publicUrl}"`]),
    "[database]",
    `url = "sqlite://${folder}/core.db"`,
  ];
  await writeFile(join(folder, "config.toml"), `${lines.join("\n")}\n`, { mode: 0o600 });
}

export class Core {
  private child: ChildProcess | undefined;

  private constructor(
    readonly folder: string,
    readonly url: string,
    public publicUrl: string | null,
    readonly key: string,
  ) {}

  static async start(options: CoreOptions = {}): Promise<Core> {
    const folder = await mkdtemp(join(tmpdir(), "oac-console-"));
    await mkdir(join(folder, "releases"));
    const port = await freePort();
    const publicUrl = options.publicUrl === undefined ? `http://core.example.com:${port}` : options.publicUrl;
    await configure(folder, port, publicUrl);
    const made = await run(join(programs, "oac-core"), [
      "core-key",
      "create",
      "--config",
      join(folder, "config.toml"),
    ]);
    const core = new Core(folder, `http://127.0.0.1:${port}`, publicUrl, made.stdout.trim());
    await core.run();
    return core;
  }

  /** Starts serving, and waits until it owns the installation. */
  async run(): Promise<void> {
    const log = join(this.folder, "core.log");
    const command = `exec "$0" run --config "$1" >> "$2" 2>&1`;
    const program = join(programs, "oac-core");
    this.child = spawn("sh", ["-c", command, program, join(this.folder, "config.toml"), log]);
    await until(async () => {
      try {
        return (await fetch(`${this.url}/readyz`)).ok ? true : undefined;
      } catch {
        return undefined;
      }
    }, "Core");
  }

  async stop(): Promise<void> {
    const child = this.child;
    this.child = undefined;
    if (child?.exitCode === null) {
      const ended = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGTERM");
      await ended;
    }
  }

  /** Serves another release from now on, and waits until Core says so. */
  async publish(options: MadeOptions = {}): Promise<Made> {
    const made = await publish(join(this.folder, "releases"), options);
    await until(async () => {
      const answer = await fetch(`${this.url}/api/v1/sandbox-node/install/index.json`);
      const index = answer.ok ? await answer.json() : undefined;
      const held = options.missing?.includes("node-install") || index?.installer;
      return index?.source_commit === made.commit && held ? true : undefined;
    }, "the release");
    return made;
  }

  /** Goes on under another public address. */
  async move(publicUrl: string | null): Promise<void> {
    await this.stop();
    this.publicUrl = publicUrl;
    await configure(this.folder, Number(new URL(this.url).port), publicUrl);
    await this.run();
  }

  async remove(): Promise<void> {
    await this.stop();
    await rm(this.folder, { recursive: true });
  }

  log(): Promise<string> {
    return readFile(join(this.folder, "core.log"), "utf8");
  }

  /** A request with the Core key; the answer's document. */
  async ask<T>(method: string, path: string, body?: unknown, bearer = this.key): Promise<T> {
    const response = await fetch(`${this.url}${path}`, {
      method,
      headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json" },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) {
      throw new Error(`${method} ${path}: ${response.status} ${text}`);
    }
    return (text === "" ? undefined : JSON.parse(text)) as T;
  }

  async installation(): Promise<string> {
    const path = "/core/v1/sandbox/deployment";
    return (await this.ask<{ installation_id: string }>("GET", path)).installation_id;
  }

  /** Lets `count` Sessions begin, each with a sandbox of its own; their ids. */
  async sessions(count: number): Promise<string[]> {
    const project = await this.ask<{ id: string }>("POST", "/core/v1/projects", { name: "pages" });
    const { key } = await this.ask<{ key: string }>("POST", `/core/v1/projects/${project.id}/keys`, {
      name: "pages",
    });
    const ids: string[] = [];
    for (let at = 0; at < count; at += 1) {
      ids.push((await this.ask<{ id: string }>("POST", "/v1/sessions", {}, key)).id);
    }
    return ids;
  }

  /** Saves a selection of made-up files, in place of the present one. */
  async deploy(provider: "docker" | "microsandbox" = "docker", cpus = 2): Promise<void> {
    const path = "/core/v1/sandbox/deployment";
    const now = await this.ask<{ generation: number; provider: string | null }>("GET", path);
    const digest = "ab".repeat(32);
    const artifacts =
      provider === "docker"
        ? { image_id: `sha256:${digest}`, image_manifest_digest: `sha256:${digest}` }
        : {
            microsandbox_ref: `oac-runtime@sha256:${digest}`,
            runtime_sha256: digest,
            firmware_sha256: digest,
          };
    const disks = provider === "docker" ? {} : { root_disk_mib: 8192, environment_disk_mib: 8192 };
    await this.ask(now.provider === null ? "POST" : "PUT", path, {
      expected_generation: now.generation,
      provider,
      resources: { cpus, memory_mib: cpus * 1024, ...disks },
      runtime: { source_commit: "0123456789abcdef0123456789abcdef01234567", artifacts },
    });
  }
}
