// The longest that Core stores, on every page and in every dialog that shows it.

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Core } from "./core.ts";
import { SimulatedNode } from "./node.ts";
import { isClean, launch, open, signIn } from "./page.ts";

const NAME = "W".repeat(128);
const LABELS = Object.fromEntries(
  Array.from({ length: 32 }, (_, at) => [`k${at}`.padEnd(63, "k"), "V".repeat(63)]),
);

let browser: Browser;
let core: Core;
let page: Page;
let node: SimulatedNode;

beforeAll(async () => {
  browser = await launch();
  core = await Core.start({ publicUrl: `https://${"long.".repeat(40)}example.com` });
  await core.deploy();
  await core.publish();
  node = await SimulatedNode.enroll(core, NAME);
  await core.ask("PUT", `/core/v1/sandbox/nodes/${node.id}/labels`, { labels: LABELS });
  page = await open(browser, core);
});
afterAll(async () => {
  await browser?.close();
  await core?.remove();
});

const dialog = () => page.getByRole("dialog");

/** Opens a dialog, looks at it and closes it. */
async function look(name: string, opener: () => Promise<void>): Promise<void> {
  await opener();
  await dialog().waitFor();
  await isClean(page, name);
  await page.keyboard.press("Escape");
  await dialog().waitFor({ state: "detached" });
}

test("the longest name and labels break no page and no dialog", async () => {
  await signIn(page, core);
  await page.getByRole("link", { name: NAME }).waitFor();
  await isClean(page, "long-overview");
  await page.getByRole("link", { name: "Nodes" }).click();
  const row = page.getByRole("row", { name: new RegExp(NAME) });
  await row.waitFor();
  await isClean(page, "long-nodes");
  await look("long-remove", () => row.getByRole("button", { name: "Remove", exact: true }).click());
  await look("long-clean-up", () => page.getByRole("button", { name: "Clean up a host" }).click());
  await row.getByRole("link").click();
  await page.getByRole("heading", { name: NAME }).waitFor();
  await page.getByText("No sandboxes on this node.").waitFor();
  await isClean(page, "long-node");
  for (const [name, button] of [
    ["long-labels", "Edit labels"],
    ["long-cordon", "Cordon"],
    ["long-drain", "Drain"],
    ["long-edit", "Edit node"],
  ] as const) {
    await look(name, () => page.getByRole("button", { name: button, exact: true }).click());
  }
  await page.getByRole("link", { name: "Service and deployment" }).click();
  await page.getByText("Installation ID").waitFor();
  await isClean(page, "long-service");
});

test("a name is text, whatever it would be elsewhere", async () => {
  const name = `<img src=x onerror="document.title='no'"> {name} \u202e&amp;`;
  await core.ask("PATCH", `/core/v1/sandbox/nodes/${node.id}`, { name, max_active: 4, max_retained: 4 });
  await page.getByRole("link", { name: "Nodes" }).click();
  await page.getByRole("link", { name, exact: true }).waitFor();
  expect(await page.locator("main img").count()).toBe(0);
  await page.getByRole("row", { name: /img/ }).getByRole("button", { name: "Remove", exact: true }).click();
  await dialog().getByText(`Remove ${name}?`).waitFor();
  expect(await page.title()).toMatch(/^Nodes/);
});
