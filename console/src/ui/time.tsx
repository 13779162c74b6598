// A time as people say it, with the exact one in its title. It stays true while the page stands.

import { useEffect, useState, useSyncExternalStore } from "react";
import { clock } from "../api/client.ts";
import { ago, moment, parse, utc } from "../format/format.ts";
import { t } from "../text/text.ts";

/** Core's time, renewed every `pause` milliseconds. */
export function useNow(pause: number): number {
  const [now, setNow] = useState(() => clock.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(clock.now()), pause);
    return () => clearInterval(timer);
  }, [pause]);
  return now;
}

/** Between two looks at what a time is called, which no text counts finer than in minutes. */
const LOOK = 15_000;
const lookers = new Set<() => void>();
let looking: ReturnType<typeof setInterval> | undefined;

function look(again: () => void): () => void {
  lookers.add(again);
  looking ??= setInterval(() => {
    for (const one of lookers) {
      one();
    }
  }, LOOK);
  return () => {
    lookers.delete(again);
    if (lookers.size === 0) {
      clearInterval(looking);
      looking = undefined;
    }
  };
}

/**
 * A text that depends on Core's time. One timer looks at all of them, and only what reads differently is drawn anew: a
 * list of hundreds of nodes costs nothing while nothing changes.
 */
export function useLive<T extends string | undefined>(text: (now: number) => T): T {
  return useSyncExternalStore(look, () => text(clock.now()));
}

export function Ago({ time }: { time: string | null }) {
  return time === null ? t("none") : <Passed time={time} />;
}

function Passed({ time }: { time: string }) {
  const text = useLive((now) => ago(parse(time), now));
  return (
    <time dateTime={time} title={utc(parse(time))}>
      {text}
    </time>
  );
}

export function Moment({ time }: { time: string }) {
  return (
    <time dateTime={time} title={utc(parse(time))}>
      {moment(parse(time))}
    </time>
  );
}
