// The first sandbox configuration, and the Runtime that a later one may take.

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
});
afterAll(async () => {
  await browser?.close();
});
beforeEach(async () => {
  core = await Core.start();
  page = await open(browser, core);
});
afterEach(async () => {
  await page.context().close();
  await core.remove();
});

interface Saved {
  provider: string;
  specification: { resources: object; runtime: { source_commit: string }; workspace?: object };
}

const saved = () => core.ask<Saved>("GET", "/core/v1/sandbox/deployment");
const press = (name: string) => page.getByRole("main").getByRole("button", { name, exact: true }).click();
const dialog = () => page.getByRole("dialog");

// req: G-011, G-012
test("own machines get a backend and a size, step by step, with this Core's Runtime", async () => {
  await signIn(page, core);
  await page.getByRole("link", { name: "Set up sandboxes" }).click();
  expect(await page.getByLabel("Own machines").isChecked()).toBe(true);
  await press("Next");
  expect(await page.getByLabel("microsandbox").isChecked()).toBe(true);
  await isClean(page, "setup-backend");
  await press("Next");
  await page.getByText("2 CPUs, 4.0 GiB, 8.0 GiB root and 8.0 GiB environment disk").waitFor();
  await page.getByLabel("Custom").check();
  expect(await page.getByRole("textbox", { name: "Memory (MiB)" }).inputValue()).toBe("4096");
  await page.getByRole("textbox", { name: "CPUs" }).fill("0");
  await press("Next");
  await page.getByText("Enter 1 to 255.").waitFor();
  await isClean(page, "setup-size");
  await page.getByLabel("Small").check();
  await press("Next");
  // Without a release there is nothing to run.
  await page
    .getByText("This console has no Runtime for microsandbox: publish a release of it first.")
    .waitFor();
  expect(await page.getByRole("button", { name: "Save configuration" }).isDisabled()).toBe(true);
  await isClean(page, "setup-no-runtime");
  const made = await core.publish();
  await press("Try again");
  await page.getByText(made.commit.slice(0, 12)).waitFor();
  await isClean(page, "setup-review");
  await press("Back");
  expect(await page.getByLabel("Small").isChecked()).toBe(true);
  await press("Next");
  const sent = page.waitForRequest((one) => one.method() === "POST");
  await press("Save configuration");
  expect((await sent).postDataJSON()).toEqual({
    expected_generation: 0,
    provider: "microsandbox",
    resources: { cpus: 1, memory_mib: 2048, root_disk_mib: 4096, environment_disk_mib: 4096 },
    runtime: made.runtime.microsandbox,
  });
  // Whether this Core has that backend or not, it has the other one.
  await page.getByText(/microsandbox is not built into this Core yet/).waitFor();
  await isClean(page, "setup-refused");
  await press("Back");
  await press("Back");
  await page.getByLabel("Docker").click();
  await dialog().getByRole("button", { name: "Use Docker" }).click();
  await press("Next");
  expect(await page.getByLabel("Small").isChecked()).toBe(true);
  await press("Next");
  await press("Save configuration");
  await page.getByRole("button", { name: "Change resources" }).waitFor();
  expect(await saved()).toMatchObject({
    provider: "docker",
    specification: { resources: { cpus: 1, memory_mib: 1024 }, runtime: made.runtime.docker },
  });
});

test("Docker is asked for once, and has neither disks nor suspension", async () => {
  const made = await core.publish();
  await signIn(page, core, "/settings/sandbox");
  await press("Advanced");
  await page.getByLabel("Docker").click();
  await dialog()
    .getByText("Containers share the host kernel, and the node is root-equivalent. Use Docker?")
    .waitFor();
  await isClean(page, "setup-docker");
  await page.keyboard.press("Escape");
  await dialog().waitFor({ state: "detached" });
  expect(await page.getByLabel("microsandbox").isChecked()).toBe(true);
  await page.getByLabel("Store id").fill("7d0c4f9e-6f0e-4a4c-9d0b-0e8f1f2a3b4c");
  await press("Save configuration");
  await page.getByText("Enter both, or neither.").waitFor();
  await isClean(page, "setup-advanced");
  await page.getByLabel("Docker").click();
  await dialog().getByRole("button", { name: "Use Docker" }).click();
  await page.getByLabel("microsandbox").check();
  await page.getByLabel("Docker").check();
  expect(await dialog().count()).toBe(0);
  expect(await page.getByText(/disk|Store id/).count()).toBe(0);
  await page.getByLabel("Large").check();
  await press("Save configuration");
  await page.getByRole("button", { name: "Change resources" }).waitFor();
  expect(await page.getByText(/suspen|retain/i).count()).toBe(0);
  expect(await saved()).toMatchObject({
    provider: "docker",
    specification: { resources: { cpus: 4, memory_mib: 4096 }, runtime: made.runtime.docker },
  });
  expect((await saved()).specification.workspace).toBeUndefined();
});

test("a workspace takes the place of the environment disk", async () => {
  await core.publish();
  await signIn(page, core, "/settings/sandbox");
  await press("Advanced");
  await page.getByLabel("Store id").fill("7d0c4f9e-6f0e-4a4c-9d0b-0e8f1f2a3b4c");
  await page.getByLabel("Mount").fill("/mnt/work");
  const sent = page.waitForRequest((one) => one.method() === "POST");
  await press("Save configuration");
  expect((await sent).postDataJSON()).toMatchObject({
    resources: { cpus: 2, memory_mib: 4096, root_disk_mib: 8192 },
    workspace: { store_id: "7d0c4f9e-6f0e-4a4c-9d0b-0e8f1f2a3b4c", mount: "/mnt/work", kind: "nfs" },
  });
  expect((await sent).postDataJSON().resources.environment_disk_mib).toBeUndefined();
});

// inv: INV-W14
test("what was chosen stays when somebody else saves meanwhile, and is not saved over it", async () => {
  await core.publish();
  await signIn(page, core, "/settings/sandbox");
  await press("Advanced");
  await page.getByLabel("Large").check();
  await core.deploy("docker", 3);
  await press("Save configuration");
  await page.getByText("Somebody saved a configuration meanwhile: Docker, 3 CPUs, 3.0 GiB.").waitFor();
  expect(await page.getByLabel("Large").isChecked()).toBe(true);
  await isClean(page, "setup-meanwhile");
  expect((await saved()).provider).toBe("docker");
  await press("Show what was saved");
  await page.getByRole("button", { name: "Change resources" }).waitFor();
});

test("a newer Runtime is offered, and taken only when it is asked for", async () => {
  await core.deploy();
  const before = (await saved()).specification.runtime.source_commit;
  const made = await core.publish({ digit: "e" });
  await signIn(page, core, "/settings/sandbox");
  await press("Change resources");
  const offer = dialog().getByLabel(`Use Runtime ${made.commit.slice(0, 12)}`);
  expect(await offer.isChecked()).toBe(false);
  await isClean(page, "resources-runtime");
  await dialog().getByLabel("Small").check();
  await dialog().getByRole("button", { name: "Save" }).click();
  await dialog().waitFor({ state: "detached" });
  expect((await saved()).specification).toMatchObject({
    resources: { cpus: 1, memory_mib: 1024 },
    runtime: { source_commit: before },
  });
  await press("Change resources");
  await offer.check();
  await dialog().getByRole("button", { name: "Save" }).click();
  await dialog().waitFor({ state: "detached" });
  expect((await saved()).specification).toMatchObject({
    resources: { cpus: 1, memory_mib: 1024 },
    runtime: made.runtime.docker,
  });
  await press("Change resources");
  await dialog().getByLabel("Current").waitFor();
  expect(
    await dialog()
      .getByText(/Use Runtime/)
      .count(),
  ).toBe(0);
});

// req: G-177, G-047, G-175
// inv: INV-W19
test("microsandbox has suspension and a limit of retained sandboxes", async () => {
  await core.deploy();
  await core.publish();
  await SimulatedNode.enroll(core, "roomy");
  // As Core shows a deployment of microsandbox.
  await page.route("**/core/v1/sandbox/deployment", async (route) => {
    const response = await route.fetch();
    const found = await response.json();
    const resources = { cpus: 2, memory_mib: 4096, root_disk_mib: 8192, environment_disk_mib: 8192 };
    await route.fulfill({
      response,
      json: {
        ...found,
        provider: "microsandbox",
        suspension: { idle_seconds: 300, retention_seconds: 86_400 },
        specification: { ...found.specification, provider: "microsandbox", resources },
      },
    });
  });
  await signIn(page, core, "/settings/sandbox");
  await page.getByLabel("Idle before suspension (seconds)").fill("59");
  await press("Save");
  await page.getByText("Enter 60 to 86,400.").waitFor();
  await isClean(page, "sandbox-microsandbox");
  await page.getByLabel("Idle before suspension (seconds)").fill("600");
  const patched = page.waitForRequest("**/deployment/suspension");
  await page.route("**/deployment/suspension", (route) => route.fulfill({ status: 200, json: {} }));
  await press("Save");
  expect((await patched).postDataJSON()).toEqual({ idle_seconds: 600, retention_seconds: 86_400 });
  await page.getByText("Saved.").waitFor();
  await page.getByRole("link", { name: "Nodes" }).click();
  await page.getByRole("button", { name: "Add node" }).click();
  await dialog().getByLabel("Custom").check();
  expect(await dialog().getByLabel("Retained sandboxes").inputValue()).toBe("8");
  await dialog().getByLabel("Retained sandboxes").fill("1");
  await dialog().getByRole("button", { name: "Generate command" }).click();
  await dialog().getByText("Retained sandboxes must be at least Sandboxes at once.").waitFor();
  await isClean(page, "add-custom-microsandbox");
  const asked = page.waitForRequest("**/enrollment-tokens");
  await dialog().getByLabel("Retained sandboxes").fill("5");
  await dialog().getByRole("button", { name: "Generate command" }).click();
  expect((await asked).postDataJSON()).toEqual({ max_active: 2, max_retained: 5 });
  // Core knows better than the page's answers: this deployment is one of Docker.
  await dialog().getByRole("alert").waitFor();
  await page.keyboard.press("Escape");
  await dialog().waitFor({ state: "detached" });
  const roomy = page.getByRole("row", { name: /roomy/ });
  await roomy.getByRole("button", { name: "Edit node" }).click();
  expect(await dialog().getByLabel("Retained sandboxes").inputValue()).toBe("4");
  await dialog().getByLabel("Sandboxes at once").fill("6");
  await dialog().getByRole("button", { name: "Save" }).click();
  await dialog().getByText("Retained sandboxes must be at least Sandboxes at once.").waitFor();
  await isClean(page, "edit-microsandbox");
  await dialog().getByLabel("Retained sandboxes").fill("9");
  const edited = page.waitForRequest((one) => one.method() === "PATCH");
  await dialog().getByRole("button", { name: "Save" }).click();
  expect((await edited).postDataJSON()).toEqual({ name: "roomy", max_active: 6, max_retained: 9 });
});
