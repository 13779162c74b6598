// A list of 500 nodes: it can be searched, and what is read anew disturbs nobody who is at work in it.

import { randomUUID } from "node:crypto";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Core } from "./core.ts";
import { SimulatedNode } from "./node.ts";
import { launch, open, signIn } from "./page.ts";

let browser: Browser;
let core: Core;
let page: Page;
/** Counts the lists that Core was asked for. */
let read = 0;

beforeAll(async () => {
  browser = await launch();
  core = await Core.start();
  await core.deploy();
  await SimulatedNode.enroll(core, "like");
  page = await open(browser, core);
  // One real node, and five hundred of its kind whose times go on.
  await page.route("**/core/v1/sandbox/nodes", async (route) => {
    const response = await route.fetch({ headers: { ...route.request().headers(), "if-none-match": "" } });
    const body = await response.json();
    read += 1;
    const now = new Date().toISOString();
    const data = ids.map((id, at) => ({
      ...body.data[0],
      id,
      name: `node-${String(at).padStart(3, "0")}`,
      online: at % 7 !== 0,
      provider_ready: true,
      last_seen_at: now,
      active: read,
      labels: { zone: at % 2 ? "west" : "east" },
    }));
    await route.fulfill({ response, json: { ...body, data } });
  });
  await signIn(page, core, "/nodes");
  await page.getByRole("link", { name: "Nodes" }).click();
  await page.getByText("node-499").waitFor();
});
afterAll(async () => {
  await browser?.close();
  await core?.remove();
});

const ids = Array.from({ length: 500 }, () => randomUUID());
const row = (name: string) => page.locator("tr", { hasText: name });
const focused = () => page.evaluate(() => document.activeElement?.closest("tr")?.textContent?.slice(0, 8));

/** Has the list read again, and waits until the page shows it. */
async function again(): Promise<void> {
  const wanted = read + 1;
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
  await filter.fill(ids[7] ?? "");
  await row("node-007").waitFor();
  await page.getByText("1 node", { exact: true }).waitFor();
  await filter.fill("no such node");
  await page.getByText("No node fits the filter.").waitFor();
  await filter.fill("");
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
  expect(await page.evaluate(() => window.getSelection()?.toString())).toBe(ids[2]?.slice(0, 8));
});
