// What goes wrong around the page: Core stops, the session ends, the network goes, the browser's clock is off.

import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { Core } from "./core.ts";
import { SimulatedNode } from "./node.ts";
import { isClean, launch, open, signIn } from "./page.ts";

let browser: Browser;
let core: Core;
let page: Page;

beforeAll(async () => {
  browser = await launch();
  core = await Core.start();
  await core.deploy();
  await (await SimulatedNode.enroll(core, "steady")).connect();
});
afterAll(async () => {
  await browser?.close();
  await core?.remove();
});
beforeEach(async () => {
  page = await open(browser, core);
});
afterEach(async () => {
  await page.context().close();
});

const row = () => page.getByRole("row", { name: /steady/ });
const dialog = () => page.getByRole("dialog");
const focus = () => page.evaluate(() => window.dispatchEvent(new Event("focus")));

// inv: INV-W12
test("while Core is away the page shows what it knew and concludes nothing, and then goes on", async () => {
  await signIn(page, core, "/nodes");
  await page.getByRole("link", { name: "Nodes" }).click();
  await row().getByText("Available").waitFor();
  await row().getByRole("button", { name: "Edit node" }).click();
  await dialog().getByLabel("Name").fill("typed before");
  await core.stop();
  await focus();
  await page.getByText(/Showing data from .*\. Core cannot be reached\./).waitFor();
  await row().getByText("Unconfirmed").waitFor();
  expect(await row().getByText("Available").count()).toBe(0);
  await dialog().getByRole("button", { name: "Save" }).click();
  await dialog().getByText("Core did not confirm the change.").waitFor();
  expect(await dialog().getByLabel("Name").inputValue()).toBe("typed before");
  await isClean(page, "core-away");
  await core.run();
  await dialog().getByRole("button", { name: "Save" }).click();
  await dialog().waitFor({ state: "detached" });
  await page.getByText("typed before").waitFor();
  await page.getByText("Core cannot be reached.").waitFor({ state: "detached" });
  const [node] = (await core.ask<{ data: { id: string }[] }>("GET", "/core/v1/sandbox/nodes")).data;
  await core.ask("PATCH", `/core/v1/sandbox/nodes/${node?.id}`, {
    name: "steady",
    max_active: 4,
    max_retained: 4,
  });
});

test("a session that ends asks for the key over the page, and what was typed stays", async () => {
  await signIn(page, core);
  await page.getByRole("link", { name: "Nodes" }).click();
  await row().getByRole("button", { name: "Edit node" }).click();
  await dialog().getByLabel("Name").fill("still here");
  await page.context().clearCookies();
  await dialog().getByRole("button", { name: "Save" }).click();
  const again = page.getByRole("dialog", { name: "Sign in again" });
  await again.waitFor();
  await isClean(page, "session-ended");
  await page.keyboard.press("Escape");
  await again.getByLabel("Core key").fill(core.key);
  await again.getByRole("button", { name: "Sign in" }).click();
  await again.waitFor({ state: "detached" });
  expect(await dialog().getByLabel("Name").inputValue()).toBe("still here");
  await dialog().getByRole("button", { name: "Cancel" }).click();
  await dialog().waitFor({ state: "detached" });
});

test("without a network the sign-in says so", async () => {
  await page.goto("/sign-in");
  await page.getByLabel("Core key").fill(core.key);
  await page.context().setOffline(true);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").getByText("Core cannot be reached.").waitFor();
  await page.context().setOffline(false);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
});

test("a browser whose clock is an hour off shows Core's times", async () => {
  await page.addInitScript(() => {
    const real = Date.now;
    Date.now = () => real() + 3_600_000;
  });
  await signIn(page, core);
  await page.getByRole("link", { name: "Nodes" }).click();
  await row().getByText("Offline").or(row().getByText("Available")).waitFor();
  expect(await row().textContent()).not.toMatch(/hour/);
});

// inv: INV-W16, INV-W17
test("a hidden tab asks for nothing and a seen one at once", async () => {
  await page.clock.install();
  await signIn(page, core);
  await page.getByRole("link", { name: "Nodes" }).click();
  await row().waitFor();
  const show = (state: string) =>
    page.evaluate((visibility) => {
      Object.defineProperty(document, "visibilityState", { value: visibility, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, state);
  await show("hidden");
  let asked = 0;
  page.on("request", () => {
    asked += 1;
  });
  await page.clock.runFor(60_000);
  expect(asked).toBe(0);
  const read = ["nodes", "deployment"].map((name) => page.waitForResponse(`**/core/v1/sandbox/${name}`));
  await show("visible");
  await Promise.all(read);
  // What changes by itself is polled; the deployment, of which nothing prepares and no reset stands, is not.
  let deployments = 0;
  page.on("request", (request) => {
    deployments += request.url().endsWith("/deployment") ? 1 : 0;
  });
  for (let round = 0; round < 6; round += 1) {
    const polled = page.waitForResponse("**/core/v1/sandbox/nodes");
    await page.clock.runFor(10_000);
    await polled;
  }
  expect(deployments).toBe(0);
});
