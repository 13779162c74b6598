import { useMemo, useRef, useState } from "react";
import type { Allocation } from "../api/types.ts";
import { ago, parse, span } from "../format/format.ts";
import { deployment, everyFifteen, nodeAllocations, useResource, useSnapshot } from "../page/store.ts";
import { issue } from "../text/codes.ts";
import { t } from "../text/text.ts";
import { Button } from "../ui/button.tsx";
import { StaleBanner } from "../ui/notice.tsx";
import { Ago, useNow } from "../ui/time.tsx";
import { DiscardDialog } from "./discard-dialog.tsx";

export function NodeSandboxes({ id }: { id: string }) {
  const pages = useRef(1);
  const resource = useMemo(() => nodeAllocations(id, () => pages.current), [id]);
  const read = useResource(resource, everyFifteen);
  const [discarding, setDiscarding] = useState<Allocation | undefined>();
  const found = read.value;
  if (found === undefined) {
    return read.stale ? (
      <StaleBanner of={[read]} again={() => void resource.refresh()} />
    ) : (
      <div className="placeholder" aria-hidden="true" />
    );
  }
  if (found.data.length === 0) {
    return <p className="empty">{t("sandboxes.none")}</p>;
  }
  return (
    <div className={read.stale ? "stale" : ""}>
      <table>
        <caption className="unseen">{t("sandboxes.title")}</caption>
        <thead>
          <tr>
            <th scope="col">{t("sandboxes.session")}</th>
            <th scope="col">{t("sandboxes.state")}</th>
            <th scope="col">{t("sandboxes.phase")}</th>
            <th scope="col">{t("sandboxes.since")}</th>
            <th scope="col">{t("sandboxes.issue")}</th>
            <th scope="col">{t("sandboxes.created")}</th>
          </tr>
        </thead>
        <tbody>
          {found.data.map((allocation) => (
            <tr key={allocation.id}>
              <th scope="row">
                <code title={allocation.session_id}>{allocation.session_id.slice(0, 8)}</code>
              </th>
              <td data-label={t("sandboxes.state")}>
                <code>{allocation.state}</code>
              </td>
              <td data-label={t("sandboxes.phase")}>
                <code>{allocation.compute_phase}</code>
              </td>
              <td data-label={t("sandboxes.since")}>
                <Since allocation={allocation} />
              </td>
              <td data-label={t("sandboxes.issue")}>
                {allocation.diagnostic === "" ? t("none") : t(issue(allocation.diagnostic))}
                {allocation.discardable && (
                  <Button className="small" onClick={() => setDiscarding(allocation)}>
                    {t("discard")}
                  </Button>
                )}
              </td>
              <td data-label={t("sandboxes.created")}>
                <Ago time={allocation.created_at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {found.next !== null && (
        <Button
          onClick={() => {
            pages.current += 1;
            void resource.written();
          }}
        >
          {t("loadMore")}
        </Button>
      )}
      {discarding && (
        <DiscardDialog
          allocationId={discarding.id}
          sessionId={discarding.session_id}
          effect={{
            resource,
            happened: (now) => now.data.find((one) => one.id === discarding.id)?.discardable !== true,
          }}
          onClose={() => setDiscarding(undefined)}
        />
      )}
    </div>
  );
}

function Since({ allocation }: { allocation: Allocation }) {
  const now = useNow(5000);
  const retention = useSnapshot(deployment).value?.suspension?.retention_seconds;
  const changed = parse(allocation.compute_phase_changed_at);
  if (allocation.compute_phase !== "suspended" || retention === undefined) {
    return ago(changed, now);
  }
  const left = Math.max(changed + retention * 1000 - now, 0);
  return t("sandboxes.suspendedFor", { time: span(now - changed), left: span(left) });
}
