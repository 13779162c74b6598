// The console's addresses. A link changes the address and moves the focus to the new page's heading; back, forward and
// reload are the browser's.

import {
  type AnchorHTMLAttributes,
  type MouseEvent,
  useEffect,
  useRef,
  useState,
  useSyncExternalStore,
} from "react";
import { type Key, t, type Values } from "../text/text.ts";

const listeners = new Set<() => void>();
function changed(): void {
  for (const listener of listeners) {
    listener();
  }
}
let back = false;
window.addEventListener("popstate", () => {
  back = true;
  changed();
});

/** Whether the page was come to by the browser's back or forward, which scroll to where it was left. */
export const isReturn = (): boolean => back;

export function go(path: string): void {
  back = false;
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

/** A text that belongs to an entry of the browser's history: back, forward and reload find it again. */
export function useKept(name: string): [string, (text: string) => void] {
  const [text, setText] = useState(() => String(window.history.state?.[name] ?? ""));
  function keep(next: string) {
    setText(next);
    window.history.replaceState({ ...window.history.state, [name]: next }, "");
  }
  return [text, keep];
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
