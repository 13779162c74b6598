// What the pages show: one resource each, and the session they are read in.

import { useEffect, useSyncExternalStore } from "react";
import { api, ask, clock, monotonic, onSignedOut } from "../api/client.ts";
import type { Allocation, Deployment, NodeDetail, Nodes, Range } from "../api/types.ts";
import type { Answer } from "../data/answer.ts";
import { type Interval, Resource, type Snapshot, type Surroundings, type Tab } from "../data/resource.ts";

const tab: Tab = {
  visible: () => document.visibilityState === "visible",
  onChange(callback) {
    document.addEventListener("visibilitychange", callback);
    window.addEventListener("focus", callback);
    return () => {
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

let tag: string | null = null;
export const nodes = new Resource<Nodes>(async (known) => {
  const headers = known !== undefined && tag !== null ? { "if-none-match": tag } : {};
  const request = api.GET("/core/v1/sandbox/nodes", { headers });
  const answer = await ask(request);
  if (answer.kind === "ok") {
    tag = (await request).response.headers.get("etag");
  }
  return answer;
}, around);

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
