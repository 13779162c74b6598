// A page of another port of the same host. It is of the same site, so the browser sends the session's cookie along with
// what it asks; Core does nothing of it.

import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Core } from "./core.ts";
import { SimulatedNode } from "./node.ts";
import { launch, open, signIn } from "./page.ts";

let browser: Browser;
let core: Core;
let page: Page;
let server: Server;
let node: SimulatedNode;

beforeAll(async () => {
  browser = await launch();
  core = await Core.start();
  await core.deploy();
  node = await SimulatedNode.enroll(core, "wanted");
  server = createServer((_, answer) => {
    answer.setHeader("content-type", "text/html");
    answer.end("<!doctype html><title>other</title><p>hello");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  page = await open(browser, core);
  await signIn(page, core);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
});
afterAll(async () => {
  await browser?.close();
  server?.close();
  await core?.remove();
});

const state = async () => {
  const [deployment, nodes, audit] = await Promise.all([
    core.ask<object>("GET", "/core/v1/sandbox/deployment"),
    core.ask<{ data: { id: string; name: string; cordoned: boolean }[] }>("GET", "/core/v1/sandbox/nodes"),
    core.ask<{ data: { id: string }[] }>("GET", "/core/v1/audit"),
  ]);
  return {
    deployment,
    nodes: nodes.data.map(({ id, name, cordoned }) => ({ id, name, cordoned })),
    audit: audit.data.map(({ id }) => id),
  };
};

// inv: INV-W3
test("a page of another port changes nothing, reads nothing and shows nothing of the console", async () => {
  const before = await state();
  const other = await page.context().newPage();
  const sent: string[] = [];
  other.on("request", (one) => sent.push(`${one.method()} ${new URL(one.url()).pathname}`));
  await other.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
  const came = await other.evaluate(
    async ({ url, id }) => {
      const cordon = `${url}/core/v1/sandbox/nodes/${id}/cordon`;
      const tries: [string, RequestInit][] = [
        [cordon, { method: "POST", body: "{}", mode: "no-cors", headers: { "content-type": "text/plain" } }],
        [cordon, { method: "POST", body: "{}", mode: "no-cors" }],
        [
          cordon,
          {
            method: "POST",
            body: "{}",
            headers: { "x-oac-console": "1", "content-type": "application/json" },
          },
        ],
        [`${url}/core/v1/sandbox/nodes/${id}`, { method: "DELETE", headers: { "x-oac-console": "1" } }],
        [`${url}/core/v1/console/session`, { method: "DELETE", mode: "cors" }],
        [`${url}/core/v1/sandbox/deployment`, { headers: { "x-oac-console": "1" } }],
        [`${url}/core/v1/sandbox/deployment`, {}],
      ];
      const texts: string[] = [];
      for (const [to, how] of tries) {
        try {
          texts.push(await (await fetch(to, { credentials: "include", ...how })).text());
        } catch {
          texts.push("");
        }
      }
      // Forms need no consent of the other side.
      for (const kind of ["text/plain", "application/x-www-form-urlencoded"]) {
        const frame = document.createElement("iframe");
        frame.name = kind;
        const form = document.createElement("form");
        Object.assign(form, { method: "POST", action: cordon, enctype: kind, target: kind });
        document.body.append(frame, form);
        const loaded = new Promise((resolve) => frame.addEventListener("load", resolve));
        form.submit();
        await loaded;
      }
      const frame = document.createElement("iframe");
      frame.src = url;
      const loaded = new Promise((resolve) => frame.addEventListener("load", resolve));
      document.body.append(frame);
      await loaded;
      return texts;
    },
    { url: core.url, id: node.id },
  );
  expect(came.join("")).toBe("");
  // The browser did send what needs no consent, with the cookie.
  expect(
    sent.filter((one) => one === `POST /core/v1/sandbox/nodes/${node.id}/cordon`).length,
  ).toBeGreaterThan(2);
  expect(await other.frames().at(-1)?.locator("body").textContent()).not.toMatch(/Overview|Core key/);
  expect(await state()).toEqual(before);
  await other.close();
  // The session itself still stands.
  await page.getByRole("link", { name: "Nodes" }).click();
  await page.getByText("wanted").waitFor();
});
