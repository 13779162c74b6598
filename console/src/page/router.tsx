// The console's addresses. A link changes the address and moves the focus to the new page's heading; back, forward and
// reload are the browser's.

import { type AnchorHTMLAttributes, type MouseEvent, useEffect, useRef, useSyncExternalStore } from "react";
import { type Key, t, type Values } from "../text/text.ts";

const listeners = new Set<() => void>();
function changed(): void {
  for (const listener of listeners) {
    listener();
  }
}
window.addEventListener("popstate", changed);

export function go(path: string): void {
  window.history.pushState(null, "", path);
  window.scrollTo(0, 0);
  changed();
}

export function usePath(): string {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => window.location.pathname,
  );
}

interface LinkProps extends AnchorHTMLAttributes<HTMLAnchorElement> {
  to: string;
}

export function Link({ to, onClick, ...rest }: LinkProps) {
  function follow(event: MouseEvent<HTMLAnchorElement>) {
    onClick?.(event);
    const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (plain && !event.defaultPrevented) {
      event.preventDefault();
      go(to);
    }
  }
  return <a href={to} onClick={follow} {...rest} />;
}

let first = true;

/** A page's heading: takes the focus when its page is navigated to, and names the window. */
export function Heading({ text, values }: { text: Key; values?: Values }) {
  return <HeadingOf title={t(text, values)} />;
}

export function HeadingOf({ title }: { title: string }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    // The first page begins where the browser begins.
    if (first) {
      first = false;
    } else {
      heading.current?.focus({ preventScroll: true });
    }
  }, []);
  useEffect(() => {
    document.title = `${title} · ${t("product")}`;
  }, [title]);
  return (
    <h1 ref={heading} tabIndex={-1}>
      {title}
    </h1>
  );
}
