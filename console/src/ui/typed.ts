// A field over a value that others may change too. Until somebody types into it, it shows what holds; what another operator
// changes meanwhile is then neither hidden nor undone. What was typed stays, with what holds now beside it.

import { useState } from "react";
import { t } from "../text/text.ts";

export interface Typed {
  value: string;
  onChange: (text: string) => void;
  /** What somebody else made of it since it was shown first. */
  hint: string | undefined;
  /** Shows what holds again. */
  forget: () => void;
}

export function useTyped(now: string): Typed {
  const [typed, setTyped] = useState<string | undefined>();
  const [first] = useState(now);
  const changed = typed !== undefined && now !== first && now !== typed;
  return {
    value: typed ?? now,
    onChange: setTyped,
    hint: changed ? t("now", { value: now }) : undefined,
    forget: () => setTyped(undefined),
  };
}

/** The part of it that a field takes. */
export const shown = ({ value, onChange, hint }: Typed) => ({ value, onChange, hint });
