// A command in one line that scrolls within itself. It is copied byte for byte, its leading space included.

import { useId, useRef } from "react";
import { t } from "../text/text.ts";
import { Button } from "./button.tsx";
import { useCopy } from "./copy.tsx";

interface Props {
  label: string;
  command: string;
  /** The one thing that its place is for. */
  main?: boolean;
}

export function CommandBox({ label, command, main }: Props) {
  const id = useId();
  const field = useRef<HTMLInputElement>(null);
  const { said, copy } = useCopy(command, () => {
    field.current?.focus();
    field.current?.select();
  });
  return (
    <div className="command">
      <label htmlFor={id} className={main ? undefined : "hint"}>
        {label}
      </label>
      <div className="command-line">
        <input
          id={id}
          ref={field}
          value={command}
          readOnly
          spellCheck={false}
          autoComplete="off"
          onFocus={(event) => event.target.select()}
        />
        <Button
          look={main ? "primary" : "plain"}
          className="copy-button"
          onClick={copy}
          autoFocus={main}
          aria-label={main ? undefined : `${t("copy")}: ${label}`}
        >
          {said === "copied" ? t("copied") : t("copy")}
        </Button>
      </div>
      <span role="status" className={said === "copyByHand" ? "hint" : "unseen"}>
        {said && t(said)}
      </span>
    </div>
  );
}
