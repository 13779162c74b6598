// Core's time, whatever the browser's clock says: what passes is measured by a clock that nobody sets, and where it
// stands is taken from the `Date` of every answer (console.md section 2, INV-W22).

export class ServerClock {
  /** Core's time when the monotonic clock was zero; undefined before the first answer. */
  private zero: number | undefined;

  /** `monotonic` counts milliseconds and is never set. */
  constructor(private readonly monotonic: () => number) {}

  /** Notes an answer's `Date`, which is cut to whole seconds, for a request that took from `began` to `ended`. */
  observe(date: string | null, began: number, ended: number): void {
    const said = date === null ? Number.NaN : Date.parse(date);
    if (!Number.isNaN(said)) {
      this.zero = said + 500 - (began + ended) / 2;
    }
  }

  /** Core's time in milliseconds; before the first answer the browser's. */
  now(): number {
    return this.zero === undefined ? Date.now() : this.zero + this.monotonic();
  }
}
