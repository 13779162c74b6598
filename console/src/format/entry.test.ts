import { expect, test } from "vitest";
import { isName, labelLines, labels, wholeNumber } from "./entry.ts";

test("only a whole number in its range is one", () => {
  expect(wholeNumber(" 42 ", 1, 100)).toBe(42);
  for (const text of ["", "0", "101", "1.5", "-1", "1e2", "1,000", "٣", "0x10", "9".repeat(30)]) {
    expect(wholeNumber(text, 1, 100)).toBeUndefined();
  }
});

test("a name is 1 to 128 bytes and not blank", () => {
  expect(isName("a".repeat(128)) && isName("ä".repeat(64))).toBe(true);
  expect(isName("") || isName("  ") || isName("ä".repeat(65))).toBe(false);
});

test("labels come back as they were written, and a wrong line is named", () => {
  const all = { "zone/a": "west", empty: "", "with=": "x" };
  const { "with=": _, ...good } = all;
  expect(labels(`\n${labelLines(good)}\n\nequation=a=b`)).toEqual({ labels: { ...good, equation: "a=b" } });
  for (const [text, line] of [
    ["a=1\nB=2", "Line 2"],
    ["no value", "Line 1"],
    [`a=${"x".repeat(64)}`, "Line 1"],
    ["=x", "Line 1"],
    ["a=1\n\na=2", "Line 3"],
  ] as const) {
    const found = labels(text);
    expect("wrong" in found && found.wrong.startsWith(line)).toBe(true);
  }
  const many = Array.from({ length: 33 }, (_, at) => `k${at}=v`).join("\n");
  expect("wrong" in labels(many)).toBe(true);
});
