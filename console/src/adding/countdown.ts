// The time that a command has left (console.md section 5).

/**
 * Core's time is known to a second, so a command counts as expired only when it surely is (INV-W6). What is shown of the
 * time left ends at 0:01; 0:00 is for what has expired.
 */
export const SURELY = 1000;

export function hasExpired(expiresAt: number, now: number): boolean {
  return now >= expiresAt + SURELY;
}

/** Seconds to show, rounded up. */
export function secondsLeft(expiresAt: number, now: number): number {
  return hasExpired(expiresAt, now) ? 0 : Math.max(Math.ceil((expiresAt - now) / 1000), 1);
}

/** `m:ss`, from one hour `h:mm:ss`. */
export function countdown(seconds: number): string {
  const two = (part: number) => String(part).padStart(2, "0");
  const [hours, minutes, rest] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  return hours > 0 ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

const SPOKEN = [1, 5, 10];

/** The minutes to speak of, once fewer than so many are left; none while there is plenty. */
export function spoken(seconds: number): number | undefined {
  return seconds > 0 ? SPOKEN.find((minutes) => seconds <= minutes * 60) : undefined;
}
