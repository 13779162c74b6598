// A node without a host: it enrolls, connects and says of itself what a test wants it to say.

import { createHash, randomBytes, randomUUID } from "node:crypto";
import WebSocket from "ws";
import type { Core } from "./core.ts";

export interface Health {
  provider_ready: boolean;
  diagnostic?: string;
  cpu_utilization: number | null;
  total_memory_bytes: number | null;
  available_memory_bytes: number | null;
  available_disk_bytes: number | null;
}

/** What a node that prepares generations says of one. */
export interface Prepared {
  generation: number;
  specification_digest: string;
  state: "preparing" | "ready" | "failed";
  diagnostic?: string;
}

interface Request {
  id: string;
  connection_id: string;
  operation: string;
  reference: { allocation_id: string };
}

const GIB = 1024 ** 3;

interface Enrolled {
  node_id: string;
  installation_id: string;
  provider: string;
  deployment_generation: number;
  specification_digest: string;
  max_active: number;
  max_retained: number;
}

export class SimulatedNode {
  private socket: WebSocket | undefined;
  private welcome: { connection_id: string; owner_epoch: number } | undefined;
  health: Health = {
    provider_ready: true,
    cpu_utilization: 0.35,
    total_memory_bytes: 32 * GIB,
    available_memory_bytes: 20 * GIB,
    available_disk_bytes: 200 * GIB,
  };

  /** Set before it connects, it prepares generations itself; else it serves the one that it enrolled for. */
  generations: Prepared[] | undefined;

  /** The sandboxes that Core had created here, by allocation: whether each still runs. */
  private readonly sandboxes = new Map<string, boolean>();

  private constructor(
    private readonly core: Core,
    private readonly enrolled: Enrolled,
    private readonly credential: string,
  ) {}

  get id(): string {
    return this.enrolled.node_id;
  }

  /** Registers with a token of its own, or with `token`; not connected yet. */
  static async enroll(core: Core, name: string, token?: string): Promise<SimulatedNode> {
    const deployment = await core.ask<{
      provider: "docker" | "microsandbox";
      generation: number;
      specification_digest: string;
    }>("GET", "/core/v1/sandbox/deployment");
    const used =
      token ??
      (
        await core.ask<{ token: string }>(
          "POST",
          "/core/v1/sandbox/enrollment-tokens",
          deployment.provider === "docker"
            ? { max_active: 4, max_retained: 4 }
            : { max_active: 4, max_retained: 12 },
        )
      ).token;
    const credential = randomBytes(32).toString("hex");
    const body = {
      node_id: randomUUID(),
      credential,
      name,
      provider: deployment.provider,
      backend_fingerprint: fingerprint(deployment.provider),
      deployment_generation: deployment.generation,
      specification_digest: deployment.specification_digest,
      core_url: core.publicUrl,
    };
    const enrolled = await core.ask<Enrolled>("POST", "/api/v1/sandbox-node/enroll", body, used);
    return new SimulatedNode(core, enrolled, credential);
  }

  async connect(): Promise<this> {
    const socket = new WebSocket(
      `${this.core.url.replace("http", "ws")}/api/v1/sandbox-node/connect?node_id=${this.id}`,
      { headers: { authorization: `Bearer ${this.credential}` } },
    );
    this.socket = socket;
    const welcomed = new Promise<typeof this.welcome>((resolve, reject) => {
      socket.on("error", reject);
      socket.on("message", (text) => {
        const frame = JSON.parse(text.toString());
        if (frame.type === "welcome") {
          resolve(frame);
        } else if (frame.type === "request") {
          this.answer(frame);
        }
      });
    });
    await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
    const { deployment_generation, specification_digest, max_active, max_retained } = this.enrolled;
    this.send("hello", {
      identity: {
        node_id: this.id,
        installation_id: this.enrolled.installation_id,
        provider: this.enrolled.provider,
        backend_fingerprint: fingerprint(this.enrolled.provider),
        deployment_generation,
        specification_digest,
        max_active,
        max_retained,
      },
      health: this.whole(),
      ...(this.generations && { generation_management: true }),
    });
    this.welcome = await welcomed;
    return this;
  }

  /** Says how it is now. */
  beat(change: Partial<Health> = {}): void {
    Object.assign(this.health, change);
    this.send("heartbeat", {
      connection_id: this.welcome?.connection_id,
      owner_epoch: this.welcome?.owner_epoch,
      health: this.whole(),
    });
  }

  disconnect(): void {
    this.socket?.terminate();
  }

  /** The sandboxes are gone, and nobody knows why. */
  lose(): void {
    for (const allocation of this.sandboxes.keys()) {
      this.sandboxes.set(allocation, false);
    }
  }

  /** Does what a backend would do of it, at once. */
  private answer(request: Request): void {
    const { id, connection_id, operation, reference } = request;
    if (operation === "create" || operation === "kill") {
      this.sandboxes.set(reference.allocation_id, operation === "create");
    }
    const runs = this.sandboxes.get(reference.allocation_id) === true;
    const info = {
      reference,
      provider_id: runs ? `made-${reference.allocation_id}` : "",
      state: runs ? "running" : "absent",
      bootstrap_complete: runs,
      create_settled: true,
      compute_lost: false,
    };
    const known = ["create", "info", "renew", "kill"].includes(operation);
    this.send("response", {
      id,
      connection_id,
      ...(known ? operation !== "kill" && { info } : { error_code: "invalid" }),
    });
  }

  private whole() {
    return {
      observed_at: new Date().toISOString(),
      active_operations: 0,
      effective_cpu_cores: 8,
      cpu_count: 8,
      execution_class: null,
      checkpoint_store: null,
      boot_id: null,
      ...this.health,
      ...(this.generations && { provider_ready: false, generations: this.generations }),
    };
  }

  private send(type: string, frame: object): void {
    this.socket?.send(JSON.stringify({ version: 1, type, ...frame }));
  }
}

function fingerprint(provider: string): string {
  const namespace = provider === "docker" ? "unix:///var/run/docker.sock" : "/var/lib/oac-node/.oac/m/test";
  return createHash("sha256").update(`${provider}\0${namespace}`).digest("hex");
}
