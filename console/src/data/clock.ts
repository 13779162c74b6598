// Core's time, whatever the browser's clock says: what passes is measured by a clock that nobody sets, and where it
// stands is taken from the `Date` of every answer (console.md section 2, INV-W22).
//
// A `Date` is a second that began before it was sent, at some moment between the request and its answer, so each answer
// bounds Core's time from both sides and a slow one bounds it loosely. What is told is the earliest that every answer
// allows: never ahead of Core's time, so that nothing is taken for over before it is (INV-W6), and never going back while
// Core's own clock does not.

/** How far two clocks that nobody sets may run apart: milliseconds a millisecond. */
const DRIFT = 1e-4;

/** Core's time when the monotonic clock was zero: the bounds, and what is told; `at` the monotonic time of the last answer. */
interface Known {
  low: number;
  high: number;
  told: number;
  at: number;
}

export class ServerClock {
  private known: Known | undefined;

  /** `monotonic` counts milliseconds and is never set. */
  constructor(private readonly monotonic: () => number) {}

  /** Notes an answer's `Date`, which is cut to whole seconds, for a request that took from `began` to `ended`. */
  observe(date: string | null, began: number, ended: number): void {
    const said = date === null ? Number.NaN : Date.parse(date);
    if (Number.isNaN(said)) {
      return;
    }
    const alone = { low: said - ended, high: said + 1000 - began };
    const { known } = this;
    const drift = known === undefined ? 0 : Math.max(ended - known.at, 0) * DRIFT;
    const low = Math.max(alone.low, (known?.low ?? alone.low) - drift);
    const high = Math.min(alone.high, (known?.high ?? alone.high) + drift);
    if (known === undefined || low > high) {
      // The first; or Core's clock was set, or this one stood still with its machine, and what was known is over.
      this.known = { ...alone, told: alone.low, at: ended };
    } else {
      this.known = { low, high, told: Math.min(Math.max(known.told, low), high), at: ended };
    }
  }

  /** Core's time in milliseconds; before the first answer the browser's. */
  now(): number {
    return this.known === undefined ? Date.now() : this.known.told + this.monotonic();
  }
}
