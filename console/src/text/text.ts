// Looks up a text and fills it in. A missing key does not compile; a missing value shows its name, which a test refuses.

import { en, type Key } from "./en.ts";

export type Values = Record<string, string | number>;
export type { Key };

export const language = "en";
const plural = new Intl.PluralRules(language);
const number = new Intl.NumberFormat(language);

/** The text of `key`, its places filled with `values`; numbers as the language writes them. */
export function t(key: Key, values: Values = {}): string {
  return en[key].replace(/\{(\w+)(?:\|([^|}]*)\|([^|}]*))?\}/g, (whole, name: string, one, other) => {
    const value = values[name];
    if (value === undefined) {
      return whole;
    }
    if (one === undefined) {
      return shown(value);
    }
    const form: string = plural.select(Number(value)) === "one" ? one : other;
    return form.replace("#", shown(value));
  });
}

function shown(value: string | number): string {
  return typeof value === "number" ? number.format(value) : value;
}

const list = new Intl.ListFormat(language);

/** Several names as one text. */
export const listed = (names: string[]): string => list.format(names);
