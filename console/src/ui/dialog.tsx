// A dialog over the page. The browser's own dialog keeps the focus within, makes the rest inert and returns the focus;
// this adds that it is labelled by its heading and stays while a write is pending.

import { type ReactNode, useEffect, useId, useRef } from "react";

interface Props {
  title: string;
  /** A write is under way: neither Escape nor a click closes. */
  pending?: boolean;
  onClose?: () => void;
  /** For what needs a long line. */
  wide?: boolean;
  children: ReactNode;
}

/** The dialogs that are open, the topmost last. */
const OPEN: object[] = [];

export function Dialog({ title, pending = false, onClose, wide, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const opener = useRef<Element | null>(null);
  const heading = useRef<HTMLHeadingElement>(null);
  const id = useId();
  const closing = useRef(onClose);
  closing.current = pending ? undefined : onClose;
  // The browser lets a dialog refuse only its first Escape, and gives one that comes while it is shown again to the dialog
  // beneath: so no Escape reaches it.
  useEffect(() => {
    const mine = {};
    OPEN.push(mine);
    const escaped = (event: KeyboardEvent) => {
      if (event.key === "Escape" && !event.defaultPrevented && OPEN.at(-1) === mine) {
        event.preventDefault();
        closing.current?.();
      }
    };
    document.addEventListener("keydown", escaped);
    return () => {
      document.removeEventListener("keydown", escaped);
      OPEN.splice(OPEN.indexOf(mine), 1);
    };
  }, []);
  useEffect(() => {
    // What had the focus is gone, as a step that ended: the heading has it, so that the next key is at its start.
    const element = dialog.current;
    const on = document.activeElement;
    if (element?.open && (on === null || on === document.body || on === element)) {
      heading.current?.focus();
    }
  });
  useEffect(() => {
    const element = dialog.current;
    if (element && !element.open) {
      opener.current = document.activeElement;
      element.showModal();
    }
    return () => {
      element?.close();
      // A menu's item that opened it is gone: its menu's button is marked as what stands for it.
      const back = opener.current;
      if (back instanceof HTMLElement && back.isConnected) {
        back.focus();
      }
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      className={wide ? "wide" : undefined}
      aria-modal="true"
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        if (!pending) {
          onClose?.();
        }
      }}
      onClose={() => {
        // What the browser itself asks to close can be refused only once: asked again, it closes what has to stay.
        if (dialog.current?.open === false) {
          dialog.current.showModal();
          if (!pending) {
            onClose?.();
          }
        }
      }}
    >
      <h2 id={id} ref={heading} tabIndex={-1}>
        {title}
      </h2>
      {children}
    </dialog>
  );
}
