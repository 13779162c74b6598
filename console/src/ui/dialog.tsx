// A dialog over the page. The browser's own dialog keeps the focus within, makes the rest inert and returns the focus;
// this adds that it is labelled by its heading and stays while a write is pending.

import { type ReactNode, useEffect, useId, useRef } from "react";

interface Props {
  title: string;
  /** A write is under way: neither Escape nor a click closes. */
  pending?: boolean;
  onClose?: () => void;
  children: ReactNode;
}

export function Dialog({ title, pending = false, onClose, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const opener = useRef<Element | null>(null);
  const id = useId();
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
      aria-modal="true"
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        if (!pending) {
          onClose?.();
        }
      }}
    >
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}
