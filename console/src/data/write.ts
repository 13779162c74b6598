// One change, sent once (console.md section 2, INV-W13).

import { type Answer, ofWrite } from "./answer.ts";
import type { Resource } from "./resource.ts";

/** What became of a write: Core's answer; or, when that was lost, what a read begun after it shows. */
export type Written<T> =
  | Exclude<Answer<T>, { kind: "lost" }>
  | { kind: "lost"; happened: boolean | undefined };

/** What a write changes, and how the value read afterwards shows that it did; `undefined` when it cannot tell. */
export interface Effect<R> {
  resource: Resource<R>;
  happened?: (value: R) => boolean | undefined;
}

/**
 * Sends once. Whatever came back, what the write may have changed is read afresh, by a read that began after it. A lost
 * answer is decided by that read alone; `undefined` when the read brought nothing either. Nothing is sent again.
 */
export async function write<T, R>(
  send: () => Promise<Answer<T>>,
  effect: Effect<R>,
  ...others: Resource<unknown>[]
): Promise<Written<T>> {
  const answer = ofWrite(await send());
  for (const other of others) {
    void other.written();
  }
  const read = effect.resource.written();
  if (answer.kind !== "lost") {
    return answer;
  }
  await read;
  const { value, stale } = effect.resource.get();
  const known = !stale && value !== undefined && effect.happened !== undefined;
  return { kind: "lost", happened: known ? effect.happened?.(value) : undefined };
}
