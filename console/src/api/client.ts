// Requests to the Core that serves this page. Only here is anything sent.

import createClient, { type Middleware } from "openapi-fetch";
import type { Answer } from "../data/answer.ts";
import { ServerClock } from "../data/clock.ts";
import type { paths } from "./schema.ts";
import type { ErrorEnvelope } from "./types.ts";

/** A request that takes longer is lost. */
const LIMIT = 15_000;

export const monotonic = (): number => performance.now();
export const clock = new ServerClock(monotonic);

const began = new WeakMap<Request, number>();
const own: Middleware = {
  onRequest({ request }) {
    request.headers.set("x-oac-console", "1");
    began.set(request, monotonic());
    return request;
  },
  onResponse({ request, response }) {
    const now = monotonic();
    clock.observe(response.headers.get("date"), began.get(request) ?? now, now);
  },
};

export const api = createClient<paths>({
  fetch: (request) => fetch(request, { signal: AbortSignal.timeout(LIMIT) }),
});
api.use(own);

/** Told of every 401 but that of a sign-in. */
let signedOut: () => void = () => {};
export function onSignedOut(callback: () => void): void {
  signedOut = callback;
}

interface Fetched<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** What became of the request; `signIn` when a 401 is its answer and no end of the session. */
export async function ask<T>(request: Promise<Fetched<T>>, signIn = false): Promise<Answer<T>> {
  let fetched: Fetched<T>;
  try {
    fetched = await request;
  } catch {
    return { kind: "lost" };
  }
  const { data, error, response } = fetched;
  if (response.status === 304) {
    return { kind: "unchanged" };
  }
  if (response.ok) {
    return { kind: "ok", value: data as T, tag: response.headers.get("etag") ?? undefined };
  }
  const said = (error as Partial<ErrorEnvelope> | undefined)?.error;
  const seconds = Number(response.headers.get("retry-after") ?? Number.NaN);
  if (response.status === 401 && !signIn) {
    signedOut();
  }
  // A proxy's error page is nobody's word: a gateway that lost Core's answer may have passed the request on.
  if (said === undefined && response.status >= 500) {
    return { kind: "lost" };
  }
  return {
    kind: "refused",
    status: response.status,
    code: said?.code ?? null,
    param: said?.param ?? null,
    message: said?.message ?? response.statusText,
    details: said?.details ?? {},
    retryAfter: Number.isNaN(seconds) ? undefined : seconds * 1000,
  };
}
