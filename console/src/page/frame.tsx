// What is around every page: the way to the others, whether traffic is encrypted, and the way out.

import { type ReactNode, useState } from "react";
import { type Key, t } from "../text/text.ts";
import { Button } from "../ui/button.tsx";
import { Icon } from "../ui/icon.tsx";
import { Notice } from "../ui/notice.tsx";
import { Link } from "./router.tsx";
import { signOut } from "./store.ts";

const PAGES: { to: string; text: Key; below?: boolean }[] = [
  { to: "/", text: "nav.overview" },
  { to: "/nodes", text: "nav.nodes" },
  { to: "/settings/sandbox", text: "nav.sandbox", below: true },
  { to: "/settings/service", text: "nav.service", below: true },
  { to: "/settings/audit", text: "nav.audit", below: true },
];

export const isPlain = (): boolean => window.location.protocol === "http:";

export function Frame({ path, children }: { path: string; children: ReactNode }) {
  const [open, setOpen] = useState(false);
  const [failed, setFailed] = useState(false);
  const entry = ({ to, text }: (typeof PAGES)[number]) => {
    const here =
      path === to || (to !== "/" && path.startsWith(`${to}/`)) || (to === "/" && path === "/sign-in");
    return (
      <li key={to}>
        <Link to={to} aria-current={here ? "page" : undefined} onClick={() => setOpen(false)}>
          {t(text)}
        </Link>
      </li>
    );
  };
  return (
    <div className="frame">
      <a className="skip" href="#content">
        {t("skip")}
      </a>
      <header className={open ? "side open" : "side"}>
        <div className="side-top">
          <span className="brand">{t("product")}</span>
          <Button
            look="quiet"
            className="square menu-button"
            aria-label={t("menu")}
            aria-expanded={open}
            aria-controls="navigation"
            onClick={() => setOpen(!open)}
          >
            <Icon name="menu" />
          </Button>
        </div>
        <nav id="navigation" aria-label={t("navigation")}>
          <ul>{PAGES.filter((page) => !page.below).map(entry)}</ul>
          <p className="group">{t("nav.settings")}</p>
          <ul>{PAGES.filter((page) => page.below).map(entry)}</ul>
          <div className="side-foot">
            <Button look="quiet" onClick={async () => setFailed((await signOut()).kind !== "ok")}>
              {t("signIn.out")}
            </Button>
            {failed && (
              <p className="error" role="alert">
                {t("signIn.unreachable")}
              </p>
            )}
          </div>
        </nav>
      </header>
      <main id="content" tabIndex={-1}>
        {isPlain() && <Notice look="warn">{t("http")}</Notice>}
        {children}
      </main>
    </div>
  );
}
