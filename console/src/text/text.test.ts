import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";
import { expect, test } from "vitest";
import { en, type Key } from "./en.ts";
import { t } from "./text.ts";

const SOURCES = join(import.meta.dirname, "..");
/** Attributes that people see or hear. */
const SHOWN = ["aria-label", "title", "label", "placeholder", "alt", "caption", "hint", "text", "submit"];

/** Texts that a component writes itself instead of taking them from the catalogue. */
function ownTexts(file: string, text: string): string[] {
  const found: string[] = [];
  const letters = (part: string) => /\p{L}{2,}/u.test(part);
  const visit = (node: ts.Node): void => {
    if (ts.isJsxText(node) && letters(node.text)) {
      found.push(node.text.trim());
    }
    if (ts.isJsxAttribute(node) && node.initializer && ts.isStringLiteral(node.initializer)) {
      const name = node.name.getText();
      if (SHOWN.includes(name) && letters(node.initializer.text) && !(node.initializer.text in en)) {
        found.push(`${name}: ${node.initializer.text}`);
      }
    }
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true, ts.ScriptKind.TSX));
  return found;
}

const sources = () =>
  readdirSync(SOURCES, { recursive: true, encoding: "utf8" }).filter((name) => /\.tsx?$/.test(name));

test("every text of the catalogue is used", () => {
  const files = sources().filter((name) => !/(^|\/)(en|schema)\.ts$|\.test\.ts$/.test(name));
  const all = files.map((file) => readFileSync(join(SOURCES, file), "utf8")).join("\n");
  const begun = [...all.matchAll(/`([a-zA-Z_]+\.(?:[\w.]+\.)?)\$\{/g)].map(([, start]) => start as string);
  const unused = Object.keys(en).filter(
    (key) => !all.includes(`"${key}"`) && !begun.some((start) => key.startsWith(start)),
  );
  expect(unused).toEqual([]);
});

// inv: INV-W23
test("no component has a text of its own", () => {
  const files = sources().filter((name) => name.endsWith(".tsx"));
  expect(files.length).toBeGreaterThan(20);
  for (const file of files) {
    expect(ownTexts(file, readFileSync(join(SOURCES, file), "utf8")), file).toEqual([]);
  }
  expect(ownTexts("a.tsx", '<p title="Some text">Hello</p>')).toEqual(["title: Some text", "Hello"]);
});

test("a text is filled in, its plural chosen by number", () => {
  expect(t("time.minutes", { count: 1 })).toBe("1 minute ago");
  expect(t("time.minutes", { count: 2 })).toBe("2 minutes ago");
  expect(t("bound.range", { min: 60, max: 604_800 })).toBe("Enter 60 to 604,800.");
});

test("every place of every text is one that can be filled in", () => {
  for (const key of Object.keys(en) as Key[]) {
    const names = [...en[key].matchAll(/\{(\w+)/g)].map(([, name]) => name ?? "");
    const filled = t(key, Object.fromEntries(names.map((name) => [name, 1])));
    expect(filled, key).not.toMatch(/[{}|]/);
  }
});
