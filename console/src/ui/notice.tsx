import type { ReactNode } from "react";
import type { Snapshot } from "../data/resource.ts";
import { moment } from "../format/format.ts";
import { t } from "../text/text.ts";
import { Button } from "./button.tsx";
import { Icon } from "./icon.tsx";

interface Props {
  look: "info" | "warn" | "bad" | "good";
  children: ReactNode;
  action?: ReactNode;
  /** Said at once, as an error is. */
  alert?: boolean;
}

export function Notice({ look, children, action, alert }: Props) {
  const icon = { info: "info", warn: "warn", bad: "bad", good: "ok" } as const;
  return (
    <div className={`notice ${look}`} role={alert ? "alert" : "status"}>
      <Icon name={icon[look]} />
      <div>{children}</div>
      {action}
    </div>
  );
}

interface StaleProps {
  /** What the page shows. */
  of: Snapshot<unknown>[];
  again: () => void;
}

/** Over what is shown and may not be so any more, or in place of what never came. */
export function StaleBanner({ of, again }: StaleProps) {
  const stale = of.filter((snapshot) => snapshot.stale);
  const oldest = Math.min(...stale.map((snapshot) => snapshot.at ?? Number.POSITIVE_INFINITY));
  const refused = of.map((snapshot) => snapshot.failure).find((failure) => failure?.kind === "refused");
  const action = (
    <Button className="small" onClick={again}>
      {t("stale.again")}
    </Button>
  );
  // A session that ended is asked for over the page, and what is gone has a page of its own.
  if (refused?.kind === "refused" && refused.status !== 401 && refused.status !== 404) {
    const why = { message: refused.message, code: refused.code ?? refused.status };
    return (
      <Notice look="bad" action={action}>
        {Number.isFinite(oldest) ? t("stale.refused", { ...why, time: moment(oldest) }) : t("refused", why)}
      </Notice>
    );
  }
  if (stale.every((snapshot) => snapshot.failure?.kind === "refused")) {
    return null;
  }
  return (
    <Notice look="bad" action={action}>
      {Number.isFinite(oldest) ? t("stale", { time: moment(oldest) }) : t("unread")}
    </Notice>
  );
}
