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

/** Shows or hides the tab. */
const show = (state: "visible" | "hidden") =>
  page.evaluate((visibility) => {
    Object.defineProperty(document, "visibilityState", { value: visibility, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, state);

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
  // A browser would let the third of them through.
  for (let press = 0; press < 3; press += 1) {
    await page.keyboard.press("Escape");
  }
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

const refusal = (status: number, code: string, message: string) => ({
  status,
  headers: status === 503 ? { "retry-after": "2" } : {},
  json: { error: { type: status === 409 ? "conflict_error" : "server_error", code, message, param: null } },
});

// inv: INV-W17
test("under a standby a sign-in is tried again as Core asks, and never from a hidden tab", async () => {
  await page.clock.install();
  let sent = 0;
  await page.route("**/core/v1/console/session", (route) => {
    sent += 1;
    return route.fulfill({
      ...refusal(503, "core_standby", "This Core is standing by."),
      headers: { "retry-after": "7" },
    });
  });
  await page.goto("/sign-in");
  await page.getByLabel("Core key").fill(core.key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("Core is standing by. Retrying…").waitFor();
  await page.clock.runFor(6500);
  expect(sent).toBe(1);
  await page.clock.runFor(1000);
  await expect.poll(() => sent).toBe(2);
  await page.getByRole("button", { name: "Sign in", disabled: false }).waitFor();
  await show("hidden");
  await page.clock.runFor(60_000);
  expect(sent).toBe(2);
  await page.unroute("**/core/v1/console/session");
  await show("visible");
  await page.clock.runFor(7500);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
});

test("a sign-in says what is wrong with Core, and of a key only what came for it", async () => {
  await page.goto("/sign-in");
  const answers: (() => Promise<void>)[] = [];
  await page.route("**/core/v1/console/session", (route) => {
    const { length } = answers;
    answers.push(() =>
      route.fulfill(
        length === 0 ? refusal(500, "of_a_test", "Core's log says why.") : refusal(401, "of_a_test", "No."),
      ),
    );
  });
  const field = page.getByLabel("Core key");
  const submit = page.getByRole("button", { name: "Sign in" });
  await field.fill("first");
  await submit.click();
  await expect.poll(() => answers.length).toBe(1);
  await answers[0]?.();
  await page.getByRole("alert").getByText("Core's log says why. (of_a_test)").waitFor();
  await submit.click();
  await expect.poll(() => answers.length).toBe(2);
  await field.fill("second");
  await answers[1]?.();
  await page.getByRole("button", { name: "Sign in", disabled: false }).waitFor();
  expect(await page.getByText("This Core key is not accepted.").count()).toBe(0);
  await submit.click();
  await expect.poll(() => answers.length).toBe(3);
  await answers[2]?.();
  await page.getByText("This Core key is not accepted.").waitFor();
});

// inv: INV-W13, INV-W14
test("a refusal and a standby keep the dialog with what was typed, and nothing is sent by itself", async () => {
  await signIn(page, core);
  await page.getByRole("link", { name: "Nodes" }).click();
  await row().getByRole("button", { name: "Edit node" }).click();
  await dialog().getByLabel("Name").fill("kept");
  let sent = 0;
  let answer = refusal(409, "sandbox_reset_in_progress", "A reset is in progress.");
  await page.route("**/core/v1/sandbox/nodes/*", (route) => {
    if (route.request().method() !== "PATCH") {
      return route.fallback();
    }
    sent += 1;
    return route.fulfill(answer);
  });
  await dialog().getByRole("button", { name: "Save" }).click();
  await dialog().getByText("A reset is in progress. (sandbox_reset_in_progress)").waitFor();
  answer = refusal(503, "core_standby", "This Core is standing by.");
  // The list of a standby is old, and says so.
  await page.route("**/core/v1/sandbox/nodes", (route) => route.fulfill(answer));
  await dialog().getByRole("button", { name: "Save" }).click();
  await dialog().getByText("This Core is standing by. (core_standby)").waitFor();
  await row().getByText("Unconfirmed").waitFor();
  await page.getByText(/Showing data from .*\. This Core is standing by\. \(core_standby\)/).waitFor();
  expect(await dialog().getByLabel("Name").inputValue()).toBe("kept");
  await isClean(page, "standby");
  expect(sent).toBe(2);
  await page.unroute("**/core/v1/sandbox/nodes");
  // It is read again by itself, after the pause that Core asked for.
  await row().getByText("Unconfirmed").waitFor({ state: "detached" });
  expect(sent).toBe(2);
});

test("what a second operator changes meanwhile is seen, and neither is lost nor taken for one's own", async () => {
  const node = await SimulatedNode.enroll(core, "shared");
  await signIn(page, core);
  await page.getByRole("link", { name: "Nodes" }).click();
  const shared = page.getByRole("row", { name: /shared/ });
  await shared.getByRole("button", { name: "Edit node" }).click();
  await dialog().getByLabel("Name").fill("mine");
  const path = `/core/v1/sandbox/nodes/${node.id}`;
  await core.ask("PATCH", path, { name: "theirs", max_active: 2, max_retained: 2 });
  await focus();
  await page.getByRole("row", { name: /theirs/ }).waitFor();
  expect(await dialog().getByLabel("Name").inputValue()).toBe("mine");
  await dialog().getByText("Now: theirs").waitFor();
  // What nobody typed here is what holds, so that saving undoes nothing.
  expect(await dialog().getByLabel("Sandboxes at once").inputValue()).toBe("2");
  await isClean(page, "edit-meanwhile");
  const saved = page.waitForRequest((one) => one.method() === "PATCH");
  await dialog().getByRole("button", { name: "Save" }).click();
  expect((await saved).postDataJSON()).toEqual({ name: "mine", max_active: 2, max_retained: 2 });
  await dialog().waitFor({ state: "detached" });
  const mine = page.getByRole("row", { name: /mine/ });
  await mine.getByRole("button", { name: "More actions for mine" }).click();
  await page.getByRole("menuitem", { name: "Edit labels" }).click();
  await dialog().getByLabel("Labels").fill("zone=west");
  await core.ask("PUT", `${path}/labels`, { labels: { disk: "fast" } });
  await focus();
  await dialog().getByText("Now: disk=fast").waitFor();
  expect(await dialog().getByLabel("Labels").inputValue()).toBe("zone=west");
  await dialog().getByRole("button", { name: "Cancel" }).click();
  await mine.getByRole("button", { name: "Edit node" }).click();
  await core.ask("DELETE", path);
  await dialog().getByRole("button", { name: "Save" }).click();
  await dialog().getByRole("alert").getByText("(not_found_error)").waitFor();
  expect(await dialog().getByLabel("Name").inputValue()).toBe("mine");
  await page.keyboard.press("Escape");
  await dialog().waitFor({ state: "detached" });
  await mine.waitFor({ state: "detached" });
});

// inv: INV-W14
test("a node that is removed meanwhile takes no dialog from its page, and what was typed stays", async () => {
  const node = await SimulatedNode.enroll(core, "leaving");
  await signIn(page, core);
  await page.getByRole("link", { name: "Nodes" }).click();
  await page
    .getByRole("row", { name: /leaving/ })
    .getByRole("link")
    .click();
  await page.getByRole("button", { name: "Edit node" }).click();
  await dialog().getByLabel("Name").fill("typed here");
  await core.ask("DELETE", `/core/v1/sandbox/nodes/${node.id}`);
  // A read finds out first, and then the write.
  const read = page.waitForResponse((answer) => answer.status() === 404);
  await focus();
  await read;
  await page.getByRole("main").getByText("This node is not here any more.").waitFor();
  expect(await dialog().getByLabel("Name").inputValue()).toBe("typed here");
  await dialog().getByRole("button", { name: "Save" }).click();
  await dialog().getByRole("alert").getByText("(not_found_error)").waitFor();
  expect(await dialog().getByLabel("Name").inputValue()).toBe("typed here");
  await isClean(page, "node-gone-meanwhile");
  await dialog().getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("heading", { name: "This node is not here any more." }).waitFor();
});

// inv: INV-W12
test("a minute without a network is said, and passes", async () => {
  await page.clock.install();
  await signIn(page, core);
  await page.getByRole("link", { name: "Nodes" }).click();
  await row().getByText("Available").or(row().getByText("Offline")).waitFor();
  await page.context().setOffline(true);
  let failed = 0;
  page.on("requestfailed", () => {
    failed += 1;
  });
  await page.clock.runFor(11_000);
  await page.getByText(/Showing data from .*\. Core cannot be reached\./).waitFor();
  await row().getByText("Unconfirmed").waitFor();
  // The pauses grow: a minute holds two or three tries of the list, and a poll every ten seconds would be six.
  await page.clock.runFor(50_000);
  expect(failed).toBeGreaterThan(0);
  expect(failed).toBeLessThan(5);
  await page.context().setOffline(false);
  for (let pause = 0; pause < 12 && (await row().getByText("Unconfirmed").count()) > 0; pause += 1) {
    await page.clock.runFor(10_000);
  }
  await row().getByText("Unconfirmed").waitFor({ state: "detached" });
  await page.getByText("Core cannot be reached.").waitFor({ state: "detached" });
});

test("a node's page goes on by itself after the session was renewed", async () => {
  await signIn(page, core);
  await page.getByRole("link", { name: "Nodes" }).click();
  await row().getByRole("link").click();
  await page.getByRole("heading", { name: "Capacity" }).waitFor();
  await page.context().clearCookies();
  await focus();
  const again = page.getByRole("dialog", { name: "Sign in again" });
  await again.getByLabel("Core key").fill(core.key);
  const read = ["/allocations", "?range=1h"].map((part) =>
    page.waitForResponse((answer) => answer.ok() && answer.url().includes(part)),
  );
  await again.getByRole("button", { name: "Sign in" }).click();
  await Promise.all(read);
});
