// One thing that is read from Core again and again (console.md section 2).
//
// Guarantees: one request at a time; an answer whose request began before a later write, or before a newer answer, is
// dropped; a failed read doubles the interval up to 30 s and honours Retry-After; a hidden tab reads nothing and reads at
// once when it becomes visible. What was read stays, and says when it is stale. Whoever shows it subscribes; whoever
// needs it fresh watches it.

import type { Answer, Failure } from "./answer.ts";
import { share } from "./share.ts";

/** Data that came no younger than this, while it is polled in a visible tab, is stale. */
export const STALE_AFTER = 30_000;
/** The longest pause between two reads of what is polled. */
export const LONGEST_PAUSE = 30_000;

export interface Snapshot<T> {
  /** What did not change since an earlier read is the same object. */
  value: T | undefined;
  /** The clock's time when the request of `value` began; undefined before the first answer. */
  at: number | undefined;
  stale: boolean;
  /** Why the last read brought nothing; undefined after one that did. */
  failure: Failure | undefined;
}

/** The tab, as far as reading goes. */
export interface Tab {
  visible(): boolean;
  /** Calls back when the tab becomes visible or gets the focus, and when it is hidden. */
  onChange(callback: () => void): () => void;
}

export interface Surroundings {
  tab: Tab;
  /** Core's time. */
  now(): number;
  /** Milliseconds on a clock that is never set. */
  monotonic(): number;
}

/** Milliseconds until the next read, by what was read last; null for none by itself. */
export type Interval<T> = (value: T | undefined) => number | null;

interface Flight {
  /** Whether it was asked for yet: a write before that is no reason for another. */
  begun: boolean;
  /** What makes its answer too old. */
  next: Flight | undefined;
  answered: Promise<void>;
  /** Once it, or what made it too old, was answered and kept. */
  ended: Promise<void>;
}

export class Resource<T> {
  private snapshot: Snapshot<T> = { value: undefined, at: undefined, stale: false, failure: undefined };
  private readonly listeners = new Set<() => void>();
  private readonly watchers = new Set<Interval<T>>();
  /** The read that counts; one that a write came after is under way without being this. */
  private flight: Flight | undefined;
  /** Of the value that is kept, and never of one that was dropped. */
  private tag: string | undefined;
  private failures = 0;
  private asked: number | undefined;
  private broughtAt: number;
  private readTimer: ReturnType<typeof setTimeout> | undefined;
  private staleTimer: ReturnType<typeof setTimeout> | undefined;
  private leaveTab: (() => void) | undefined;

  constructor(
    /** Is given the tag of the value that is kept, if it has one: an answer to that may be that it still stands. */
    private readonly request: (tag: string | undefined) => Promise<Answer<T>>,
    private readonly around: Surroundings,
  ) {
    this.broughtAt = around.monotonic();
  }

  get = (): Snapshot<T> => this.snapshot;

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  /** Reads now and keeps reading until the returned function is called. */
  watch(interval: Interval<T>): () => void {
    this.watchers.add(interval);
    if (this.watchers.size === 1) {
      this.broughtAt = this.around.monotonic();
      this.leaveTab = this.around.tab.onChange(() => this.tabChanged());
    }
    if (this.around.tab.visible()) {
      void this.refresh();
    }
    return () => {
      this.watchers.delete(interval);
      if (this.watchers.size === 0) {
        this.leaveTab?.();
        this.stopTimers();
      } else {
        this.plan();
      }
    };
  }

  /** Resolves once a value came, or failed to come, of the read under way or of one that begins now. */
  refresh(): Promise<void> {
    return this.flight?.ended ?? this.begin(undefined);
  }

  /**
   * Something was written that this shows: what is under way is older than that, and another read follows it. Resolves
   * once a value of a read that began later came, or failed to come.
   */
  written(): Promise<void> {
    const { flight } = this;
    return flight !== undefined && !flight.begun ? flight.ended : this.begin(flight);
  }

  /** Whoever waits for `before`, whose answer is dropped, waits for this one's. */
  private begin(before: Flight | undefined): Promise<void> {
    clearTimeout(this.readTimer);
    const flight: Flight = {
      begun: false,
      next: undefined,
      answered: Promise.resolve(),
      ended: Promise.resolve(),
    };
    flight.answered = (before?.answered ?? Promise.resolve()).then(() => this.read(flight));
    flight.ended = flight.answered.then(() => flight.next?.ended);
    if (before !== undefined) {
      before.next = flight;
    }
    this.flight = flight;
    return flight.ended;
  }

  private async read(flight: Flight): Promise<void> {
    flight.begun = true;
    const at = this.around.now();
    const answer = await this.request(this.tag);
    if (flight.next !== undefined) {
      return;
    }
    this.flight = undefined;
    if (answer.kind === "ok" || answer.kind === "unchanged") {
      let { value } = this.snapshot;
      if (answer.kind === "ok") {
        value = share(value, answer.value);
        this.tag = answer.tag;
      }
      this.failures = 0;
      this.asked = undefined;
      this.broughtAt = this.around.monotonic();
      this.set({ value, at, stale: false, failure: undefined });
    } else {
      this.failures += 1;
      this.asked = answer.kind === "refused" ? answer.retryAfter : undefined;
      this.set({ ...this.snapshot, stale: true, failure: answer });
    }
    this.plan();
  }

  private set(snapshot: Snapshot<T>): void {
    this.snapshot = snapshot;
    for (const listener of this.listeners) {
      listener();
    }
  }

  private stopTimers(): void {
    clearTimeout(this.readTimer);
    clearTimeout(this.staleTimer);
  }

  /** The pause that the most demanding watcher wants; after a failure there is always a next read. */
  private pause(): number | null {
    const wanted = [...this.watchers]
      .map((interval) => interval(this.snapshot.value))
      .filter((pause) => pause !== null);
    const base = wanted.length > 0 ? Math.min(...wanted) : null;
    if (this.failures === 0) {
      return base;
    }
    // Nobody is signed in: a sign-in reads again.
    if (this.snapshot.failure?.kind === "refused" && this.snapshot.failure.status === 401) {
      return null;
    }
    const doubled = Math.min((base ?? 5000) * 2 ** Math.min(this.failures, 10), LONGEST_PAUSE);
    return Math.max(doubled, this.asked ?? 0);
  }

  private plan(): void {
    this.stopTimers();
    if (this.watchers.size === 0 || !this.around.tab.visible()) {
      return;
    }
    const pause = this.pause();
    if (pause === null) {
      return;
    }
    if (this.flight === undefined) {
      this.readTimer = setTimeout(() => void this.refresh(), pause);
    }
    const left = this.broughtAt + STALE_AFTER - this.around.monotonic();
    this.staleTimer = setTimeout(
      () => {
        if (this.snapshot.at !== undefined && !this.snapshot.stale) {
          this.set({ ...this.snapshot, stale: true });
        }
      },
      Math.max(left, 0),
    );
  }

  private tabChanged(): void {
    if (!this.around.tab.visible()) {
      this.stopTimers();
      return;
    }
    // While it was hidden nothing was asked for, so nothing is late.
    this.broughtAt = Math.max(this.broughtAt, this.around.monotonic() - STALE_AFTER / 2);
    void this.refresh();
    this.plan();
  }
}
