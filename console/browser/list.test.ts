// A list of 500 nodes: it can be searched, and what is read anew disturbs nobody who is at work in it.

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Core } from "./core.ts";
import { MANY, type Many, many } from "./many.ts";
import { SimulatedNode } from "./node.ts";
import { launch, open, signIn } from "./page.ts";

let browser: Browser;
let core: Core;
let page: Page;
let list: Many;

beforeAll(async () => {
  browser = await launch();
  core = await Core.start();
  await core.deploy();
  await SimulatedNode.enroll(core, "like");
  page = await open(browser, core);
  list = await many(page);
  await signIn(page, core, "/nodes");
  await page.getByRole("link", { name: "Nodes" }).click();
  await page.getByText("node-499").waitFor();
});
afterAll(async () => {
  await page?.unrouteAll({ behavior: "wait" });
  await browser?.close();
  await core?.remove();
});

const row = (name: string) => page.locator("tr", { hasText: name });
const focused = () => page.evaluate(() => document.activeElement?.closest("tr")?.textContent?.slice(0, 8));

/** Has the list read again, and waits until the page shows it. */
async function again(): Promise<void> {
  const wanted = list.read + 1;
  await page.evaluate(() => window.dispatchEvent(new Event("focus")));
  await page.waitForFunction(
    (least) => Number(document.querySelector("td.number")?.textContent?.split(" ")[0]) >= least,
    wanted,
  );
}

test("the filter finds by name, id and label, and says how many", async () => {
  const filter = page.getByLabel("Filter by name, id or label");
  await filter.fill("zone=west");
  await page.getByText("250 nodes", { exact: true }).waitFor();
  expect(await page.getByRole("row").count()).toBe(251);
  await filter.fill(list.ids[7] ?? "");
  await row("node-007").waitFor();
  await page.getByText("1 node", { exact: true }).waitFor();
  await filter.fill("no such node");
  await page.getByText("No node fits the filter.").waitFor();
  await filter.fill("");
  await row("node-499").waitFor();
});

test("a filter stays in sight, and can be taken back, however few nodes are left", async () => {
  const filter = page.getByLabel("Filter by name, id or label");
  await filter.fill("node-00");
  await page.getByText("10 nodes", { exact: true }).waitFor();
  list.length = 15;
  await again();
  await page.getByText("10 nodes", { exact: true }).waitFor();
  await filter.fill("");
  await row("node-014").waitFor();
  expect(await filter.count()).toBe(0);
  list.length = MANY;
  await again();
  await row("node-499").waitFor();
});

test("a list that is read anew keeps focus, scroll and an open menu", async () => {
  await row("node-400").getByRole("button", { name: "Edit node" }).focus();
  const top = await page.evaluate(() => window.scrollY);
  expect(top).toBeGreaterThan(1000);
  await again();
  expect(await focused()).toBe("node-400");
  expect(await page.evaluate(() => window.scrollY)).toBe(top);
  await row("node-400").getByRole("button", { name: "More actions for node-400" }).click();
  await page.keyboard.press("ArrowDown");
  const item = page.getByRole("menuitem", { name: "Cordon" });
  expect(await item.evaluate((one) => one === document.activeElement)).toBe(true);
  await again();
  expect(await item.evaluate((one) => one === document.activeElement)).toBe(true);
  await page.keyboard.press("Escape");
  expect(await page.evaluate(() => window.scrollY)).toBe(top);
});

test("a selection of text outlives the next list", async () => {
  const id = row("node-002").locator("code");
  await id.evaluate((one) => window.getSelection()?.selectAllChildren(one));
  await again();
  expect(await page.evaluate(() => window.getSelection()?.toString())).toBe(list.ids[2]?.slice(0, 8));
});

test("no button moves under the pointer, whatever the next list says of its row and of others", async () => {
  const button = row("node-003").getByRole("button", { name: "Edit node" });
  const before = await button.boundingBox();
  const passed = new Date(Date.now() - 4 * 3_600_000).toISOString();
  list.say = (at) => ({
    active: list.read,
    max_active: 1_000_000,
    created_at: passed,
    last_seen_at: passed,
    online: at % 2 === 0,
    rollout: { state: "update_required" },
  });
  await again();
  await row("node-003").locator("time", { hasText: "4 hours ago" }).first().waitFor();
  await row("node-003").getByText("Node software incompatible").waitFor();
  expect(await button.boundingBox()).toEqual(before);
  list.say = () => ({ active: list.read });
});

test("a list that brings nothing but later signs of life draws none of its texts anew", async () => {
  await again();
  const { read } = list;
  list.say = (at) => ({ active: at === 0 ? list.read : read });
  await again();
  const drawn = page.evaluate(
    () =>
      new Promise<string[]>((resolve) => {
        const texts: string[] = [];
        new MutationObserver((all) => {
          texts.push(...all.map((one) => one.target.parentElement?.closest("tr")?.textContent ?? ""));
          resolve(texts.map((text) => text.slice(0, 8)));
        }).observe(document.querySelector("tbody") as Node, {
          childList: true,
          characterData: true,
          subtree: true,
        });
      }),
  );
  await again();
  // The first row counts the lists; no other is touched.
  expect(new Set(await drawn)).toEqual(new Set(["node-000"]));
});

test("whoever comes back from a node's page finds the list as it was left", async () => {
  const link = row("node-400").getByRole("link");
  await link.scrollIntoViewIfNeeded();
  const top = await page.evaluate(() => window.scrollY);
  await link.click();
  await page.getByRole("heading", { name: "This node is not here any more." }).waitFor();
  await page.goBack();
  await row("node-400").waitFor();
  await page.waitForFunction((wanted) => Math.abs(window.scrollY - wanted) < 2, top);
  const filter = page.getByLabel("Filter by name, id or label");
  await filter.fill("node-40");
  await page.getByText("10 nodes", { exact: true }).waitFor();
  await row("node-404").getByRole("link").click();
  await page.getByRole("heading", { name: "This node is not here any more." }).waitFor();
  await page.goBack();
  await page.getByText("10 nodes", { exact: true }).waitFor();
  expect(await filter.inputValue()).toBe("node-40");
  expect(page.url()).toBe(`${core.url}/nodes`);
  // A link begins anew.
  await page.getByRole("link", { name: "Overview" }).click();
  await page.getByRole("link", { name: "Nodes" }).click();
  await row("node-000").waitFor();
  expect(await filter.inputValue()).toBe("");
});
