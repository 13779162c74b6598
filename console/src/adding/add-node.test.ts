import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { ReleaseIndex } from "../api/release.ts";
import type { Deployment, Node, Nodes } from "../api/types.ts";
import type { Answer } from "../data/answer.ts";
import { Resource, type Tab } from "../data/resource.ts";
import { type Adding, AddNode, FOLLOW_PAUSE, seen, ticked } from "./add-node.ts";

const HOUR = 3_600_000;
const START = Date.parse("2026-11-30T15:00:00Z");

const bare = { enrollment_id: "mine", name: "one", online: false, provider_ready: false } as Node;
const node = (change: Partial<Node> = {}): Node => ({
  ...bare,
  id: "n1",
  created_at: new Date(START).toISOString(),
  rollout: { state: "unknown", ready_generation: null } as Node["rollout"],
  ...change,
});
const list = (...data: Node[]): Nodes => ({ data, old_addresses: [] });
const lost = { kind: "lost" } as const;
const gone = { kind: "refused", status: 404, code: "not_found_error" } as Answer<unknown>;

/** A Core that answers as a test says, and notes what it was asked. */
class Scene {
  visible = true;
  private readonly callbacks = new Set<() => void>();
  asked: string[] = [];
  deployment: Partial<Deployment> = {
    provider: "docker",
    mode: "nodes",
    reset: null,
    core_url: "https://core.example.com",
  };
  release: ReleaseIndex | null = {
    commit: "a".repeat(40),
    installer: true,
    providers: { docker: true, microsandbox: true },
  };
  list: Answer<Nodes> = { kind: "ok", value: list() };
  revoked: Answer<unknown> = { kind: "ok", value: undefined };
  command: string | null = " echo 'token'";
  readable = true;
  tab: Tab = {
    visible: () => this.visible,
    onChange: (callback) => {
      this.callbacks.add(callback);
      return () => this.callbacks.delete(callback);
    },
  };
  private readonly around = { tab: this.tab, now: () => Date.now(), monotonic: () => performance.now() };
  private tokens = 0;
  adding = new AddNode({
    deployment: new Resource<Deployment>(
      async () => (this.readable ? { kind: "ok", value: this.deployment as Deployment } : lost),
      this.around,
    ),
    release: new Resource<ReleaseIndex | null>(
      async () => (this.readable ? { kind: "ok", value: this.release } : lost),
      this.around,
    ),
    nodesOf: (id) =>
      new Resource<Nodes>(async () => {
        this.asked.push(`list ${id}`);
        return this.list;
      }, this.around),
    issue: async (limits) => {
      this.asked.push(`issue ${JSON.stringify(limits)}`);
      this.tokens += 1;
      return {
        kind: "ok",
        value: {
          enrollment_id: this.tokens === 1 ? "mine" : `mine${this.tokens}`,
          expires_at: new Date(Date.now() + HOUR).toISOString(),
          command: this.command,
        },
      };
    },
    revoke: async (id) => {
      this.asked.push(`revoke ${id}`);
      return this.revoked;
    },
    tab: this.tab,
    now: () => Date.now(),
  });

  get state(): Adding {
    return this.adding.get().state;
  }

  show(visible: boolean): void {
    this.visible = visible;
    for (const callback of this.callbacks) {
      callback();
    }
  }

  /** The dialog with a command in it. */
  async withCommand(): Promise<this> {
    this.adding.open();
    await settle();
    await this.adding.generate({ recommended: true });
    await settle();
    expect(this.state.step).toBe("command");
    return this;
  }

  count(what: string): number {
    return this.asked.filter((one) => one.startsWith(what)).length;
  }
}

const settle = () => vi.advanceTimersByTimeAsync(0);
let scene: Scene;
beforeEach(() => {
  vi.useFakeTimers({ now: START });
  scene = new Scene();
});
afterEach(() => {
  scene.adding.close();
  vi.useRealTimers();
});

test("what stands in the way is said in order, and goes when it was removed", async () => {
  scene.readable = false;
  scene.deployment = { provider: null, mode: null, reset: null, core_url: null };
  scene.release = null;
  scene.adding.open();
  await settle();
  const by = () => (scene.state.step === "blocked" ? scene.state.by : scene.state.step);
  expect(by()).toBe("unread");
  const after = async (change: () => void) => {
    change();
    scene.show(true);
    await settle();
    return by();
  };
  expect(await after(() => Object.assign(scene, { readable: true }))).toBe("configuration");
  expect(await after(() => Object.assign(scene.deployment, { provider: "e2b", mode: "direct" }))).toBe(
    "direct",
  );
  const reset = { clear: "auto" } as Deployment["reset"];
  expect(
    await after(() => Object.assign(scene.deployment, { provider: "docker", mode: "nodes", reset })),
  ).toBe("reset");
  expect(await after(() => Object.assign(scene.deployment, { reset: null }))).toBe("address");
  const url = { core_url: "http://localhost:8080" };
  expect(await after(() => Object.assign(scene.deployment, url))).toBe("address");
  const files = await after(() => Object.assign(scene.deployment, { core_url: "http://core.example.com" }));
  expect(files).toEqual({ files: "docker" });
  const providers = { docker: true, microsandbox: false };
  expect(
    await after(() =>
      Object.assign(scene, { release: { commit: "a".repeat(40), installer: false, providers } }),
    ),
  ).toBe("installer");
  expect(await after(() => Object.assign(scene.release ?? {}, { installer: true }))).toBe("form");
  // From here on a look at the window changes nothing.
  expect(await after(() => Object.assign(scene.deployment, { reset }))).toBe("form");
});

// inv: INV-W5
test("only the node of the command's own token is followed, and its steps never go back", async () => {
  await scene.withCommand();
  scene.list = { kind: "ok", value: list(node({ enrollment_id: "other" })) };
  await vi.advanceTimersByTimeAsync(FOLLOW_PAUSE);
  expect(scene.state.step).toBe("command");
  const reached = () => (scene.state.step === "following" ? scene.state.reached : scene.state.step);
  const now = async (change: Partial<Node>) => {
    scene.list = {
      kind: "ok",
      value: list(node({ enrollment_id: "other", online: true, provider_ready: true }), node(change)),
    };
    await vi.advanceTimersByTimeAsync(FOLLOW_PAUSE);
    return reached();
  };
  expect(await now({})).toBe("registered");
  expect(await now({ online: true })).toBe("connected");
  expect(await now({ online: false })).toBe("connected");
  expect(await now({ online: true, provider_ready: true })).toBe("done");
  const asked = scene.asked.length;
  await vi.advanceTimersByTimeAsync(10 * FOLLOW_PAUSE);
  expect(scene.asked.length).toBe(asked);
});

// inv: INV-W8
test("a node that was ready when it was last read is not ready while nothing is read", async () => {
  await scene.withCommand();
  const ready = list(node({ online: true, provider_ready: true }));
  const issued = scene.state.step === "command" ? scene.state.issued : undefined;
  if (!issued) {
    throw new Error("no command");
  }
  scene.list = lost;
  await vi.advanceTimersByTimeAsync(FOLLOW_PAUSE);
  expect(scene.adding.get().list?.stale).toBe(true);
  expect(scene.state.step).toBe("command");
  // One of the two is not enough.
  for (const half of [{ online: true }, { provider_ready: true }]) {
    expect(seen({ step: "command", issued }, list(node(half)), START).step).toBe("following");
  }
  expect(seen({ step: "command", issued }, ready, START).step).toBe("done");
});

// inv: INV-W6
test("a command is expired only after a list that was asked for after its end", async () => {
  await scene.withCommand();
  await vi.advanceTimersByTimeAsync(HOUR - 10 * FOLLOW_PAUSE);
  scene.list = lost;
  await vi.advanceTimersByTimeAsync(20 * FOLLOW_PAUSE);
  expect(scene.state.step).toBe("deciding");
  await vi.advanceTimersByTimeAsync(20 * FOLLOW_PAUSE);
  expect(scene.state.step).toBe("deciding");
  scene.list = { kind: "ok", value: list() };
  await vi.advanceTimersByTimeAsync(20 * FOLLOW_PAUSE);
  expect(scene.state.step).toBe("expired");
});

// inv: INV-W6
test("a list that was asked for before the end decides nothing", () => {
  const issued = {
    enrollmentId: "mine",
    command: "",
    expiresAt: START,
    limits: { recommended: true as const },
  };
  const deciding = ticked({ step: "command", issued }, START + 1000);
  expect(deciding.step).toBe("deciding");
  expect(ticked({ step: "command", issued }, START + 999).step).toBe("command");
  expect(seen(deciding, list(), START + 999).step).toBe("deciding");
  expect(seen(deciding, list(), START + 1000).step).toBe("expired");
});

// inv: INV-W7
test("a node that registered in the last second is followed, and so is one that a late list shows", async () => {
  await scene.withCommand();
  await vi.advanceTimersByTimeAsync(HOUR - 500);
  scene.list = { kind: "ok", value: list(node()) };
  await vi.advanceTimersByTimeAsync(2 * FOLLOW_PAUSE);
  expect(scene.state.step).toBe("following");
  await vi.advanceTimersByTimeAsync(HOUR);
  expect(scene.state.step).toBe("following");
  await scene.adding.renew();
  expect(scene.count("issue")).toBe(1);
});

// inv: INV-W7
test("another command is made only after a list shows that the expired one registered no node", async () => {
  await scene.withCommand();
  await vi.advanceTimersByTimeAsync(HOUR + 2 * FOLLOW_PAUSE);
  expect(scene.state.step).toBe("expired");
  const asked = scene.count("list");
  await vi.advanceTimersByTimeAsync(HOUR);
  expect(scene.count("list")).toBe(asked);
  scene.list = lost;
  await scene.adding.renew();
  expect(scene.state).toMatchObject({ step: "expired", busy: false, failure: lost });
  expect(scene.count("issue")).toBe(1);
  scene.list = { kind: "ok", value: list(node()) };
  await scene.adding.renew();
  expect(scene.state.step).toBe("following");
  expect(scene.count("issue")).toBe(1);
  scene.list = { kind: "ok", value: list(node({ online: true, provider_ready: true })) };
  await vi.advanceTimersByTimeAsync(FOLLOW_PAUSE);
  expect(scene.state.step).toBe("done");
});

test("an expired command that registered none gives way to another with the same limits", async () => {
  await scene.withCommand();
  await vi.advanceTimersByTimeAsync(HOUR + 2 * FOLLOW_PAUSE);
  await scene.adding.renew();
  expect(scene.state).toMatchObject({ step: "command", issued: { enrollmentId: "mine2" } });
  expect(scene.asked.filter((one) => one.startsWith("issue"))).toEqual(
    Array(2).fill('issue {"recommended":true}'),
  );
});

// inv: INV-W7
test("changing the limits revokes an unused token, and follows the node of a used one", async () => {
  await scene.withCommand();
  await scene.adding.changeLimits();
  expect(scene.state.step).toBe("form");
  expect(scene.asked.at(-1)).toBe("revoke mine");
  await scene.adding.generate({ max_active: 1, max_retained: 1 });
  // The token is used between the list and the revocation.
  scene.revoked = gone;
  const used = scene.adding.changeLimits();
  scene.list = { kind: "ok", value: list() };
  await settle();
  await used;
  expect(scene.state.step).toBe("form");

  const other = new Scene();
  await other.withCommand();
  other.list = { kind: "ok", value: list(node()) };
  await other.adding.changeLimits();
  expect(other.state.step).toBe("following");
  expect(other.count("revoke")).toBe(0);
  other.adding.close();
});

test("a closed dialog reads nothing, keeps its command, and forgets one that expired", async () => {
  await scene.withCommand();
  scene.adding.close();
  const asked = scene.asked.length;
  await vi.advanceTimersByTimeAsync(HOUR / 2);
  expect(scene.asked.length).toBe(asked);
  expect(scene.state.step).toBe("command");
  scene.adding.open();
  await settle();
  expect(scene.count("list")).toBeGreaterThan(asked - 2);
  scene.adding.close();
  await vi.advanceTimersByTimeAsync(HOUR);
  scene.list = { kind: "ok", value: list(node()) };
  scene.adding.open();
  await settle();
  await vi.advanceTimersByTimeAsync(FOLLOW_PAUSE);
  expect(scene.state.step).toBe("following");
});

test("a hidden tab asks for nothing, and its command expires when it is looked at", async () => {
  await scene.withCommand();
  scene.show(false);
  const asked = scene.asked.length;
  await vi.advanceTimersByTimeAsync(2 * HOUR);
  expect(scene.asked.length).toBe(asked);
  expect(scene.state.step).toBe("deciding");
  scene.show(true);
  await vi.advanceTimersByTimeAsync(FOLLOW_PAUSE);
  expect(scene.state.step).toBe("expired");
});

test("a command that cannot be made leaves no token and says why", async () => {
  scene.adding.open();
  await settle();
  scene.command = null;
  scene.release = null;
  await scene.adding.generate({ recommended: true });
  expect(scene.asked.at(-1)).toBe("revoke mine");
  expect(scene.state).toEqual({ step: "blocked", by: { files: "docker" } });
});

test("a node that was removed while it was followed is said to be gone", async () => {
  await scene.withCommand();
  scene.list = { kind: "ok", value: list(node()) };
  await vi.advanceTimersByTimeAsync(FOLLOW_PAUSE);
  scene.list = { kind: "ok", value: list() };
  await vi.advanceTimersByTimeAsync(FOLLOW_PAUSE);
  expect(scene.state).toMatchObject({ step: "following", gone: true });
});
