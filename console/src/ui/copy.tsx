// Copies a text whole. Without access to the clipboard, as over plain http, it selects the text for the keyboard.

import { useEffect, useRef, useState } from "react";
import { t } from "../text/text.ts";
import { Button } from "./button.tsx";

/** Copies `text`, or lets `select` mark it; what there is to say of that, for as long as it is worth saying. */
export function useCopy(text: string, select: () => void) {
  const [said, setSaid] = useState<"copied" | "copyByHand" | undefined>();
  useEffect(() => {
    if (said === "copied") {
      const timer = setTimeout(() => setSaid(undefined), 2000);
      return () => clearTimeout(timer);
    }
  }, [said]);
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      setSaid("copied");
    } catch {
      select();
      setSaid("copyByHand");
    }
  }
  return { said, copy };
}

interface Props {
  text: string;
  /** What is shown of it. */
  shown?: string;
  label: string;
}

export function Copyable({ text, shown = text, label }: Props) {
  const source = useRef<HTMLElement>(null);
  const { said, copy } = useCopy(text, () => {
    if (source.current) {
      // The whole text takes the place of its short form, so that what is selected is what is copied.
      source.current.textContent = text;
      window.getSelection()?.selectAllChildren(source.current);
    }
  });
  return (
    <span className="copyable">
      <code ref={source} title={text}>
        {shown}
      </code>
      <Button look="quiet" className="small copy-button" onClick={copy} aria-label={`${t("copy")}: ${label}`}>
        {said === "copied" ? t("copied") : t("copy")}
      </Button>
      <span role="status" className={said === "copyByHand" ? "hint" : "unseen"}>
        {said && t(said)}
      </span>
    </span>
  );
}
