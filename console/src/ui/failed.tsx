import type { Failure } from "../data/answer.ts";
import type { Written } from "../data/write.ts";
import { t } from "../text/text.ts";
import { Notice } from "./notice.tsx";

interface Props {
  failure: Failure | Exclude<Written<unknown>, { kind: "ok" | "unchanged" }> | undefined;
  /** What is said instead of Core's message, by its code. */
  own?: Record<string, string>;
}

/** What came of a request that did not do what it was for. */
export function Failed({ failure, own = {} }: Props) {
  if (failure === undefined) {
    return null;
  }
  if (failure.kind === "lost") {
    const decided = "happened" in failure;
    const text = !decided ? "unread" : failure.happened === false ? "uncertain.not" : "uncertain.unknown";
    return (
      <Notice look="bad" alert>
        {t(text)}
      </Notice>
    );
  }
  const code = failure.code ?? String(failure.status);
  return (
    <Notice look="bad" alert>
      {own[code] ?? t("refused", { message: failure.message, code })}
    </Notice>
  );
}
