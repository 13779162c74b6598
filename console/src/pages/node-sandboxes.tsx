import { useEffect, useMemo, useRef, useState } from "react";
import type { Allocation } from "../api/types.ts";
import { ago, parse, span } from "../format/format.ts";
import { deployment, everyFifteen, nodeAllocations, nodes, useResource, useSnapshot } from "../page/store.ts";
import { issue } from "../text/codes.ts";
import { t } from "../text/text.ts";
import { Button } from "../ui/button.tsx";
import { StaleBanner } from "../ui/notice.tsx";
import { Ago, useLive } from "../ui/time.tsx";
import { DiscardDialog } from "./discard-dialog.tsx";

export function NodeSandboxes({ id }: { id: string }) {
  const pages = useRef(1);
  const resource = useMemo(() => nodeAllocations(id, () => pages.current), [id]);
  const read = useResource(resource, everyFifteen);
  const [discarding, setDiscarding] = useState<Allocation | undefined>();
  // What is left is on other nodes, which the list of nodes names.
  const list = useSnapshot(nodes).value;
  const nameOf = (id: string) => list?.data.find((node) => node.id === id)?.name ?? id;
  const elsewhere = read.value?.data.some((one) => one.former_computes.length > 0) ?? false;
  useEffect(() => {
    if (elsewhere && nodes.get().value === undefined) {
      void nodes.refresh();
    }
  }, [elsewhere]);
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
                <span className="with-action">
                  <span>{allocation.diagnostic === "" ? t("none") : t(issue(allocation.diagnostic))}</span>
                  {(allocation.discardable || allocation.former_computes.length > 0) && (
                    <Button className="small" onClick={() => setDiscarding(allocation)}>
                      {t(allocation.discardable ? "discard" : "discard.former")}
                    </Button>
                  )}
                </span>
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
          former={discarding.discardable ? undefined : discarding.former_computes.map(nameOf)}
          effect={{
            resource,
            happened: (now) => {
              const one = now.data.find(({ id }) => id === discarding.id);
              return discarding.discardable ? one?.discardable !== true : !one?.former_computes.length;
            },
          }}
          onClose={() => setDiscarding(undefined)}
        />
      )}
    </div>
  );
}

function Since({ allocation }: { allocation: Allocation }) {
  const retention = useSnapshot(deployment).value?.suspension?.retention_seconds;
  const changed = parse(allocation.compute_phase_changed_at);
  return useLive((now) => {
    if (allocation.compute_phase !== "suspended" || retention === undefined) {
      return ago(changed, now);
    }
    const left = Math.max(changed + retention * 1000 - now, 0);
    return t("sandboxes.suspendedFor", { time: span(now - changed), left: span(left) });
  });
}
