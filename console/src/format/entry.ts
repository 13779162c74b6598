// What people type, checked before it is sent.

import { t } from "../text/text.ts";

/** The whole number that `text` is, if it lies in the range. */
export function wholeNumber(text: string, min: number, max: number): number | undefined {
  const trimmed = text.trim();
  if (!/^\d{1,12}$/.test(trimmed)) {
    return undefined;
  }
  const value = Number(trimmed);
  return value >= min && value <= max ? value : undefined;
}

export const CAPACITY_MAX = 1_000_000;
const NAME_BYTES = 128;

const bytes = (text: string): number => new TextEncoder().encode(text).length;

export function isName(text: string): boolean {
  return text.trim() !== "" && bytes(text) <= NAME_BYTES;
}

const LABELS = 32;

/** Labels written one to a line; or what is wrong with which line (core.md section 15). */
export function labels(text: string): { labels: Record<string, string> } | { wrong: string } {
  const found: Record<string, string> = Object.create(null);
  for (const [at, line] of text.split("\n").entries()) {
    if (line.trim() === "") {
      continue;
    }
    const [key = "", ...rest] = line.trim().split("=");
    const value = rest.join("=");
    const fits =
      /^[a-z0-9][a-z0-9._/-]{0,62}$/.test(key) &&
      rest.length > 0 &&
      bytes(value) <= 63 &&
      !/\p{Cc}/u.test(value);
    if (!fits) {
      return { wrong: t("labels.wrong", { line: at + 1 }) };
    }
    if (Object.hasOwn(found, key)) {
      return { wrong: t("labels.twice", { line: at + 1, key }) };
    }
    found[key] = value;
  }
  return Object.keys(found).length > LABELS ? { wrong: t("labels.many") } : { labels: found };
}

/** As they are edited. */
export function labelLines(all: Record<string, string>): string {
  return Object.entries(all)
    .map(([key, value]) => `${key}=${value}`)
    .join("\n");
}
