// A time as people say it, with the exact one in its title. It stays true while the page stands.

import { useEffect, useState } from "react";
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

export function Ago({ time }: { time: string | null }) {
  const now = useNow(5000);
  if (time === null) {
    return t("none");
  }
  return (
    <time dateTime={time} title={utc(parse(time))}>
      {ago(parse(time), now)}
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
