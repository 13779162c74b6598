// A changed configuration on its way to nodes that go on serving meanwhile.

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Core } from "./core.ts";
import { type Prepared, SimulatedNode } from "./node.ts";
import { isClean, launch, open, signIn } from "./page.ts";

let browser: Browser;
let core: Core;
let page: Page;

beforeAll(async () => {
  browser = await launch();
  core = await Core.start();
  await core.deploy();
  page = await open(browser, core);
});
afterAll(async () => {
  await browser?.close();
  await core?.remove();
});

const dialog = () => page.getByRole("dialog");
const row = () => page.getByRole("row", { name: /worker/ });
const focus = () => page.evaluate(() => window.dispatchEvent(new Event("focus")));
const rolled = (bucket: string) =>
  page
    .locator("section", { has: page.getByRole("heading", { name: "Rollout" }) })
    .locator("dt", { hasText: new RegExp(`^${bucket}$`) })
    .locator("+ dd");

/** What a node would say of Core's target. */
async function target(state: Prepared["state"], diagnostic?: string): Promise<Prepared> {
  const { generation, specification_digest } = await core.ask<Prepared>("GET", "/core/v1/sandbox/deployment");
  return { generation, specification_digest, state, ...(diagnostic && { diagnostic }) };
}

// req: G-169, G-170, G-171
test("a node that prepares a changed size is shown preparing it, failed and why, and ready for it", async () => {
  const node = await SimulatedNode.enroll(core, "worker");
  const served = await target("ready");
  node.generations = [served];
  await node.connect();
  await signIn(page, core, "/settings/sandbox");
  await page.getByRole("button", { name: "Change resources" }).click();
  await dialog().getByLabel("Large").check();
  await dialog().getByRole("button", { name: "Save" }).click();
  await dialog().waitFor({ state: "detached" });
  await page.getByText("4 CPUs, 4.0 GiB").waitFor();

  node.generations = [await target("preparing"), served];
  node.beat();
  // The page goes on by itself while anything prepares.
  await rolled("Preparing").getByText("1", { exact: true }).waitFor();
  await isClean(page, "sandbox-preparing");
  await page.getByRole("link", { name: "Nodes" }).click();
  await row().getByText("Preparing target").waitFor();
  // It serves what it was ready for.
  await row().getByText("Available").waitFor();
  await isClean(page, "nodes-preparing");

  node.generations = [await target("failed", "runtime_download_failed"), served];
  node.beat();
  await focus();
  await row().getByText("Preparation failed").waitFor();
  await row().getByRole("button", { name: "Help" }).focus();
  await row().getByRole("tooltip").getByText("Runtime download failed", { exact: true }).waitFor();
  await page.getByRole("link", { name: "Sandbox and scheduling" }).click();
  await rolled("Failed").getByText("1", { exact: true }).waitFor();
  await isClean(page, "sandbox-failed");

  node.generations = [await target("ready")];
  node.beat();
  await page.getByRole("link", { name: "Nodes" }).click();
  await focus();
  await row().getByText("Ready for target").waitFor();
  expect(await row().getByText("Preparing target").count()).toBe(0);
});
