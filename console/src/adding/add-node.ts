// Adding one node (console.md section 5). What was generated outlives the dialog that shows it, and is forgotten with the
// page: the command, with the token in it, is in this memory and nowhere else.
//
// | step | leaves to |
// | --- | --- |
// | checking | blocked, form |
// | blocked | checking |
// | form | issuing |
// | issuing | command; form with the failure |
// | command | following; deciding when it has expired; form, its token revoked |
// | deciding | following; expired by a list that was asked for after the command had expired |
// | expired | following; issuing; form |
// | following | done |
// | done | checking |
//
// Only a fresh list decides. Whichever of command, deciding and expired stands, a node of the command's own token is
// followed, so no command that registered one shows as expired (INV-W5, INV-W6, INV-W7).

import type { ReleaseIndex } from "../api/release.ts";
import type { Deployment, Node, Nodes } from "../api/types.ts";
import { type Answer, type Failure, ofWrite } from "../data/answer.ts";
import type { Resource, Snapshot, Tab } from "../data/resource.ts";
import { parse } from "../format/format.ts";
import { type Blocker, blocker } from "./blocker.ts";
import { hasExpired, SURELY } from "./countdown.ts";
import { further, type Stage, stageOf } from "./progress.ts";

/** Between two reads of the list while the dialog is open. */
export const FOLLOW_PAUSE = 3000;

export type Limits = { recommended: true } | { max_active: number; max_retained: number };

export interface Issued {
  enrollmentId: string;
  command: string;
  /** Core's time. */
  expiresAt: number;
  limits: Limits;
}

export type Adding =
  | { step: "checking"; was: Blocker | undefined }
  | { step: "blocked"; by: Blocker }
  | { step: "form"; failure?: Failure | undefined }
  | { step: "issuing" }
  | { step: "command"; issued: Issued; busy?: boolean; failure?: Failure | undefined }
  | { step: "deciding"; issued: Issued }
  | { step: "expired"; issued: Issued; busy?: boolean; failure?: Failure | undefined }
  | { step: "following"; issued: Issued; node: Node; reached: Stage; gone: boolean }
  | { step: "done"; node: Node };

/** What a fresh list, asked for at `at`, says of the command that stands. */
export function seen(state: Adding, list: Nodes, at: number): Adding {
  switch (state.step) {
    case "command":
    case "deciding":
    case "expired": {
      const node = nodeOf(state.issued, list);
      if (node !== undefined) {
        return followed(state.issued, node, "registered");
      }
      const decides = state.step === "deciding" && hasExpired(state.issued.expiresAt, at);
      return decides ? { step: "expired", issued: state.issued } : state;
    }
    case "following": {
      const node = nodeOf(state.issued, list);
      return node === undefined ? { ...state, gone: true } : followed(state.issued, node, state.reached);
    }
    default:
      return state;
  }
}

/** The command that stands has run out, unless a list says otherwise. */
export function ticked(state: Adding, now: number): Adding {
  return state.step === "command" && hasExpired(state.issued.expiresAt, now)
    ? { step: "deciding", issued: state.issued }
    : state;
}

function nodeOf(issued: Issued, list: Nodes): Node | undefined {
  return list.data.find((node) => node.enrollment_id === issued.enrollmentId);
}

function followed(issued: Issued, node: Node, reached: Stage): Adding {
  const stage = stageOf(node);
  return stage === "ready"
    ? { step: "done", node }
    : { step: "following", issued, node, reached: further(reached, stage), gone: false };
}

/** The Core that nodes are added to. */
export interface Counterpart {
  deployment: Resource<Deployment>;
  release: Resource<ReleaseIndex | null>;
  /** The nodes of one token: one or none. */
  nodesOf(enrollmentId: string): Resource<Nodes>;
  issue(
    limits: Limits,
  ): Promise<Answer<{ enrollment_id: string; expires_at: string; command: string | null }>>;
  revoke(enrollmentId: string): Promise<Answer<unknown>>;
  tab: Tab;
  now(): number;
}

/** What was typed into the form; it stays until the page is loaded anew. */
export interface Typed {
  custom: boolean;
  active: string;
  retained: string;
}

export interface View {
  state: Adding;
  typed: Typed;
  /** The list that is followed; none before there is a command. */
  list: Snapshot<Nodes> | undefined;
}

export class AddNode {
  private view: View = {
    state: { step: "checking", was: undefined },
    typed: { custom: false, active: "2", retained: "8" },
    list: undefined,
  };
  private readonly listeners = new Set<() => void>();
  private list: Resource<Nodes> | undefined;
  private leaveTab: (() => void) | undefined;
  private leaveList: (() => void) | undefined;
  private expiry: ReturnType<typeof setTimeout> | undefined;
  private checks = 0;

  constructor(private readonly core: Counterpart) {}

  get = (): View => this.view;

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  /** The dialog opens: over the command that stands, or over a fresh check. */
  open(): void {
    this.leaveTab = this.core.tab.onChange(() => {
      if (this.core.tab.visible() && this.view.state.step === "blocked") {
        void this.check();
      }
      this.tick();
    });
    switch (this.view.state.step) {
      case "command":
      case "deciding":
      case "following":
        this.tick();
        this.watch();
        break;
      case "issuing":
        break;
      default:
        void this.check();
    }
  }

  /** The dialog closes. What stands stays, and nothing is read. */
  close(): void {
    this.stopReading();
    this.leaveTab?.();
    this.leaveTab = undefined;
  }

  type(typed: Partial<Typed>): void {
    this.show({ ...this.view, typed: { ...this.view.typed, ...typed } });
  }

  /** Reads what adding a node needs. */
  async check(): Promise<void> {
    this.checks += 1;
    const mine = this.checks;
    const { state } = this.view;
    this.forget();
    this.set({ step: "checking", was: state.step === "blocked" ? state.by : undefined });
    const { deployment, release } = this.core;
    await Promise.all([deployment.written(), release.written()]);
    if (mine !== this.checks) {
      return;
    }
    const by = blocker({ deployment: fresh(deployment.get()), release: fresh(release.get()) });
    this.set(by === undefined ? { step: "form" } : { step: "blocked", by });
  }

  /** Reads the list now. */
  again(): void {
    void this.list?.refresh();
  }

  async generate(limits: Limits): Promise<void> {
    if (this.view.state.step !== "form") {
      return;
    }
    await this.issue(limits);
  }

  /** Another command with the same limits, unless the one that expired registered a node. */
  async renew(): Promise<void> {
    const issued = await this.unused();
    if (issued !== undefined) {
      await this.issue(issued.limits);
    }
  }

  /** Back to the form, the token revoked, unless it registered a node. */
  async changeLimits(): Promise<void> {
    const issued = await this.unused();
    if (issued === undefined) {
      return;
    }
    const answer = ofWrite(await this.core.revoke(issued.enrollmentId));
    if (answer.kind === "lost") {
      this.fail(answer);
    } else if (answer.kind === "refused" && answer.status !== 404) {
      this.fail(answer);
    } else if (answer.kind === "refused" && (await this.unused()) === undefined) {
      // It was used between the two.
      return;
    } else {
      this.forget();
      this.set({ step: "form" });
    }
  }

  /** What stands, once a list that was asked for now shows that it registered no node. */
  private async unused(): Promise<Issued | undefined> {
    const { state } = this.view;
    if ((state.step !== "command" && state.step !== "expired") || this.list === undefined) {
      return undefined;
    }
    this.set({ ...state, busy: true, failure: undefined });
    const { list } = this;
    await list.written();
    const { failure } = list.get();
    if (failure !== undefined) {
      this.fail(failure);
      return undefined;
    }
    this.took(list);
    const now = this.view.state;
    if (now.step === "following") {
      this.watch();
    }
    return now.step === "command" || now.step === "expired" || now.step === "deciding"
      ? now.issued
      : undefined;
  }

  private fail(failure: Failure): void {
    const { state } = this.view;
    if (state.step === "command" || state.step === "expired") {
      this.set({ ...state, busy: false, failure });
    }
  }

  private async issue(limits: Limits): Promise<void> {
    this.forget();
    this.set({ step: "issuing" });
    const answer = ofWrite(await this.core.issue(limits));
    if (answer.kind === "unchanged") {
      return;
    }
    if (answer.kind !== "ok") {
      this.set({ step: "form", failure: answer });
      return;
    }
    const { enrollment_id: enrollmentId, expires_at, command } = answer.value;
    if (command === null) {
      // The files went away meanwhile: the check says which.
      void this.core.revoke(enrollmentId);
      await this.check();
      return;
    }
    const issued = { enrollmentId, command, expiresAt: parse(expires_at), limits };
    this.list = this.core.nodesOf(enrollmentId);
    this.set({ step: "command", issued });
    if (this.leaveTab !== undefined) {
      this.tick();
      this.watch();
    }
  }

  /** Reads the list while the dialog is open, as often as is worth it. */
  private watch(): void {
    const { list } = this;
    if (list === undefined || this.leaveList !== undefined || this.leaveTab === undefined) {
      return;
    }
    const leave = [list.subscribe(() => this.took(list)), list.watch(() => FOLLOW_PAUSE)];
    this.leaveList = () => {
      for (const one of leave) {
        one();
      }
    };
  }

  private took(list: Resource<Nodes>): void {
    if (list !== this.list) {
      return;
    }
    const snapshot = list.get();
    const { value, at, stale } = snapshot;
    const { state } = this.view;
    const next = stale || value === undefined || at === undefined ? state : seen(state, value, at);
    this.show({ ...this.view, state: next, list: snapshot });
    if (next.step === "done" || next.step === "expired") {
      this.stopReading();
    } else {
      this.tick();
    }
  }

  /** Notices the moment of expiry, and asks for the list that decides. */
  private tick(): void {
    clearTimeout(this.expiry);
    const { state } = this.view;
    if (state.step !== "command") {
      return;
    }
    const now = this.core.now();
    const next = ticked(state, now);
    if (next === state) {
      const left = state.issued.expiresAt + SURELY - now;
      this.expiry = setTimeout(() => this.tick(), Math.max(left, 100));
      return;
    }
    this.set(next);
    if (this.core.tab.visible()) {
      void this.list?.written();
    }
  }

  private stopReading(): void {
    clearTimeout(this.expiry);
    this.leaveList?.();
    this.leaveList = undefined;
  }

  private forget(): void {
    this.stopReading();
    this.list = undefined;
    this.show({ ...this.view, list: undefined });
  }

  private set(state: Adding): void {
    this.show({ ...this.view, state });
  }

  private show(view: View): void {
    this.view = view;
    for (const listener of this.listeners) {
      listener();
    }
  }
}

/** What the last read brought; nothing when it brought nothing. */
function fresh<T>(snapshot: Snapshot<T>): T | undefined {
  return snapshot.failure === undefined ? snapshot.value : undefined;
}
