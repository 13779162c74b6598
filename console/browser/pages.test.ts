// The pages as a person sees them: each one in both schemes and widths, and what is done on it.

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Core, until } from "./core.ts";
import { SimulatedNode } from "./node.ts";
import { illustrate, isClean, launch, open, signIn } from "./page.ts";

let browser: Browser;
let core: Core;
let page: Page;
let bad: SimulatedNode;
/** Requests to other origins, and what the policy refused. */
const elsewhere: string[] = [];

beforeAll(async () => {
  browser = await launch();
  core = await Core.start();
  page = await open(browser, core);
  page.on("request", (request) => {
    elsewhere.push(...(request.url().startsWith(`${core.url}/`) ? [] : [request.url()]));
  });
  page.on("console", (message) => {
    elsewhere.push(...(/Content Security Policy/.test(message.text()) ? [message.text()] : []));
  });
});
afterAll(async () => {
  await browser?.close();
  await core?.remove();
});

const row = (name: string) => page.getByRole("row", { name: new RegExp(name) });
const dialog = () => page.getByRole("dialog");
const closed = () => dialog().waitFor({ state: "detached" });

async function menu(name: string, action: string): Promise<void> {
  await page.getByRole("button", { name: `More actions for ${name}` }).click();
  await page.getByRole("menuitem", { name: action, exact: true }).click();
}

const header = (action: string) =>
  page.getByRole("main").getByRole("button", { name: action, exact: true }).first();

test("a wrong key is refused beside its field, a right one opens Overview", async () => {
  await page.goto("/");
  await page.getByLabel("Core key").fill("oac_core_wrong");
  await isClean(page, "sign-in");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").getByText("This Core key is not accepted.").waitFor();
  expect(await page.getByLabel("Core key").inputValue()).toBe("oac_core_wrong");
  await isClean(page, "sign-in-refused");
  await signIn(page, core);
  await page.getByText("No sandbox configuration yet.").waitFor();
  await isClean(page, "overview-empty");
});

test("neither storage, address nor what scripts can read holds the key or the session", async () => {
  const held = await page.evaluate(() =>
    JSON.stringify([
      { ...localStorage },
      { ...sessionStorage },
      window.location.href,
      document.title,
      document.cookie,
      document.documentElement.outerHTML,
    ]),
  );
  expect(held).not.toContain(core.key.slice("oac_core_".length));
  expect(held).not.toContain("oac_console");
  expect(await core.log()).not.toContain(core.key.slice("oac_core_".length));
});

test("empty pages say what is missing", async () => {
  await page.getByRole("link", { name: "Nodes" }).click();
  await page.getByText("No nodes yet.").waitFor();
  await isClean(page, "nodes-empty");
  await page.getByRole("link", { name: "Sandbox and scheduling" }).click();
  await page.getByText("No sandbox configuration yet.").waitFor();
  await isClean(page, "setup-where");
  await page.goto("/settings/nowhere");
  await page.getByRole("heading", { name: "Page not found" }).waitFor();
  await isClean(page, "not-found");
});

// req: G-163
test("Installation details shows the installation's id whole, and the public address its verdict", async () => {
  const id = await core.installation();
  await page.goto("/settings/service");
  const details = page.locator("section").filter({ hasText: "Installation details" });
  await details.getByText("Installation ID").waitFor();
  await details.getByText(id, { exact: true }).waitFor();
  await page.getByText("Other machines can reach Core under this address.").waitFor();
  await isClean(page, "service");
});

// req: G-170, G-171, G-251, G-253, G-266
test("Nodes shows each node's one status, its configuration and the reason in a tip", async () => {
  await core.deploy();
  const good = await (await SimulatedNode.enroll(core, "good")).connect();
  bad = await (await SimulatedNode.enroll(core, "bad")).connect();
  bad.beat({ provider_ready: false, diagnostic: "capacity_insufficient" });
  await SimulatedNode.enroll(core, "away");
  await core.ask("PUT", `/core/v1/sandbox/nodes/${good.id}/labels`, { labels: { zone: "west" } });
  await page.goto("/nodes");
  await row("good").getByText("Available").waitFor();
  await row("good").getByText("Ready for target").waitFor();
  await row("away").getByText("Offline").waitFor();
  await row("bad").getByText("Provider not ready").waitFor();
  await row("bad").getByText("Preparation failed").waitFor();
  await illustrate(page, "nodes");
  const tips = row("bad").getByRole("button", { name: "Help" });
  await tips.first().focus();
  expect(await row("bad").getByRole("tooltip").allInnerTexts()).toContain("Sandbox provider unavailable");
  await page.keyboard.press("Escape");
  await row("bad").getByRole("tooltip").first().waitFor({ state: "hidden" });
  // Escape closes what the pointer opened too, and the pointer takes none from the focus.
  const help = row("bad").getByRole("button", { name: "Help" }).first();
  const tip = row("bad").getByRole("tooltip").first();
  await page.getByRole("heading", { name: "Nodes" }).focus();
  await help.hover();
  await tip.waitFor();
  await page.keyboard.press("Escape");
  await tip.waitFor({ state: "hidden" });
  await help.focus();
  await tip.waitFor();
  await page.mouse.move(0, 0);
  expect(await tip.isVisible()).toBe(true);
  await page.keyboard.press("Escape");
  await tip.waitFor({ state: "hidden" });
  await tips.last().focus();
  await row("bad").getByText("Host too small").waitFor();
  expect(await page.getByText(/suspended|retained|snapshots/i).count()).toBe(0);
  await isClean(page, "nodes");
  await page.getByRole("link", { name: "Overview" }).click();
  await page.getByRole("link", { name: "bad" }).waitFor();
  await page.getByRole("main").getByText("Provider not ready").first().waitFor();
  await isClean(page, "overview");
});

// req: G-262, G-264, G-266, G-269, G-272
test("every code that a node may report has its tip", async () => {
  for (const [code, text] of [
    ["provider_unavailable", "Sandbox provider unavailable"],
    ["host_unsupported", "Host unsupported"],
    ["runtime_image_unavailable", "Runtime image missing"],
    ["artifacts_unavailable", "Provider files missing"],
    ["capacity_insufficient", "Host too small"],
  ] as const) {
    bad.beat({ diagnostic: code });
    await until(async () => {
      const all = await core.ask<{ data: { name: string; rollout: { diagnostic?: string } }[] }>(
        "GET",
        "/core/v1/sandbox/nodes",
      );
      return all.data.find((node) => node.name === "bad")?.rollout.diagnostic === code ? true : undefined;
    }, code);
    await page.goto("/nodes");
    await row("bad").getByRole("button", { name: "Help" }).last().focus();
    await row("bad").getByRole("tooltip").getByText(text, { exact: true }).waitFor();
    expect(await row("bad").getByRole("tooltip").allInnerTexts()).toEqual([text]);
  }
});

// req: G-049, G-050, G-175
// inv: INV-W14
test("Edit node fills in the recommendation and keeps what was typed until Core has it", async () => {
  await page.goto("/nodes");
  const edit = row("good").getByRole("button", { name: "Edit node" });
  await edit.focus();
  await page.keyboard.press("Enter");
  await dialog().getByText("Recommended: 3 at once").waitFor();
  expect(await dialog().getByText("Retained").count()).toBe(0);
  await isClean(page, "edit");
  await dialog().getByRole("button", { name: "Use recommended" }).click();
  expect(await dialog().getByLabel("Sandboxes at once").inputValue()).toBe("3");
  await dialog().getByLabel("Sandboxes at once").fill("0");
  await dialog().getByRole("button", { name: "Save" }).click();
  await dialog().getByText("Enter a whole number from 1 to 1,000,000.").waitFor();
  await dialog().getByLabel("Sandboxes at once").fill("5");
  await dialog().getByLabel("Name").fill("better");
  await page.keyboard.press("Enter");
  await closed();
  await row("better").getByText("0 / 5").waitFor();
  expect(
    await edit
      .or(row("better").getByRole("button", { name: "Edit node" }))
      .evaluate((one) => one === document.activeElement),
  ).toBe(true);
});

// inv: INV-W13, INV-W14
test("a lost answer is looked into and never sent again", async () => {
  let sent = 0;
  const path = "**/core/v1/sandbox/nodes/*";
  // Core does as it is told, and its answer is lost on the way.
  await page.route(path, async (route) => {
    if (route.request().method() !== "PATCH") {
      return route.fallback();
    }
    sent += 1;
    await route.fetch();
    return route.abort();
  });
  await row("better").getByRole("button", { name: "Edit node" }).click();
  await dialog().getByLabel("Sandboxes at once").fill("4");
  await dialog().getByRole("button", { name: "Save" }).click();
  await closed();
  await row("better").getByText("0 / 4").waitFor();
  await page.unrouteAll({ behavior: "wait" });
  // This time Core never gets it.
  await page.route(path, async (route) => {
    if (route.request().method() !== "PATCH") {
      return route.fallback();
    }
    sent += 1;
    return route.abort();
  });
  await row("better").getByRole("button", { name: "Edit node" }).click();
  await dialog().getByLabel("Sandboxes at once").fill("6");
  await dialog().getByRole("button", { name: "Save" }).click();
  await dialog().getByText("Core did not confirm the change. It was not made").waitFor();
  expect(await dialog().getByLabel("Sandboxes at once").inputValue()).toBe("6");
  await page.unrouteAll({ behavior: "wait" });
  await dialog().getByRole("button", { name: "Save" }).click();
  await closed();
  await row("better").getByText("0 / 6").waitFor();
  expect(sent).toBe(2);
});

test("labels are edited one to a line", async () => {
  await menu("better", "Edit labels");
  expect(await dialog().getByLabel("Labels").inputValue()).toBe("zone=west");
  await dialog().getByLabel("Labels").fill("zone=east\nWrong");
  await dialog().getByRole("button", { name: "Save" }).click();
  await dialog().getByText("Line 2 is no label").waitFor();
  await isClean(page, "labels");
  await dialog().getByLabel("Labels").fill("zone=east\ndisk=fast");
  await dialog().getByRole("button", { name: "Save" }).click();
  await closed();
  await row("better").getByRole("link").click();
  await page.getByRole("heading", { name: "better" }).waitFor();
  await page.getByText("zone=east").waitFor();
  await page.getByText("No sandboxes on this node.").waitFor();
  await page.getByText("CPU, highest per interval").first().waitFor();
  await isClean(page, "node");
});

// inv: INV-W18
test("a chart has a gap where nothing was measured, and its table holds the same values", async () => {
  const history = "**/core/v1/sandbox/nodes/*?range=1h";
  let points: { cpu_utilization_max: number | null }[] = [];
  await page.route(history, async (route) => {
    const answer = await route.fetch();
    const detail = await answer.json();
    // Core's clock, by the interval that it has not finished.
    const now = Math.floor(Date.parse(answer.headers().date ?? "") / 60_000) * 60_000;
    points = Array.from({ length: 60 }, (_, at) => ({
      start: new Date(now - (60 - at) * 60_000).toISOString().replace(".000Z", "Z"),
      cpu_utilization_max: at > 20 && at < 30 ? null : at === 40 || at === 42 ? null : 0.2 + at / 100,
      memory_used_bytes_max: at * 2 ** 28,
      available_disk_bytes_min: (200 - at) * 2 ** 30,
    }));
    await route.fulfill({
      response: answer,
      json: { ...detail, history: { resolution_seconds: 60, points } },
    });
  });
  await page.reload();
  const chart = page.getByRole("figure").filter({ hasText: "CPU" });
  await chart.getByText(/79 % at /).waitFor();
  expect(await chart.locator("polyline").count()).toBe(3);
  expect(await chart.locator(".dot").count()).toBe(1);
  await illustrate(page, "node");
  await chart.getByText("Show as table").click();
  const cells = await chart.getByRole("cell").allInnerTexts();
  expect(cells).toEqual(
    points
      .map(({ cpu_utilization_max: value }) => (value === null ? "–" : `${Math.round(value * 100)} %`))
      .reverse(),
  );
  await isClean(page, "charts");
  await page.unrouteAll({ behavior: "wait" });
});

test("a node is cordoned, uncordoned and drained, each after a question", async () => {
  await header("Cordon").click();
  await dialog().getByText("No new sandboxes will be placed here. Running ones continue.").waitFor();
  await isClean(page, "cordon");
  await dialog().getByRole("button", { name: "Cordon" }).click();
  await closed();
  await page.getByRole("main").getByText("Cordoned").waitFor();
  await header("Uncordon").click();
  await dialog().getByRole("button", { name: "Uncordon" }).click();
  await closed();
  await page.getByRole("main").getByText("Cordoned").waitFor({ state: "detached" });
  await header("Drain").click();
  await dialog().getByLabel("Deadline (seconds)").fill("59");
  await dialog().getByRole("button", { name: "Start drain" }).click();
  await dialog().getByText("Enter 60 to 604,800.").waitFor();
  await isClean(page, "drain");
  await dialog().getByLabel("Deadline (seconds)").fill("600");
  await dialog().getByRole("button", { name: "Start drain" }).click();
  await closed();
  // A node without sandboxes is drained at once.
  await page.getByRole("main").getByText("Cordoned").waitFor();
});

// req: G-203, G-204
test("a node is removed for good from its row or its page, and not before Confirm removal", async () => {
  let removals = 0;
  page.on("request", (one) => {
    removals += one.method() === "DELETE" ? 1 : 0;
  });
  await page.goto("/nodes");
  await row("away").getByRole("button", { name: "Remove", exact: true }).click();
  await dialog().getByText("Remove away?").waitFor();
  await dialog().getByText("Removal is permanent").waitFor();
  await isClean(page, "remove");
  await page.keyboard.press("Escape");
  await closed();
  await row("away").getByRole("link").click();
  await page.getByRole("heading", { name: "away" }).waitFor();
  await header("Remove node").click();
  await dialog().getByText("Remove away?").waitFor();
  await dialog().getByRole("button", { name: "Cancel" }).click();
  await closed();
  await page.goBack();
  await row("away").getByRole("button", { name: "Remove", exact: true }).click();
  await dialog().getByText("Remove away?").waitFor();
  expect(removals).toBe(0);
  expect(
    (await core.ask<{ data: { name: string }[] }>("GET", "/core/v1/sandbox/nodes")).data.map(
      ({ name }) => name,
    ),
  ).toContain("away");
  await dialog().getByRole("button", { name: "Confirm removal" }).click();
  await page.getByRole("dialog", { name: "Clean up the host" }).getByText("away is removed.").waitFor();
  await dialog().getByRole("button", { name: "Close" }).click();
  await row("away").waitFor({ state: "detached" });
});

test("the audit log lists what was done, newest first", async () => {
  await page.getByRole("link", { name: "Audit log" }).click();
  const rows = page.getByRole("row");
  await rows.nth(1).getByText("remove").waitFor();
  await page
    .getByRole("row", { name: /cordon/ })
    .first()
    .waitFor();
  await isClean(page, "audit");
});

// req: G-165
// inv: INV-W15
test("Change resources saves a size, and a configuration that changed meanwhile is reviewed first", async () => {
  await page.goto("/settings/sandbox");
  await page.getByRole("button", { name: "Change resources" }).click();
  await dialog().getByText("Existing sandboxes keep their configuration.").waitFor();
  await isClean(page, "resources");
  await dialog().getByLabel("Custom").check();
  await dialog().getByRole("textbox", { name: "CPUs" }).fill("300");
  await dialog().getByRole("button", { name: "Save" }).click();
  await dialog().getByText("Enter 1 to 255.").waitFor();
  await core.deploy("docker", 3);
  await dialog().getByRole("textbox", { name: "CPUs" }).fill("4");
  await dialog().getByRole("button", { name: "Save" }).click();
  await dialog().getByText("The configuration changed meanwhile. Review it and save again.").waitFor();
  await dialog().getByText("Now: 3", { exact: true }).waitFor();
  expect(await dialog().getByRole("textbox", { name: "CPUs" }).inputValue()).toBe("4");
  await isClean(page, "resources-stale");
  await dialog().getByRole("button", { name: "Save" }).click();
  await closed();
  await page.getByText("4 CPUs, 2.0 GiB").waitFor();
  await isClean(page, "sandbox");
});

// inv: INV-W15
test("a reset dialog sends nothing once the deployment changed", async () => {
  await page.getByRole("button", { name: "Reset deployment" }).click();
  await dialog().getByLabel("Auto reset").waitFor();
  await isClean(page, "reset");
  await core.deploy("docker", 2);
  // The window gets the focus, and the page reads.
  await page.evaluate(() => window.dispatchEvent(new Event("focus")));
  await dialog().getByText("The deployment changed. Close and start again.").waitFor();
  expect(await dialog().getByRole("button", { name: "Reset deployment" }).isDisabled()).toBe(true);
  await dialog().getByRole("button", { name: "Cancel" }).click();
  await closed();
});

// req: G-179
test("a reset is followed to its end, after which a backend can be set up anew", async () => {
  await page.getByText("To change the backend, reset the deployment first.").waitFor();
  expect(await page.getByLabel("microsandbox").count()).toBe(0);
  await page.getByRole("button", { name: "Reset deployment" }).click();
  await dialog().getByLabel("Deadline (seconds)").fill("299");
  await dialog().getByRole("button", { name: "Reset deployment" }).click();
  await dialog().getByText("Enter 300 to 86,400.").waitFor();
  await dialog().getByLabel("Force reset").check();
  await dialog().getByRole("button", { name: "Reset deployment" }).click();
  await closed();
  await page.getByText("Reset complete. Set up the new backend, then add nodes again.").waitFor();
  await isClean(page, "reset-complete");
  await page.getByRole("main").getByRole("button", { name: "Next" }).click();
  for (const backend of ["microsandbox", "Docker"]) {
    expect(await page.getByLabel(backend).isEnabled()).toBe(true);
  }
});

test("signing out leaves nothing behind", async () => {
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Core key").waitFor();
  await page.goto("/nodes");
  await page.getByLabel("Core key").waitFor();
  expect(await page.context().cookies()).toEqual([]);
});

// inv: INV-W2
test("on no page was anything asked of another origin or refused by the policy", async () => {
  const policy = (await page.request.get("/")).headers()["content-security-policy"];
  expect(policy).toBe("default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'");
  expect(elsewhere).toEqual([]);
});
