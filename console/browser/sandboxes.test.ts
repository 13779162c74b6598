// Sandboxes that Core really placed: on a node's page, in a drain, in a removal that is refused, and in a reset.

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Core } from "./core.ts";
import { SimulatedNode } from "./node.ts";
import { isClean, launch, open, signIn } from "./page.ts";

let browser: Browser;
let core: Core;
let page: Page;
let node: SimulatedNode;
let sessions: string[];

beforeAll(async () => {
  browser = await launch();
  core = await Core.start();
  await core.deploy();
  node = await (await SimulatedNode.enroll(core, "host")).connect();
  sessions = await core.sessions(3);
  page = await open(browser, core);
  await signIn(page, core, `/nodes/${node.id}`);
});
afterAll(async () => {
  await browser?.close();
  await core?.remove();
});

const dialog = () => page.getByRole("dialog");
const closed = () => dialog().waitFor({ state: "detached" });
const focus = () => page.evaluate(() => window.dispatchEvent(new Event("focus")));
const row = (session: string | undefined) => page.getByRole("row", { name: session?.slice(0, 8) ?? "none" });
const fact = (name: string) => page.locator("dt", { hasText: new RegExp(`^${name}$`) }).locator("+ dd");

/** Looks at the page until it shows this. */
async function comes(locator: ReturnType<Page["getByText"]>): Promise<void> {
  for (let look = 0; look < 160 && !(await locator.first().isVisible()); look += 1) {
    await focus();
    await locator
      .first()
      .waitFor({ timeout: 500 })
      .catch(() => {});
  }
  await locator.first().waitFor();
}

test("a node's page lists its sandboxes and counts them", async () => {
  for (const session of sessions) {
    await comes(row(session).getByText("running", { exact: true }));
  }
  await comes(fact("Active").getByText("3 / 4"));
  await isClean(page, "sandboxes");
});

test("a node that holds sandboxes is not removed, and the dialog says what to do", async () => {
  await page.getByRole("button", { name: "Remove node" }).click();
  await dialog().getByRole("button", { name: "Confirm removal" }).click();
  await dialog().getByText("This node still holds sandboxes, snapshots or pending cleanup.").waitFor();
  await isClean(page, "remove-refused");
  await page.keyboard.press("Escape");
  await closed();
});

test("a lower limit stops nothing, and says so", async () => {
  await page.getByRole("button", { name: "Edit node" }).click();
  await dialog().getByLabel("Sandboxes at once").fill("2");
  await dialog().getByText("Nothing is stopped; no new sandboxes start until use falls.").waitFor();
  await isClean(page, "edit-below");
  await page.keyboard.press("Escape");
  await closed();
});

test("a drain shows what is left and until when, and ends cordoned when it is canceled", async () => {
  await page.getByRole("button", { name: "Drain", exact: true }).click();
  await dialog().getByRole("button", { name: "Start drain" }).click();
  await closed();
  await page.getByText("3 active sandboxes left").waitFor();
  expect(await page.getByRole("button", { name: "Uncordon" }).isDisabled()).toBe(true);
  await page.getByText("Cancel the drain before you uncordon.").waitFor();
  await isClean(page, "draining");
  await page.getByRole("button", { name: "Cancel drain" }).click();
  await dialog().getByText("The node stays cordoned").waitFor();
  await dialog().getByRole("button", { name: "Cancel drain" }).click();
  await closed();
  await page.getByRole("button", { name: "Uncordon" }).click();
  await dialog().getByRole("button", { name: "Uncordon" }).click();
  await closed();
  await page.getByRole("button", { name: "Cordon" }).waitFor();
});

// req: G-239
test("a sandbox whose node went away is shown as disconnected, and nothing is concluded of it", async () => {
  node.disconnect();
  await comes(row(sessions[0]).getByText("Node disconnected"));
  await comes(page.getByRole("main").getByText("Offline"));
  await comes(fact("Running").getByText("–"));
  expect(await page.getByRole("button", { name: "Discard sandbox" }).count()).toBe(0);
  await isClean(page, "sandboxes-disconnected");
});

// req: G-240
test("a sandbox that its node does not find is missing, and is given up after saying what is lost", async () => {
  node.lose();
  await node.connect();
  await comes(row(sessions[0]).getByText("Sandbox resource missing"));
  await isClean(page, "sandboxes-missing");
  await row(sessions[0]).getByRole("button", { name: "Discard sandbox" }).click();
  await dialog().getByText("its files, its running Turn and what was suspended of it are lost").waitFor();
  await isClean(page, "discard");
  await dialog().getByRole("button", { name: "Discard sandbox and lose its files" }).click();
  await closed();
  await row(sessions[0]).getByRole("button").waitFor({ state: "detached" });
});

test("every issue of a sandbox has its text", async () => {
  const texts = {
    node_unavailable: "Node disconnected",
    resource_missing: "Sandbox resource missing",
    compute_unconfirmed: "Compute unconfirmed",
    ownership_mismatch: "Ownership mismatch",
    provider_unavailable: "Provider unavailable",
    of_a_later_core: "Provider unavailable",
  };
  const answer = "**/allocations*";
  await page.route(answer, async (route) => {
    const response = await route.fetch();
    const all = await response.json();
    const [like] = all.data;
    const data = Object.keys(texts).map((diagnostic, at) => ({
      ...like,
      id: `${at}${like.id.slice(1)}`,
      session_id: `0000000${at}${like.session_id.slice(8)}`,
      diagnostic,
      discardable: false,
      former_computes: at === 2 ? [node.id, "of a node that is gone"] : [],
    }));
    await route.fulfill({ response, json: { data, next: null } });
  });
  await focus();
  for (const [at, text] of Object.values(texts).entries()) {
    await page
      .getByRole("row", { name: `0000000${at}` })
      .getByText(text, { exact: true })
      .waitFor();
  }
  // What a sandbox left on a node that will never return is given up by itself.
  await page.getByRole("button", { name: "Discard what is left elsewhere" }).click();
  await dialog().getByText("what host and of a node that is gone may still hold").waitFor();
  await isClean(page, "discard-former");
  const sent = page.waitForRequest((one) => one.url().endsWith("/discard"));
  await page.route("**/discard", (route) => route.fulfill({ status: 200, json: {} }));
  await dialog().getByRole("button", { name: "Discard what is left" }).click();
  expect((await sent).postDataJSON()).toEqual({ former_computes: true });
  await closed();
  // What is being answered is answered before.
  await page.unrouteAll({ behavior: "wait" });
});

test("a reset waits for a node that is away, says for which, and is forced, canceled and completed", async () => {
  node.disconnect();
  await page.getByRole("link", { name: "Sandbox and scheduling" }).click();
  await page.getByRole("button", { name: "Reset deployment" }).click();
  await dialog().getByRole("button", { name: "Reset deployment" }).click();
  await closed();
  await comes(page.getByText("Offline nodes must come back so Core can confirm their cleanup."));
  await comes(page.getByText(/^host: \d sandbox/));
  await page.getByText(/^Forced in /).waitFor();
  await isClean(page, "reset-running");
  await page.getByRole("link", { name: "Overview" }).click();
  await page.getByRole("heading", { name: "Reset" }).waitFor();
  await isClean(page, "overview-reset");
  await page.getByRole("link", { name: "Sandbox and scheduling" }).click();
  expect(await page.getByRole("button", { name: "Change resources" }).isDisabled()).toBe(true);

  await page.getByRole("button", { name: "Cancel reset" }).click();
  await dialog().getByText("Stops the remaining work. Archived Sessions stay archived.").waitFor();
  await isClean(page, "reset-cancel");
  await dialog().getByRole("button", { name: "Cancel reset" }).click();
  await closed();
  await page.getByRole("button", { name: "Reset deployment" }).click();
  await dialog().getByRole("button", { name: "Reset deployment" }).click();
  await closed();
  await page.getByRole("button", { name: "Force reset now" }).click();
  await dialog().getByText("Cancels running work now.").waitFor();
  await isClean(page, "reset-force");
  await dialog().getByRole("button", { name: "Force reset now" }).click();
  await closed();
  await page.getByRole("button", { name: "Force reset now" }).waitFor({ state: "detached" });
  await node.connect();
  await page
    .getByText("Reset complete. Set up the new backend, then add nodes again.")
    .waitFor({ timeout: 60_000 });
});
