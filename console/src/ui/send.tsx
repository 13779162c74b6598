// One form's write: sent once per click, its failure beside the field it names or above the buttons.

import { type ReactNode, useRef, useState } from "react";
import type { Written } from "../data/write.ts";
import { t } from "../text/text.ts";
import { Button } from "./button.tsx";
import { Failed } from "./failed.tsx";

type Refused = Exclude<Written<unknown>, { kind: "ok" | "unchanged" }>;

export interface Sending {
  pending: boolean;
  failure: Refused | undefined;
  /** Core's word about the member `name`. */
  errorOf: (name: string) => string | undefined;
  /** Runs `write`, unless one is under way; `done` when it happened. */
  send: (write: () => Promise<Written<unknown>>, done: () => void) => Promise<void>;
}

export function useSending(): Sending {
  const [pending, setPending] = useState(false);
  const [failure, setFailure] = useState<Refused | undefined>();
  const busy = useRef(false);
  async function send(write: () => Promise<Written<unknown>>, done: () => void) {
    if (busy.current) {
      return;
    }
    busy.current = true;
    setPending(true);
    setFailure(undefined);
    const written = await write();
    busy.current = false;
    setPending(false);
    if (
      written.kind === "ok" ||
      written.kind === "unchanged" ||
      (written.kind === "lost" && written.happened)
    ) {
      done();
    } else {
      setFailure(written);
    }
  }
  const errorOf = (name: string) =>
    failure?.kind === "refused" && failure.param === name ? failure.message : undefined;
  return { pending, failure, errorOf, send };
}

interface ActionsProps {
  sending: Sending;
  /** Members that have a field of their own to be wrong at. */
  fields?: string[];
  own?: Record<string, string>;
  onCancel: () => void;
  submit: string;
  danger?: boolean;
  disabled?: boolean;
  children?: ReactNode;
}

/** The end of a form in a dialog: what went wrong, and its buttons. */
export function Actions(props: ActionsProps) {
  const { sending, fields = [], own, onCancel, submit, danger, disabled, children } = props;
  const { failure } = sending;
  const beside = failure?.kind === "refused" && failure.param !== null && fields.includes(failure.param);
  return (
    <div className="form-end">
      <Failed failure={beside ? undefined : failure} {...(own && { own })} />
      <div className="buttons">
        {children}
        <Button onClick={onCancel} disabled={sending.pending}>
          {t("cancel")}
        </Button>
        <Button
          type="submit"
          look={danger ? "danger" : "primary"}
          disabled={sending.pending || disabled}
          aria-busy={sending.pending}
        >
          {submit}
        </Button>
      </div>
    </div>
  );
}
