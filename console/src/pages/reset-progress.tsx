import type { Reset } from "../api/types.ts";
import { moment, parse, span, utc } from "../format/format.ts";
import { t } from "../text/text.ts";
import { Facts } from "../ui/facts.tsx";
import { useNow } from "../ui/time.tsx";

/** How far a reset came, and what it waits for. */
export function ResetProgress({ reset }: { reset: Reset }) {
  const now = useNow(5000);
  const left = reset.remaining;
  return (
    <>
      <Facts
        facts={[
          [t("reset.busy"), left.busy],
          [t("reset.idle"), left.idle],
          [t("reset.cleanup"), left.cleanup],
          [t("reset.offline"), left.on_offline_nodes],
        ]}
      />
      {reset.forced_at !== null ? (
        <p title={utc(parse(reset.forced_at))}>
          {t("reset.forced", { time: moment(parse(reset.forced_at)) })}
        </p>
      ) : (
        reset.deadline_at !== null && (
          <p>{t("reset.left", { time: span(Math.max(parse(reset.deadline_at) - now, 0)) })}</p>
        )
      )}
      {left.offline_nodes.length > 0 && (
        <>
          <p>{t("reset.offlineText")}</p>
          <ul>
            {left.offline_nodes.map((node) => (
              <li key={node.node_id}>{t("reset.offlineNode", { name: node.name, count: node.resources })}</li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}
