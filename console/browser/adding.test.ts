// Adding a node and giving a host back, as a person does it: what stands in the way, the command byte for byte, and how
// far the node came that ran it.

import { execFile } from "node:child_process";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { Core } from "./core.ts";
import { SimulatedNode } from "./node.ts";
import { illustrate, isClean, launch, open, signIn } from "./page.ts";
import type { Made } from "./release.ts";

const run = promisify(execFile);
let browser: Browser;
let core: Core;
let page: Page;
let made: Made;

beforeAll(async () => {
  browser = await launch();
  core = await Core.start();
  await core.deploy();
  made = await core.publish();
});
afterAll(async () => {
  await browser?.close();
  await core?.remove();
});
beforeEach(async () => {
  page = await open(browser, core, { permissions: ["clipboard-read", "clipboard-write"] });
});
afterEach(async () => {
  await page.context().close();
});

const dialog = () => page.getByRole("dialog");
const closed = () => dialog().waitFor({ state: "detached" });
const press = (name: string) => dialog().getByRole("button", { name, exact: true }).click();
const focus = () => page.evaluate(() => window.dispatchEvent(new Event("focus")));
const command = () => dialog().getByLabel("Run this command on the host.").inputValue();
const steps = () => dialog().getByRole("listitem");
const tokenOf = (line: string): string => /^ echo '([0-9a-f]{64})' \| /.exec(line)?.[1] ?? "no token";

async function openDialog(): Promise<void> {
  await signIn(page, core);
  await page.getByRole("link", { name: "Nodes" }).click();
  await page.getByRole("button", { name: "Add node" }).click();
}

async function generate(): Promise<string> {
  await openDialog();
  await press("Generate command");
  return command();
}

/** The answer to the next token's request, changed. */
async function change(answer: (created: { expires_at: string }) => object): Promise<void> {
  await page.route("**/enrollment-tokens", async (route) => {
    const response = await route.fetch();
    const created = await response.json();
    await route.fulfill({ response, json: { ...created, ...answer(created) } });
  });
}

const soon = (seconds: number) => () => ({ expires_at: new Date(Date.now() + seconds * 1000).toISOString() });

// req: G-018, G-022, G-044
test("what stands in the way of a node is said in order, and goes once it is removed", async () => {
  const bare = await Core.start({ publicUrl: null });
  try {
    const other = await open(browser, bare);
    const shown = other.getByRole("dialog");
    const looks = () => other.evaluate(() => window.dispatchEvent(new Event("focus")));
    await signIn(other, bare);
    await other.getByRole("link", { name: "Nodes" }).click();
    await other.getByRole("button", { name: "Add node" }).click();
    await shown.getByText("Save a sandbox configuration first.").waitFor();
    await isClean(other, "add-blocked");
    await bare.deploy();
    await looks();
    await shown.getByText("Set a public address other machines can reach before adding nodes").waitFor();
    expect(await shown.getByRole("link", { name: "Service and deployment" }).count()).toBe(1);
    await bare.move("http://core.example.com");
    await shown.getByRole("button", { name: "Try again" }).click();
    await shown.getByText("This console has no node files for Docker.").waitFor();
    await bare.publish({ digit: "b", missing: ["seccomp.json"] });
    await looks();
    await shown.getByText("This console has no node files for Docker.").waitFor();
    await bare.publish({ digit: "c", missing: ["node-install"] });
    await looks();
    await shown.getByText("This console has no node files for Docker.").waitFor();
    await bare.publish({ digit: "d" });
    // A reset is real as long as something is left of the deployment; what Core says of one is enough here.
    await other.route("**/core/v1/sandbox/deployment", async (route) => {
      const response = await route.fetch();
      const remaining = {
        busy: 1,
        idle: 0,
        cleanup: 0,
        on_offline_nodes: 0,
        discardable: [],
        offline_nodes: [],
      };
      const reset = {
        clear: "auto",
        requested_at: new Date().toISOString(),
        deadline_at: null,
        forced_at: null,
      };
      await route.fulfill({ response, json: { ...(await response.json()), reset: { ...reset, remaining } } });
    });
    await looks();
    await shown.getByText("A deployment reset is running. Add nodes when it is complete.").waitFor();
    await other.unrouteAll({ behavior: "wait" });
    await other.route("**/index.json", (route) => route.abort());
    await looks();
    await shown.getByText("This installation could not be read.").waitFor();
    await other.unrouteAll({ behavior: "wait" });
    await looks();
    await shown.getByLabel("Recommended limits").waitFor();
    await other.context().close();
  } finally {
    await bare.remove();
  }
});

// req: G-045, G-046
// inv: INV-W19
test("the limits are Core's, or one's own within their bounds", async () => {
  await openDialog();
  expect(await dialog().getByLabel("Recommended limits").isChecked()).toBe(true);
  await isClean(page, "add-form");
  await dialog().getByLabel("Custom").check();
  expect(await dialog().getByLabel("Sandboxes at once").inputValue()).toBe("2");
  expect(
    await dialog()
      .getByText(/retained|suspen/i)
      .count(),
  ).toBe(0);
  await dialog().getByLabel("Sandboxes at once").fill("1000001");
  await press("Generate command");
  await dialog().getByText("Enter a whole number from 1 to 1,000,000.").waitFor();
  await isClean(page, "add-custom");
  await dialog().getByLabel("Sandboxes at once").fill("3");
  const asked = page.waitForRequest("**/enrollment-tokens");
  await press("Generate command");
  expect((await asked).postDataJSON()).toEqual({ max_active: 3, max_retained: 3 });
  await dialog().getByRole("button", { name: "Copy", exact: true }).waitFor();
  // The token goes with the change of mind.
  const revoked = page.waitForRequest((one) => one.method() === "DELETE");
  await press("Change limits");
  expect((await revoked).url()).toMatch(/enrollment-tokens\/[0-9a-f-]{36}$/);
  expect(await dialog().getByLabel("Sandboxes at once").inputValue()).toBe("3");
});

/** The line that the installer document defines, from the script that both sides share. */
async function expected(token: string): Promise<string> {
  const source = await readFile(
    join(import.meta.dirname, "../../crates/oac-release/assets/bootstrap.sh"),
    "utf8",
  );
  const script = source
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "" && !line.startsWith("#"))
    .reduce((all, line) => `${all}${/( do| in|;;)$/.test(all) ? " " : "; "}${line}`);
  const id = await core.installation();
  const url = `${core.publicUrl}/api/v1/sandbox-node/install/releases/${made.commit}/artifacts/${made.installer.filename}`;
  return (
    ` echo '${token}' | sh -c '${script}' oac-node-bootstrap '${made.installer.sha256}' '${url}'` +
    ` --core-url '${core.publicUrl}' --installation-id '${id}' --provider 'docker'` +
    ` --manifest-sha256 '${made.manifestSha256}' --enrollment-token-stdin`
  );
}

/** A proxy under which the public address is the Core of this test. */
async function proxied<T>(work: (address: string) => Promise<T>): Promise<T> {
  const server = createServer((asked, answer) => {
    const { pathname } = new URL(asked.url ?? "", core.url);
    asked.pipe(
      request(`${core.url}${pathname}`, { method: asked.method, headers: asked.headers }, (from) => {
        answer.writeHead(from.statusCode ?? 500, from.headers);
        from.pipe(answer);
      }),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    return await work(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  } finally {
    server.close();
  }
}

/** Pastes the line on a host: what the installer was started with, and what it read. */
async function paste(line: string): Promise<{ arguments: string[]; token: string }> {
  const home = join(core.folder, "home");
  await rm(home, { recursive: true, force: true });
  await mkdir(join(home, "bin"), { recursive: true });
  // Whoever is not root has a sudo that only runs what it is given.
  await writeFile(
    join(home, "bin/sudo"),
    '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n',
    {
      mode: 0o755,
    },
  );
  await proxied((http_proxy) =>
    run("sh", ["-c", line], {
      cwd: home,
      env: { HOME: home, http_proxy, PATH: `${join(home, "bin")}:${process.env.PATH}` },
    }),
  );
  return {
    arguments: (await readFile(join(home, "arguments"), "utf8")).trimEnd().split("\n"),
    token: await readFile(join(home, "token"), "utf8"),
  };
}

// req: G-008, G-051, G-056, G-057, G-058
// inv: INV-W4, INV-W5
test("the command is copied byte for byte, runs on a host, and its node is followed until it is ready", async () => {
  const line = await generate();
  expect(line).toBe(await expected(tokenOf(line)));
  await dialog().getByText("It registers one node, once, and only if it runs within an hour.").waitFor();
  await dialog().getByText("Docker mode is root-equivalent. Use hosts dedicated to sandboxes.").waitFor();
  await isClean(page, "add-command");
  await press("Copy");
  await dialog().getByRole("button", { name: "Copied" }).waitFor();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(line);

  const ran = await paste(line);
  expect(ran.token).toBe(tokenOf(line));
  expect(ran.arguments.slice(0, 2)).toEqual(["--core-url", core.publicUrl]);
  expect(ran.arguments.join(" ")).not.toContain(ran.token);

  // Another node comes first, and is another command's.
  await (await SimulatedNode.enroll(core, "other")).connect();
  const node = await SimulatedNode.enroll(core, "mine", ran.token);
  await steps().filter({ hasText: "Registered mine" }).waitFor();
  await dialog().getByText("Rerun the command only on this host.").waitFor();
  expect(await dialog().getByRole("timer").count()).toBe(0);
  expect(await dialog().getByText("The node needs attention.").count()).toBe(0);
  await isClean(page, "add-registered");
  await illustrate(page, "add-node");
  node.health.provider_ready = false;
  await node.connect();
  await dialog().locator("li.done", { hasText: "Connected" }).waitFor();
  await isClean(page, "add-problem");
  node.beat({ provider_ready: true });
  await dialog().getByText("mine is ready.").waitFor();
  await isClean(page, "add-done");
  await press("Add another node");
  await dialog().getByLabel("Recommended limits").waitFor();
  node.disconnect();
});

test("without the clipboard the command is selected whole", async () => {
  await page.addInitScript(() => Object.defineProperty(navigator, "clipboard", { value: undefined }));
  const line = await generate();
  await press("Copy");
  await dialog().getByText("Press Ctrl+C to copy.").waitFor();
  expect(await page.evaluate(() => window.getSelection()?.toString())).toBe(line);
});

// inv: INV-W1
test("the token is in the command and nowhere else", async () => {
  const sent: string[] = [];
  page.on("request", (one) => sent.push(`${one.url()} ${one.postData() ?? ""}`));
  const token = tokenOf(await generate());
  await press("Close");
  await closed();
  expect(token).toMatch(/^[0-9a-f]{64}$/);
  const held = await page.evaluate(() =>
    JSON.stringify([
      { ...localStorage },
      { ...sessionStorage },
      window.location.href,
      document.title,
      document.cookie,
    ]),
  );
  expect(held).not.toContain(token);
  expect(await page.evaluate(() => Object.keys(localStorage))).toEqual(["oac.requirements-seen"]);
  expect(sent.join("\n")).not.toContain(token);
  expect(await core.log()).not.toContain(token);
  // Closing kept it; loading the page anew forgets it.
  await page.getByRole("button", { name: "Add node" }).click();
  expect(tokenOf(await command())).toBe(token);
  expect(await dialog().getByText("Linux amd64 with systemd").isVisible()).toBe(false);
  await page.reload();
  await page.getByRole("button", { name: "Add node" }).click();
  await dialog().getByLabel("Recommended limits").waitFor();
});

// req: G-054, G-055
// inv: INV-W6
test("the countdown ends in a question, and an expired command gives way to another", async () => {
  await change(soon(6));
  // The list that decides fails at first.
  let failing = true;
  await page.route("**/nodes?enrollment_id=*", (route) => (failing ? route.abort() : route.fallback()));
  await openDialog();
  await press("Generate command");
  await dialog()
    .getByRole("timer")
    .getByText(/^Expires in 0:0[1-6]$/)
    .waitFor();
  const first = tokenOf(await command());
  await dialog().getByText("Checking whether the node registered…").waitFor();
  await dialog().getByText("Expires in 0:00").waitFor();
  await isClean(page, "add-deciding");
  expect(await dialog().getByText("Command expired").count()).toBe(0);
  failing = false;
  // The pauses after failed reads have grown: somebody looks.
  await focus();
  await dialog().getByText("Command expired").waitFor();
  await isClean(page, "add-expired");
  await page.unroute("**/enrollment-tokens");
  await press("Generate new command");
  expect(tokenOf(await command())).not.toBe(first);
  await dialog()
    .getByRole("timer")
    .getByText(/^Expires in (1:00:00|59:5\d)$/)
    .waitFor();
});

// inv: INV-W7
test("a node that registered in the last second is followed, and so is one that nobody saw register", async () => {
  await change(soon(3));
  const token = tokenOf(await generate());
  await dialog().getByText("Expires in 0:01").waitFor();
  await SimulatedNode.enroll(core, "late", token);
  await steps().filter({ hasText: "Registered late" }).waitFor();
  await press("Close");
  await closed();
  await page.reload();

  await page.getByRole("button", { name: "Add node" }).click();
  await press("Generate command");
  const silent = tokenOf(await command());
  await dialog().getByText("Command expired").waitFor();
  await SimulatedNode.enroll(core, "silent", silent);
  let issued = 0;
  page.on("request", (one) => {
    issued += one.method() === "POST" ? 1 : 0;
  });
  await press("Generate new command");
  await steps().filter({ hasText: "Registered silent" }).waitFor();
  expect(issued).toBe(0);
});

// req: G-159, G-160
// inv: INV-W12
test("the problem box comes at once when a node says so, and a minute after it registered otherwise", async () => {
  const token = tokenOf(await generate());
  const node = await SimulatedNode.enroll(core, "troubled", token);
  await steps().filter({ hasText: "Registered troubled" }).waitFor();
  expect(await dialog().getByText("The node needs attention.").count()).toBe(0);
  const id = await core.installation();
  Object.assign(node.health, { provider_ready: false, diagnostic: "host_unsupported" });
  await node.connect();
  await dialog().getByText("The node needs attention.").waitFor();
  await dialog().getByText("Host unsupported").waitFor();
  await dialog().getByText(`sudo journalctl -u oac-node-${id}.service`, { exact: true }).waitFor();
  await isClean(page, "add-diagnostic");
  // A list that is no longer fresh says nothing of the node.
  const followed = "**/nodes?enrollment_id=*";
  await page.route(followed, (route) => route.abort());
  await dialog()
    .getByText(/Core cannot be reached\./)
    .waitFor();
  expect(await dialog().getByText("The node needs attention.").count()).toBe(0);
  await page.unroute(followed);
  await dialog().getByText("The node needs attention.").waitFor();
  node.disconnect();
  // Registered for 58 seconds without a word: two more, and somebody is needed.
  const quiet = await open(browser, core);
  await quiet.route("**/nodes?enrollment_id=*", async (route) => {
    const response = await route.fetch();
    const body = await response.json();
    if (body.data.length > 0) {
      registered ??= new Date(Date.now() - 57_000).toISOString();
    }
    const data = body.data.map((one: object) => ({ ...one, created_at: registered }));
    await route.fulfill({ response, json: { ...body, data } });
  });
  let registered: string | undefined;
  await signIn(quiet, core);
  await quiet.getByRole("link", { name: "Nodes" }).click();
  await quiet.getByRole("button", { name: "Add node" }).click();
  const shown = quiet.getByRole("dialog");
  await shown.getByRole("button", { name: "Generate command" }).click();
  const other = tokenOf(await shown.getByLabel("Run this command on the host.").inputValue());
  await SimulatedNode.enroll(core, "quiet", other);
  await shown.getByRole("listitem").filter({ hasText: "Registered quiet" }).waitFor();
  expect(await shown.getByText("The node needs attention.").count()).toBe(0);
  await shown.getByText("The node needs attention.").waitFor();
  await quiet.context().close();
});

// inv: INV-W22
test("the countdown is right though the browser's clock is an hour wrong", async () => {
  for (const off of [3_600_000, -3_600_000]) {
    const wrong = await open(browser, core);
    await wrong.addInitScript((by) => {
      const real = Date.now;
      Date.now = () => real() + by;
    }, off);
    await signIn(wrong, core, "/nodes");
    await wrong.getByRole("link", { name: "Nodes" }).click();
    await wrong.getByRole("button", { name: "Add node" }).click();
    const shown = wrong.getByRole("dialog");
    const answer = wrong.waitForResponse("**/enrollment-tokens");
    await shown.getByRole("button", { name: "Generate command" }).click();
    const ends = Date.parse((await (await answer).json()).expires_at);
    const text = ((await shown.getByRole("timer").textContent()) ?? "").replace("Expires in ", "");
    const left = (ends - Date.now()) / 1000;
    const seconds = text.split(":").reduce((all, part) => all * 60 + Number(part), 0);
    expect(Math.abs(seconds - left)).toBeLessThan(2);
    await wrong.context().close();
  }
});

test("the session may end over an open command, which stays", async () => {
  const line = await generate();
  await page.context().clearCookies();
  const again = page.getByRole("dialog", { name: "Sign in again" });
  await again.waitFor();
  await again.getByLabel("Core key").fill(core.key);
  await again.getByRole("button", { name: "Sign in" }).click();
  await again.waitFor({ state: "detached" });
  expect(await command()).toBe(line);
  await SimulatedNode.enroll(core, "after", tokenOf(line));
  await steps().filter({ hasText: "Registered after" }).waitFor();
});

test("Core may be restarted under an open command, whose node is followed all the same", async () => {
  const token = tokenOf(await generate());
  await core.stop();
  await dialog().getByText("Core cannot be reached.").waitFor();
  await isClean(page, "add-core-away");
  await core.run();
  const node = await SimulatedNode.enroll(core, "patient", token);
  await node.connect();
  await dialog().getByText("patient is ready.").waitFor();
  node.disconnect();
});

test("a refused command says why over what was typed", async () => {
  await openDialog();
  await page.route("**/enrollment-tokens", (route) =>
    route.fulfill({
      status: 409,
      json: {
        error: { type: "conflict_error", code: "sandbox_reset_in_progress", message: "no", param: null },
      },
    }),
  );
  await press("Generate command");
  await dialog().getByText("A deployment reset is running. Add nodes when it is complete.").waitFor();
  await page.unroute("**/enrollment-tokens");
  await press("Generate command");
  await dialog().getByRole("timer").waitFor();
});

const CLEAN_UP = "Run this command on the host to remove the node's service, files and records.";

/** The line that gives a host back, likewise. */
async function expectedCleanUp(): Promise<string> {
  const [script] = (await expected("x")).split("' oac-node-bootstrap ");
  const url = `${core.publicUrl}/api/v1/sandbox-node/install/releases/${made.commit}/artifacts/${made.installer.filename}`;
  return (
    `${script?.replace(" echo 'x' |", "")}' oac-node-bootstrap '${made.installer.sha256}' '${url}'` +
    ` --uninstall --installation-id '${await core.installation()}'`
  );
}

// req: G-210, G-215, G-216, G-218
// inv: INV-W20
test("a host is cleaned up with one command, and without Core's word only for an address that is gone", async () => {
  await signIn(page, core, "/nodes");
  await page.getByRole("link", { name: "Nodes" }).click();
  await page.getByRole("button", { name: "Clean up a host" }).click();
  const plain = await expectedCleanUp();
  expect(await dialog().getByLabel(CLEAN_UP).inputValue()).toBe(plain);
  await dialog().getByText("Remove its node here first: Core refuses while it lists the node.").waitFor();
  expect(await dialog().getByText("Old Core address gone?").count()).toBe(0);
  expect(await page.content()).not.toContain("--force");
  await isClean(page, "clean-up");
  await press("Close");
  await closed();

  const before = core.publicUrl;
  await core.move("http://elsewhere.example.com");
  try {
    await focus();
    await page.getByRole("row", { name: /other/ }).getByText("Old address").waitFor();
    await page.getByRole("button", { name: "Clean up a host" }).click();
    await dialog().getByText("Old Core address gone?").click();
    const said = `If ${before} no longer responds, this command skips the check. Remove the node here first.`;
    const forced = dialog().getByLabel(said, { exact: true });
    expect(await forced.inputValue()).toBe(`${await expectedCleanUp()} --force`);
    await isClean(page, "clean-up-old");
  } finally {
    await core.move(before);
  }
});

// req: G-209
test("a removal ends with what gives the host back", async () => {
  await SimulatedNode.enroll(core, "leaving");
  await signIn(page, core, "/nodes");
  await page.getByRole("link", { name: "Nodes" }).click();
  const row = page.getByRole("row", { name: /leaving/ });
  const remove = row.getByRole("button", { name: "Remove" });
  await remove.click();
  await press("Confirm removal");
  await page.getByRole("dialog", { name: "Clean up the host" }).getByText("leaving is removed.").waitFor();
  expect(await dialog().getByLabel(CLEAN_UP).inputValue()).toBe(await expectedCleanUp());
  await isClean(page, "removed");
  await press("Close");
  await closed();
  await row.waitFor({ state: "detached" });
});
