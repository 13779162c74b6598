// Every dialog that writes, while its write is under way and after each way in which it fails.

import type { Browser, Page, Route } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { Core } from "./core.ts";
import { SimulatedNode } from "./node.ts";
import { launch, open, signIn } from "./page.ts";

let browser: Browser;
let core: Core;
let page: Page;

beforeAll(async () => {
  browser = await launch();
  core = await Core.start();
  await core.deploy();
  await core.publish();
  await SimulatedNode.enroll(core, "plain");
  const held = await SimulatedNode.enroll(core, "held");
  await core.ask("POST", `/core/v1/sandbox/nodes/${held.id}/cordon`, {});
});
afterAll(async () => {
  await browser?.close();
  await core?.remove();
});
beforeEach(async () => {
  page = await open(browser, core);
  await signIn(page, core);
});
afterEach(async () => {
  await page.unrouteAll({ behavior: "wait" });
  await page.context().close();
});

const dialog = () => page.getByRole("dialog");
const row = (name: string) => page.getByRole("row", { name: new RegExp(name) });

async function button(name: string): Promise<void> {
  await row("plain").getByRole("button", { name, exact: true }).click();
}

async function menu(node: string, action: string): Promise<void> {
  await row(node)
    .getByRole("button", { name: `More actions for ${node}` })
    .click();
  await page.getByRole("menuitem", { name: action, exact: true }).click();
}

async function settings(name: string): Promise<void> {
  await page.getByRole("link", { name: "Sandbox and scheduling" }).click();
  await page.getByRole("button", { name, exact: true }).click();
}

const NOT_MADE = "Core did not confirm the change. It was not made";
const DIALOGS: { name: string; opened: () => Promise<void>; submit: string; lost?: string }[] = [
  { name: "Edit node", opened: () => button("Edit node"), submit: "Save" },
  { name: "Edit labels", opened: () => menu("plain", "Edit labels"), submit: "Save" },
  { name: "Cordon", opened: () => menu("plain", "Cordon"), submit: "Cordon" },
  { name: "Uncordon", opened: () => menu("held", "Uncordon"), submit: "Uncordon" },
  { name: "Drain", opened: () => menu("plain", "Drain"), submit: "Start drain" },
  { name: "Remove node", opened: () => button("Remove"), submit: "Confirm removal" },
  {
    name: "Add node",
    opened: () => page.getByRole("button", { name: "Add node" }).click(),
    submit: "Generate command",
    lost: "Core did not confirm the change. A command that nobody saw expires unused: generate another.",
  },
  { name: "Change resources", opened: () => settings("Change resources"), submit: "Save" },
  { name: "Reset deployment", opened: () => settings("Reset deployment"), submit: "Reset deployment" },
];

const refused = (status: number, code: string) => ({
  status,
  json: { error: { type: "conflict_error", code, message: "Not now.", param: null } },
});

test.each(DIALOGS)(
  "$name sends once a click, stays while it is sent, and says how it failed",
  async (one) => {
    await page.getByRole("link", { name: "Nodes" }).click();
    await one.opened();
    const shown = page.getByRole("dialog", { name: one.name });
    const submit = shown.getByRole("button", { name: one.submit, exact: true });
    // Labels and limits as they are would be no change: then a read could not tell.
    if (one.submit === "Save") {
      await change(one.name);
    }
    let sent = 0;
    let release = () => {};
    let answer: (route: Route) => Promise<void> = async () => {};
    await page.route("**/core/v1/sandbox/**", async (route) => {
      if (route.request().method() === "GET") {
        return route.fallback();
      }
      sent += 1;
      await new Promise<void>((resolve) => {
        release = resolve;
      });
      return answer(route);
    });

    await submit.dblclick();
    await page.waitForFunction(() => document.querySelector("dialog [aria-busy=true]") !== null);
    await page.keyboard.press("Escape");
    await page.keyboard.press("Escape");
    await page.keyboard.press("Enter");
    expect(await shown.isVisible()).toBe(true);
    answer = (route) => route.fulfill(refused(409, "of_a_test"));
    await expect.poll(() => sent).toBe(1);
    release();
    await shown.getByRole("alert").getByText("Not now. (of_a_test)").waitFor();
    expect(sent).toBe(1);

    await submit.click();
    answer = (route) => route.fulfill(refused(503, "core_standby"));
    await expect.poll(() => sent).toBe(2);
    release();
    await shown.getByRole("alert").getByText("Not now. (core_standby)").waitFor();

    // The session ended: a read may have found out before, and asked for the key over the dialog.
    await page.context().clearCookies();
    await submit.evaluate((element: HTMLElement) => element.click());
    answer = (route) => route.continue();
    await expect.poll(() => sent).toBe(3);
    release();
    const again = page.getByRole("dialog", { name: "Sign in again" });
    await again.getByLabel("Core key").fill(core.key);
    await again.getByRole("button", { name: "Sign in" }).click();
    await again.waitFor({ state: "detached" });

    await submit.click();
    answer = (route) => route.abort();
    await expect.poll(() => sent).toBe(4);
    release();
    await shown
      .getByRole("alert")
      .getByText(one.lost ?? NOT_MADE)
      .waitFor();
    expect(sent).toBe(4);
    if (one.submit === "Save") {
      await isKept(one.name);
    }
    await shown.getByRole("button", { name: "Cancel", exact: true }).click();
    await dialog().waitFor({ state: "detached" });
  },
);

async function change(name: string): Promise<void> {
  if (name === "Change resources") {
    await dialog().getByLabel("Large").check();
  } else {
    const [label, text] = name === "Edit node" ? ["Name", "typed"] : ["Labels", "zone=typed"];
    await dialog()
      .getByLabel(label as string)
      .fill(text as string);
  }
}

async function isKept(name: string): Promise<void> {
  if (name === "Change resources") {
    expect(await dialog().getByLabel("Large").isChecked()).toBe(true);
  } else {
    const label = name === "Edit node" ? "Name" : "Labels";
    expect(await dialog().getByLabel(label).inputValue()).toMatch(/typed$/);
  }
}
