// Who changed what and when. The log only grows at its top, so further pages are added below what is there.

import { useEffect, useState } from "react";
import { api, ask } from "../api/client.ts";
import type { AuditEntry } from "../api/types.ts";
import type { Failure } from "../data/answer.ts";
import { details, short } from "../format/details.ts";
import { HeadingOf } from "../page/router.tsx";
import { t } from "../text/text.ts";
import { Button } from "../ui/button.tsx";
import { Failed } from "../ui/failed.tsx";
import { Moment } from "../ui/time.tsx";

export function Audit() {
  const [entries, setEntries] = useState<AuditEntry[] | undefined>();
  const [next, setNext] = useState<string | null>(null);
  const [pending, setPending] = useState(false);
  const [failure, setFailure] = useState<Failure | undefined>();

  async function load(cursor: string | null) {
    setPending(true);
    const query = cursor === null ? {} : { cursor };
    const answer = await ask(api.GET("/core/v1/audit", { params: { query } }));
    setPending(false);
    if (answer.kind === "ok") {
      setFailure(undefined);
      setEntries((known) => (cursor === null ? [] : (known ?? [])).concat(answer.value.data));
      setNext(answer.value.next);
    } else if (answer.kind !== "unchanged") {
      setFailure(answer);
    }
  }
  // biome-ignore lint/correctness/useExhaustiveDependencies: read once, on opening
  useEffect(() => {
    void load(null);
  }, []);
  return (
    <>
      <HeadingOf title={t("audit.title")} />
      {entries?.length === 0 && <p className="empty">{t("audit.none")}</p>}
      {entries === undefined && pending && <div className="placeholder tall" aria-hidden="true" />}
      {entries !== undefined && entries.length > 0 && (
        <section className="card table-card">
          <table className="audit">
            <caption className="unseen">{t("audit.caption")}</caption>
            <thead>
              <tr>
                <th scope="col" className="wide-time">
                  {t("audit.at")}
                </th>
                <th scope="col" className="wide-word">
                  {t("audit.action")}
                </th>
                <th scope="col">{t("audit.resource")}</th>
                <th scope="col">{t("audit.actor")}</th>
                <th scope="col" className="wide-word">
                  {t("audit.source")}
                </th>
                <th scope="col">{t("audit.details")}</th>
              </tr>
            </thead>
            <tbody>
              {entries.map((entry) => (
                <tr key={entry.id}>
                  <td data-label={t("audit.at")}>
                    <Moment time={entry.at} />
                  </td>
                  <td data-label={t("audit.action")}>
                    <code>{entry.action}</code>
                  </td>
                  <td data-label={t("audit.resource")}>
                    <code title={entry.resource_id}>
                      {entry.resource_type} {short(entry.resource_id)}
                    </code>
                  </td>
                  <td data-label={t("audit.actor")}>
                    <code title={entry.actor}>{short(entry.actor)}</code>
                  </td>
                  <td data-label={t("audit.source")}>
                    <code>{entry.source}</code>
                  </td>
                  <td
                    data-label={t("audit.details")}
                    className="details"
                    title={JSON.stringify(entry.details)}
                  >
                    {details(entry.details) || t("none")}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
      <Failed failure={failure} />
      {(next !== null || failure !== undefined) && (
        <Button disabled={pending} onClick={() => void load(next)}>
          {t(failure ? "stale.again" : "loadMore")}
        </Button>
      )}
    </>
  );
}
