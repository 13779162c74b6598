// `cargo xtask bench web`: what the console costs whoever opens it. Nothing is asserted; the figures are the result.

import type { Browser, CDPSession, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Core } from "../browser/core.ts";
import { MANY, type Many, many } from "../browser/many.ts";
import { SimulatedNode } from "../browser/node.ts";
import { launch, open, signIn } from "../browser/page.ts";

const ROUNDS = 15;
/** Seconds that an idle tab is watched for. */
const IDLE = 60;

interface Figure {
  name: string;
  value: number;
  unit: string;
  budget: number | null;
}
const figures: Figure[] = [];

let browser: Browser;
let core: Core;
let page: Page;
let cdp: CDPSession;
let list: Many;

beforeAll(async () => {
  browser = await launch();
  core = await Core.start();
  await core.deploy();
  await SimulatedNode.enroll(core, "like");
  page = await open(browser, core);
  cdp = await page.context().newCDPSession(page);
  await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
});
afterAll(async () => {
  await browser?.close();
  await core?.remove();
  const lines = figures.map(({ name, value, unit, budget }) => {
    const shown = `${value.toFixed(1)} ${unit}`.padStart(14);
    return `${name.padEnd(44)} ${shown}   ${budget === null ? "" : `budget ${budget} ${unit}`}\n`;
  });
  process.stdout.write(`${lines.join("")}${JSON.stringify({ web: figures })}\n`);
});

/** Seconds that the page's thread has worked, whatever else the machine does meanwhile. */
async function busy(): Promise<number> {
  const { metrics } = await cdp.send("Performance.getMetrics");
  return metrics.find(({ name }) => name === "TaskDuration")?.value ?? 0;
}

const median = (all: number[]) => all.toSorted((one, other) => one - other)[Math.floor(all.length / 2)] ?? 0;

/** Milliseconds from the list's last byte to the first picture that shows it. */
const RENDER = `new Promise((resolve) => {
  const shown = () => document.querySelector("td.number")?.textContent?.startsWith(String(window.wanted) + " ");
  const painted = () => requestAnimationFrame(() => setTimeout(() => {
    const all = performance.getEntriesByType("resource").filter((one) => one.name.endsWith("/sandbox/nodes"));
    resolve(performance.now() - all.at(-1).responseEnd);
  }));
  if (shown()) return painted();
  const look = new MutationObserver(() => { if (shown()) { look.disconnect(); painted(); } });
  look.observe(document.body, { childList: true, subtree: true, characterData: true });
})`;

test("first load", async () => {
  const sizes = new Map<string, number>();
  await cdp.send("Network.enable");
  cdp.on("Network.loadingFinished", ({ requestId, encodedDataLength }) =>
    sizes.set(requestId, encodedDataLength),
  );
  await page.goto("/");
  await page.getByLabel("Core key").waitFor();
  const bytes = [...sizes.values()].reduce((sum, one) => sum + one, 0);
  figures.push({ name: "first load, as sent", value: bytes / 1000, unit: "kB", budget: 180 });
});

test("a list of 500 nodes", async () => {
  list = await many(page);
  await signIn(page, core);
  const first: number[] = [];
  const whole: number[] = [];
  for (let at = 0; at < ROUNDS; at += 1) {
    await page.getByRole("link", { name: "Overview" }).click();
    await page.getByRole("heading", { name: "Overview" }).waitFor();
    // The page is built anew from the list that is known; then the list comes.
    const built = await page.evaluate(`new Promise((resolve) => {
      const begin = performance.now();
      [...document.querySelectorAll("nav a")].find((one) => one.textContent === "Nodes").click();
      const since = () => performance.now() - begin;
      requestAnimationFrame(() => setTimeout(() => {
        const painted = since();
        const look = () => document.querySelectorAll("tbody tr").length === ${MANY}
          ? resolve([painted, since()])
          : requestAnimationFrame(() => setTimeout(look));
        look();
      }));
    })`);
    const [painted, all] = built as [number, number];
    first.push(painted);
    whole.push(all);
  }
  figures.push(
    { name: "500 nodes, first rows (median)", value: median(first), unit: "ms", budget: 200 },
    { name: "500 nodes, page opened (median)", value: median(whole), unit: "ms", budget: 200 },
  );
  await measureAgain("every one changed", () => ({ active: list.read }));
  // As of an installation at rest: the first counts the lists, the others were only seen again.
  await measureAgain("seen again", (at) => ({ active: at === 0 ? list.read : 1 }));
  expect(await page.locator("tbody tr").count()).toBe(MANY);
});

/** Has the list read again and again: how long until it is seen, and how long the page's thread works on it. */
async function measureAgain(what: string, say: Many["say"]): Promise<void> {
  list.say = say;
  await again();
  const taken: number[] = [];
  const before = await busy();
  for (let at = 0; at < ROUNDS; at += 1) {
    taken.push(await again());
  }
  const worked = ((await busy()) - before) / ROUNDS;
  figures.push(
    { name: `500 nodes read anew, ${what} (median)`, value: median(taken), unit: "ms", budget: 200 },
    { name: `500 nodes read anew, ${what}, processor`, value: worked * 1000, unit: "ms", budget: null },
  );
}

async function again(): Promise<number> {
  await page.evaluate((wanted) => {
    performance.clearResourceTimings();
    Object.assign(window, { wanted });
  }, list.read + 1);
  const rendered = page.evaluate(RENDER);
  await page.evaluate(() => window.dispatchEvent(new Event("focus")));
  return (await rendered) as number;
}

test("an idle tab with 500 nodes", async () => {
  let requests = 0;
  page.on("request", () => {
    requests += 1;
  });
  const before = await busy();
  await page.waitForTimeout(IDLE * 1000);
  figures.push({
    name: "idle tab, 500 nodes, of one core",
    value: ((await busy()) - before) * (100 / IDLE),
    unit: "%",
    budget: 1,
  });
  figures.push({
    name: "idle tab, requests per minute",
    value: requests * (60 / IDLE),
    unit: "",
    budget: null,
  });
});
