// One browser for all tests of a file, and what a person does in it.

import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { expect } from "vitest";
import type { Core } from "./core.ts";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
/** Where pictures go when somebody wants to look at them. */
const pictures = process.env.OAC_CONSOLE_PICTURES;

export function launch(): Promise<Browser> {
  return chromium.launch({
    executablePath: process.env.OAC_TEST_CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox"],
  });
}

/** A browser of one person, on `core`. */
export async function open(browser: Browser, core: Core, options: object = {}): Promise<Page> {
  const context: BrowserContext = await browser.newContext({ baseURL: core.url, ...options });
  context.setDefaultTimeout(20_000);
  return context.newPage();
}

export async function signIn(page: Page, core: Core, path = "/"): Promise<void> {
  await page.goto(path);
  await page.getByLabel("Core key").fill(core.key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("navigation", { name: "Navigation" }).waitFor();
}

export const SCHEMES = ["light", "dark"] as const;
export const WIDTHS = { wide: 1280, narrow: 320 } as const;

/** In both schemes and both widths: nothing for a machine to find fault with, nothing wider than the window. */
export async function isClean(page: Page, name: string): Promise<void> {
  for (const scheme of SCHEMES) {
    await page.emulateMedia({ colorScheme: scheme });
    for (const [size, width] of Object.entries(WIDTHS)) {
      await page.setViewportSize({ width, height: 900 });
      if (pictures) {
        mkdirSync(pictures, { recursive: true });
        await page.screenshot({ path: join(pictures, `${name}-${scheme}-${size}.png`), fullPage: true });
      }
      const found = await page.evaluate<string[]>(`(async () => {
        ${axe};
        const { violations } = await window.axe.run();
        return violations.flatMap((one) => one.nodes.map((node) => one.id + ": " + node.target + " " + node.failureSummary));
      })()`);
      expect(found, `${name} ${scheme} ${size}`).toEqual([]);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      expect(wide, `${name} ${scheme} ${size} is wider than the window`).toBeLessThanOrEqual(0);
    }
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: WIDTHS.wide, height: 900 });
}
