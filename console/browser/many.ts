// A list as long as they get: one node of Core's, and hundreds of its kind.

import { randomUUID } from "node:crypto";
import type { Page } from "playwright-core";

export const MANY = 500;

export interface Many {
  ids: string[];
  /** How many of them the list has. */
  length: number;
  /** Lists that the page asked for. */
  read: number;
  /** What the nodes of each further list say besides, by their place in it. */
  say: (at: number) => object;
}

/** From now on the list of nodes on `page` is that many of the one that Core has, each seen just now. */
export async function many(page: Page): Promise<Many> {
  const all: Many = {
    ids: Array.from({ length: MANY }, () => randomUUID()),
    length: MANY,
    read: 0,
    say: () => ({ active: all.read }),
  };
  await page.route("**/core/v1/sandbox/nodes", async (route) => {
    const response = await route.fetch({ headers: { ...route.request().headers(), "if-none-match": "" } });
    const body = await response.json();
    all.read += 1;
    const now = new Date().toISOString();
    const data = all.ids.slice(0, all.length).map((id, at) => ({
      ...body.data[0],
      id,
      name: `node-${String(at).padStart(3, "0")}`,
      online: at % 7 !== 0,
      provider_ready: true,
      last_seen_at: now,
      labels: { zone: at % 2 ? "west" : "east" },
      ...all.say(at),
    }));
    await route.fulfill({ response, json: { ...body, data } });
  });
  return all;
}
