// What became of one request.

/** Core's word against a request: its text and code, and the member at fault. */
export interface Refusal {
  kind: "refused";
  status: number;
  code: string | null;
  param: string | null;
  message: string;
  details: Record<string, unknown>;
  /** Milliseconds that Core asks to wait. */
  retryAfter: number | undefined;
}

export type Answer<T> =
  | { kind: "ok"; value: T /** The value's, where Core gives one. */; tag?: string | undefined }
  /** The value read before still stands (304). */
  | { kind: "unchanged" }
  | Refusal
  /** No whole answer came: nobody knows whether the request had an effect. */
  | { kind: "lost" };

export type Failure = Exclude<Answer<never>, { kind: "ok" | "unchanged" }>;

/**
 * What an answer says of a write. Core's 503 says that nothing was stored; any other server error, Core's own included, may
 * have come after the step was stored, and is no more than a lost answer.
 */
export function ofWrite<T>(answer: Answer<T>): Answer<T> {
  return answer.kind === "refused" && answer.status >= 500 && answer.status !== 503
    ? { kind: "lost" }
    : answer;
}
