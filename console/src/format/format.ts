// How numbers, sizes and times are written (console.md section 10). Times are milliseconds of Core's clock.

import { language, t } from "../text/text.ts";

const GIB = 1024 ** 3;
const oneDecimal = new Intl.NumberFormat(language, { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const whole = new Intl.NumberFormat(language, { maximumFractionDigits: 0 });
const dateTime = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "short" });
const timeOnly = new Intl.DateTimeFormat(language, { timeStyle: "short" });

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

export const gib = (bytes: number): string => t("gib", { value: oneDecimal.format(bytes / GIB) });
export const mib = (value: number): string =>
  value % 1024 === 0 ? gib(value * 1024 * 1024) : t("mib", { value });
export const percent = (ratio: number): string => t("percent", { value: whole.format(ratio * 100) });
export const parse = (time: string): number => Date.parse(time);
export const moment = (time: number): string => dateTime.format(time);
export const clockTime = (time: number): string => timeOnly.format(time);
export const utc = (time: number): string => new Date(time).toISOString().replace(/\.\d+Z$/, "Z");

/**
 * Relative up to 24 hours, then date and time. A time that seems to be ahead is now, and so is the last minute: what is
 * read every ten seconds knows no seconds, and a list that counts them never rests.
 */
export function ago(time: number, now: number): string {
  const passed = Math.max(now - time, 0);
  if (passed < MINUTE) {
    return t("time.now");
  }
  if (passed < HOUR) {
    return t("time.minutes", { count: Math.floor(passed / MINUTE) });
  }
  return passed < DAY ? t("time.hours", { count: Math.floor(passed / HOUR) }) : moment(time);
}

/** A span in its largest whole unit. */
export function span(millis: number): string {
  if (millis < MINUTE) {
    return t("time.left.soon");
  }
  if (millis < HOUR) {
    return t("time.left.minutes", { count: Math.floor(millis / MINUTE) });
  }
  return millis < DAY
    ? t("time.left.hours", { count: Math.floor(millis / HOUR) })
    : t("time.left.days", { count: Math.floor(millis / DAY) });
}

/** What a sandbox is made of. */
export function size(resources: {
  cpus: number;
  memory_mib: number;
  root_disk_mib?: number;
  environment_disk_mib?: number;
}): string {
  const known = { cpus: t("cpus", { count: resources.cpus }), memory: mib(resources.memory_mib) };
  const { root_disk_mib: root, environment_disk_mib: environment } = resources;
  return root && environment
    ? t("size.disks", { ...known, root: mib(root), environment: mib(environment) })
    : t("size", known);
}
