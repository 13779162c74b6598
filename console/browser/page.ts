// One browser for all tests of a file, and what a person does in it.

import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { expect } from "vitest";
import type { Core } from "./core.ts";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
/** A build of the console to test in place of the program's: Core need not be built anew for each change of a page. */
const dist = process.env.OAC_CONSOLE_DIST;
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
  if (dist) {
    await serve(context, core, dist);
  }
  return context.newPage();
}

/** Pictures of the user's guide are made anew with OAC_CONSOLE_GUIDE=1. */
const guide = process.env.OAC_CONSOLE_GUIDE ? join(import.meta.dirname, "../../docs/images") : undefined;

export async function illustrate(page: Page, name: string): Promise<void> {
  if (guide) {
    mkdirSync(guide, { recursive: true });
    await page.setViewportSize({ width: 1100, height: 720 });
    await page.screenshot({ path: join(guide, `${name}.jpg`), type: "jpeg", quality: 60 });
    await page.setViewportSize({ width: WIDTHS.wide, height: 900 });
  }
}

const MEDIA: Record<string, string> = {
  html: "text/html",
  js: "text/javascript",
  css: "text/css",
  svg: "image/svg+xml",
};

async function serve(context: BrowserContext, core: Core, folder: string): Promise<void> {
  await context.route(
    (url) => url.origin === core.url && !/^\/(core|api|v1|readyz)\//.test(url.pathname),
    async (route) => {
      const path = new URL(route.request().url()).pathname.slice(1);
      const file = path.includes(".") ? path : "index.html";
      await route.fulfill({
        body: readFileSync(join(folder, file)),
        headers: {
          "content-type": MEDIA[file.split(".").at(-1) ?? ""] ?? "text/plain",
          "content-security-policy":
            "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
        },
      });
    },
  );
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
      const wide = await page.evaluate(() => {
        const over = (one: Element, width: number) => one.scrollWidth - width;
        const dialogs = [...document.querySelectorAll("dialog[open]")];
        return Math.max(
          over(document.documentElement, window.innerWidth),
          ...dialogs.map((one) => over(one, one.clientWidth)),
        );
      });
      expect(wide, `${name} ${scheme} ${size} is wider than its place`).toBeLessThanOrEqual(0);
    }
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: WIDTHS.wide, height: 900 });
}
