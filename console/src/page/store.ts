// What the pages show: one resource each, and the session they are read in.

import { useEffect, useState, useSyncExternalStore } from "react";
import { AddNode, type View } from "../adding/add-node.ts";
import { api, ask, clock, monotonic, onSignedOut } from "../api/client.ts";
import { type ReleaseIndex, type RuntimeOffer, readIndex, readRuntime } from "../api/release.ts";
import type { Allocation, CleanUpCommands, Deployment, NodeDetail, Nodes, Range } from "../api/types.ts";
import type { Answer } from "../data/answer.ts";
import { type Interval, Resource, type Snapshot, type Surroundings, type Tab } from "../data/resource.ts";

/** Whoever reads for as long as somebody looks. */
const readers = new Set<() => void>();
export const tab: Tab = {
  visible: () => document.visibilityState === "visible",
  onChange(callback) {
    readers.add(callback);
    document.addEventListener("visibilitychange", callback);
    window.addEventListener("focus", callback);
    return () => {
      readers.delete(callback);
      document.removeEventListener("visibilitychange", callback);
      window.removeEventListener("focus", callback);
    };
  },
};
const around: Surroundings = { tab, now: () => clock.now(), monotonic };

export const LIST_PAUSE = 10_000;
export const DETAIL_PAUSE = 15_000;
const ROLLOUT_PAUSE = 5000;

export const deployment = new Resource<Deployment>(() => ask(api.GET("/core/v1/sandbox/deployment")), around);

/** The deployment is polled only while it changes by itself (INV-W16). */
export const whileChanging: Interval<Deployment> = (value) =>
  value && (value.reset !== null || value.rollout.state === "preparing") ? ROLLOUT_PAUSE : null;

export const nodes = new Resource<Nodes>(
  (tag) =>
    ask(api.GET("/core/v1/sandbox/nodes", { headers: tag === undefined ? {} : { "if-none-match": tag } })),
  around,
);

/** A document of the current release; null without one, lost when it is of no form that is known here. */
async function released<T>(
  request: Parameters<typeof ask<unknown>>[0],
  read: (document: unknown) => T | undefined,
): Promise<Answer<T | null>> {
  const answer = await ask<unknown>(request);
  if (answer.kind === "refused" && answer.status === 404) {
    return { kind: "ok", value: null };
  }
  if (answer.kind !== "ok") {
    return answer;
  }
  const value = read(answer.value);
  return value === undefined ? { kind: "lost" } : { kind: "ok", value };
}

/** What this Core serves to hosts; null without a current release. */
export const release = new Resource<ReleaseIndex | null>(
  () => released(api.GET("/api/v1/sandbox-node/install/index.json"), readIndex),
  around,
);

/** The Runtime that a new selection takes; null without a current release. */
export const runtimeOffer = new Resource<RuntimeOffer | null>(
  () => released(api.GET("/api/v1/sandbox-node/install/manifest.json"), readRuntime),
  around,
);

/** The commands that give a host back. */
export const cleanUpCommands = new Resource<CleanUpCommands>(
  () => ask(api.GET("/core/v1/sandbox/cleanup-commands")),
  around,
);

/** The node that is being added: one at a time, whichever page its dialog is opened from. */
export const addNode = new AddNode({
  deployment,
  release,
  nodesOf: (enrollmentId) =>
    new Resource<Nodes>(
      () => ask(api.GET("/core/v1/sandbox/nodes", { params: { query: { enrollment_id: enrollmentId } } })),
      around,
    ),
  issue: (limits) => ask(api.POST("/core/v1/sandbox/enrollment-tokens", { body: limits })),
  revoke: (enrollmentId) =>
    ask(
      api.DELETE("/core/v1/sandbox/enrollment-tokens/{enrollment_id}", {
        params: { path: { enrollment_id: enrollmentId } },
      }),
    ),
  tab,
  now: () => clock.now(),
});

export function useAddNode(): View {
  return useSyncExternalStore(addNode.subscribe, addNode.get);
}

export function nodeDetail(id: string, range: () => Range): Resource<NodeDetail> {
  return new Resource<NodeDetail>(
    () =>
      ask(
        api.GET("/core/v1/sandbox/nodes/{node_id}", {
          params: { path: { node_id: id }, query: { range: range() } },
        }),
      ),
    around,
  );
}

export interface AllocationPages {
  data: Allocation[];
  next: string | null;
}

/** The first `pages()` pages of a node's sandboxes, read anew each time, so that what is shown is of one moment. */
export function nodeAllocations(id: string, pages: () => number): Resource<AllocationPages> {
  return new Resource<AllocationPages>(async () => {
    const shown: AllocationPages = { data: [], next: null };
    for (let page = 0; page < pages(); page += 1) {
      const query = shown.next === null ? {} : { cursor: shown.next };
      const answer: Answer<AllocationPages> = await ask(
        api.GET("/core/v1/sandbox/nodes/{node_id}/allocations", {
          params: { path: { node_id: id }, query },
        }),
      );
      if (answer.kind !== "ok") {
        return answer;
      }
      shown.data.push(...answer.value.data);
      shown.next = answer.value.next;
      if (shown.next === null) {
        break;
      }
    }
    return { kind: "ok", value: shown };
  }, around);
}

export function useSnapshot<T>(resource: Resource<T>): Snapshot<T> {
  return useSyncExternalStore(resource.subscribe, resource.get);
}

/** Shows `resource` and keeps it read while the component is there. `interval` is one function for its life. */
export function useResource<T>(resource: Resource<T>, interval: Interval<T>): Snapshot<T> {
  useEffect(() => resource.watch(interval), [resource, interval]);
  return useSnapshot(resource);
}

/** What was read since the component is there; nothing before. Read on opening and on the window's focus. */
export function useFresh<T>(resource: Resource<T>): Snapshot<T> | undefined {
  const [came, setCame] = useState(false);
  useEffect(() => {
    const leave = resource.watch(never);
    void resource.refresh().then(() => setCame(true));
    return leave;
  }, [resource]);
  const snapshot = useSnapshot(resource);
  return came ? snapshot : undefined;
}

/** Read on opening, on the window's focus and after a write. */
export const never = (): null => null;
export const everyTen = (): number => LIST_PAUSE;
export const everyFifteen = (): number => DETAIL_PAUSE;

/** Whether somebody is signed in: not known before the first answer. */
export type Session = "unknown" | "in" | "out" | "ended";

let session: Session = "unknown";
const listeners = new Set<() => void>();

function setSession(next: Session): void {
  if (next !== session) {
    session = next;
    for (const listener of listeners) {
      listener();
    }
  }
}

onSignedOut(() => setSession(session === "in" || session === "ended" ? "ended" : "out"));
deployment.subscribe(() => {
  if (deployment.get().failure === undefined) {
    setSession("in");
  }
});

export function useSession(): Session {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => session,
  );
}

export async function signIn(key: string): Promise<Answer<unknown>> {
  const answer = await ask(api.POST("/core/v1/console/session", { body: { core_key: key } }), true);
  if (answer.kind === "ok") {
    setSession("in");
    void deployment.written();
    void nodes.written();
    // Whatever else was refused meanwhile is read as if somebody looked again.
    for (const read of [...readers]) {
      read();
    }
  }
  return answer;
}

/** Leaves by loading the page anew: nothing of what was read or typed stays in its memory. */
export async function signOut(): Promise<Answer<unknown>> {
  const answer = await ask(api.DELETE("/core/v1/console/session"), true);
  if (answer.kind === "ok") {
    window.location.assign("/sign-in");
  }
  return answer;
}
