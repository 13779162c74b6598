// Everything by keyboard alone: no test of this file clicks or focuses by other means than keys.

import type { Browser, Locator, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Core } from "./core.ts";
import { SimulatedNode } from "./node.ts";
import { launch, open } from "./page.ts";

let browser: Browser;
let core: Core;
let page: Page;
let node: SimulatedNode;

beforeAll(async () => {
  browser = await launch();
  core = await Core.start();
  await core.publish();
  page = await open(browser, core);
  await page.goto("/");
});
afterAll(async () => {
  await browser?.close();
  await core?.remove();
});

const dialog = () => page.getByRole("dialog");
const main = () => page.getByRole("main");
const has = (what: Locator) => what.evaluate((one) => one === document.activeElement);
/** More than any page has stops. */
const STOPS = 80;

/** Tabs until the focus is there, and sees a ring around it. */
async function to(what: Locator): Promise<void> {
  await what.waitFor();
  for (let stop = 0; stop < STOPS; stop += 1) {
    if (await has(what)) {
      const ring = await what.evaluate((one) => getComputedStyle(one).outlineStyle);
      expect(ring, `${what} has a visible focus`).not.toBe("none");
      return;
    }
    await page.keyboard.press("Tab");
  }
  throw new Error(`${what} is not reached by Tab`);
}

async function press(what: Locator, key = "Enter"): Promise<void> {
  await to(what);
  await page.keyboard.press(key);
}

const button = (name: string, within: Locator = main()) =>
  within.getByRole("button", { name, exact: true }).first();

/** Opens a dialog with a key, goes around in it, closes it with Escape: the focus is where it was. */
async function around(opener: Locator, key = "Enter"): Promise<void> {
  await press(opener, key);
  await dialog().waitFor();
  for (let stop = 0; stop < 12; stop += 1) {
    await page.keyboard.press("Tab");
    const within = await page.evaluate(
      () => document.activeElement === document.body || document.activeElement?.closest("dialog") !== null,
    );
    expect(within, "the focus stays in the dialog").toBe(true);
  }
  await page.keyboard.press("Escape");
  await dialog().waitFor({ state: "detached" });
}

async function returns(opener: Locator, key = "Enter"): Promise<void> {
  await around(opener, key);
  expect(await has(opener), `${opener} has the focus again`).toBe(true);
}

// inv: INV-W21
test("signing in, setting up and adding a node need no mouse", async () => {
  await to(page.getByLabel("Core key"));
  await page.keyboard.type(core.key);
  await page.keyboard.press("Enter");
  await page.getByRole("navigation", { name: "Navigation" }).waitFor();
  await press(page.getByRole("link", { name: "Set up sandboxes" }));
  expect(await has(page.getByRole("heading", { name: "Sandbox and scheduling" }))).toBe(true);
  await press(button("Next"));
  await to(page.getByLabel("microsandbox"));
  await page.keyboard.press("ArrowDown");
  await press(button("Use Docker", dialog()));
  await press(button("Next"));
  await to(page.getByLabel("Standard"));
  await page.keyboard.press("ArrowUp");
  expect(await page.getByLabel("Small").isChecked()).toBe(true);
  await press(button("Next"));
  await press(button("Save configuration"));
  await button("Change resources").waitFor();

  await page.keyboard.press("Home");
  await press(page.getByRole("link", { name: "Nodes" }));
  expect(await has(page.getByRole("heading", { name: "Nodes" }))).toBe(true);
  await press(button("Add node"));
  await press(button("Generate command", dialog()));
  await dialog().getByRole("timer").waitFor();
  expect(await has(button("Copy", dialog()))).toBe(true);
  const line = await dialog().getByLabel("Run this command on the host.").inputValue();
  node = await (await SimulatedNode.enroll(core, "keys", / '([0-9a-f]{64})' /.exec(line)?.[1])).connect();
  await dialog().getByText("keys is ready.").waitFor();
  expect(await has(button("Close", dialog()))).toBe(true);
  await page.keyboard.press("Enter");
  await dialog().waitFor({ state: "detached" });
  expect(await has(button("Add node"))).toBe(true);
});

// inv: INV-W21
test("every dialog of the list opens by keyboard, keeps the focus and gives it back", async () => {
  const row = page.getByRole("row", { name: /keys/ });
  await row.getByText("Available").waitFor();
  for (const name of ["Clean up a host", "Add node"]) {
    await returns(button(name));
  }
  for (const name of ["Edit node", "Remove"]) {
    await returns(button(name, row));
  }
  const more = row.getByRole("button", { name: "More actions for keys" });
  for (const [at, name] of ["Edit labels", "Cordon", "Drain"].entries()) {
    await press(more);
    await page.getByRole("menuitem").first().waitFor();
    for (let down = 0; down < at; down += 1) {
      await page.keyboard.press("ArrowDown");
    }
    expect(await has(page.getByRole("menuitem", { name }))).toBe(true);
    await page.keyboard.press("Enter");
    await dialog().waitFor();
    await page.keyboard.press("Escape");
    await dialog().waitFor({ state: "detached" });
    expect(await has(more)).toBe(true);
  }
});

// inv: INV-W21
test("a node is edited, drained and removed by keyboard", async () => {
  await press(page.getByRole("row", { name: /keys/ }).getByRole("link", { name: "keys" }));
  await page.getByRole("heading", { name: "keys" }).waitFor();
  for (const name of ["Edit node", "Edit labels", "Cordon", "Drain", "Remove node"]) {
    await returns(button(name));
  }
  await to(page.getByLabel("1 h", { exact: true }));
  await page.keyboard.press("ArrowRight");
  expect(await page.getByLabel("6 h").isChecked()).toBe(true);
  await press(page.getByText("Show as table").first(), "Space");
  await page.getByRole("columnheader", { name: "Interval" }).first().waitFor();
  await press(button("Cordon"));
  await press(button("Cordon", dialog()));
  await dialog().waitFor({ state: "detached" });
  await page.getByText("Cordoned").waitFor();
  node.disconnect();
  await press(button("Remove node"));
  await press(button("Confirm removal", dialog()));
  await page.getByRole("dialog", { name: "Clean up the host" }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByText("This node is not here any more.").waitFor();
});

// inv: INV-W21
test("the settings' dialogs open by keyboard and give the focus back, and a skip link leads past the navigation", async () => {
  await press(page.getByRole("link", { name: "All nodes" }));
  await press(page.getByRole("link", { name: "Sandbox and scheduling" }));
  for (const name of ["Change resources", "Reset deployment"]) {
    await returns(button(name));
  }
  await page.reload();
  await button("Change resources").waitFor();
  await page.keyboard.press("Tab");
  expect(await has(page.getByRole("link", { name: "Skip to content" }))).toBe(true);
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  const inside = await page.evaluate(() => document.activeElement?.closest("main") !== null);
  expect(inside).toBe(true);
});
