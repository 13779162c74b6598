// A help tip: opens on focus and hover, stays while hovered, closes on Escape.

import { useEffect, useId, useLayoutEffect, useRef, useState } from "react";
import { t } from "../text/text.ts";
import { Icon } from "./icon.tsx";

/** Pixels between a tip and the window's edge. */
const EDGE = 8;

export function Tip({ text }: { text: string }) {
  const [open, setOpen] = useState(false);
  const id = useId();
  const shown = useRef<HTMLSpanElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!open) {
      return;
    }
    // Wherever the focus is: a tip that the pointer opened closes too.
    function escaped(event: KeyboardEvent) {
      if (event.key === "Escape") {
        // Nor does the dialog around it close.
        event.preventDefault();
        event.stopPropagation();
        setOpen(false);
      }
    }
    document.addEventListener("keydown", escaped, true);
    return () => document.removeEventListener("keydown", escaped, true);
  }, [open]);
  useLayoutEffect(() => {
    const element = shown.current;
    if (!open || !element) {
      return;
    }
    /** Below the middle of its button, but within the window. */
    function place(element: HTMLElement) {
      element.style.marginLeft = "0";
      const { left, width } = element.getBoundingClientRect();
      const wanted = Math.min(left - width / 2, document.documentElement.clientWidth - width - EDGE);
      element.style.marginLeft = `${Math.max(wanted, EDGE) - left}px`;
    }
    const again = () => place(element);
    again();
    window.addEventListener("resize", again);
    return () => window.removeEventListener("resize", again);
  }, [open]);
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the button within has the keyboard's way
    <span
      className="tip"
      onMouseEnter={() => setOpen(true)}
      onMouseLeave={() => setOpen((now) => now && button.current === document.activeElement)}
    >
      <button
        ref={button}
        type="button"
        className="tip-button"
        aria-label={t("help")}
        aria-describedby={id}
        onFocus={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onClick={() => setOpen(true)}
      >
        <Icon name="question" />
      </button>
      <span ref={shown} role="tooltip" id={id} className={open ? "tip-text open" : "tip-text"}>
        {text}
      </span>
    </span>
  );
}
