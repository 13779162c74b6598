// A button that opens a short list of actions. Arrow keys move, Escape and leaving close, and the focus is the button's
// again before an action begins, so that a dialog it opens returns the focus there.

import { type KeyboardEvent, useEffect, useId, useRef, useState } from "react";
import { Icon } from "./icon.tsx";

export interface Action {
  label: string;
  run: () => void;
  disabled?: boolean;
  danger?: boolean;
}

export function Menu({ label, actions }: { label: string; actions: Action[] }) {
  const [open, setOpen] = useState(false);
  const id = useId();
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (open) {
      root.current?.querySelector<HTMLElement>("[role=menuitem]")?.focus();
    }
  }, [open]);

  function close() {
    setOpen(false);
    button.current?.focus();
  }
  function move(event: KeyboardEvent) {
    const items = [...(root.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
    const at = items.indexOf(document.activeElement as HTMLElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1 + items.length, Home: 0, End: items.length - 1 }[
      event.key
    ];
    if (to !== undefined && open) {
      event.preventDefault();
      items[to % items.length]?.focus();
    } else if (event.key === "Escape" && open) {
      event.stopPropagation();
      close();
    }
  }
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: its button and its items have the keyboard's way
    <div
      className="menu"
      ref={root}
      onKeyDown={move}
      onBlur={(event) => {
        if (!root.current?.contains(event.relatedTarget)) {
          setOpen(false);
        }
      }}
    >
      <button
        type="button"
        className="button quiet square"
        ref={button}
        aria-label={label}
        aria-haspopup="menu"
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        onClick={() => setOpen(!open)}
      >
        <Icon name="more" />
      </button>
      {open && (
        <div role="menu" id={id} aria-label={label} className="menu-list">
          {actions.map((action) => (
            <button
              key={action.label}
              type="button"
              role="menuitem"
              tabIndex={-1}
              aria-disabled={action.disabled}
              className={action.danger ? "danger" : ""}
              onClick={() => {
                if (!action.disabled) {
                  close();
                  action.run();
                }
              }}
            >
              {action.label}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
