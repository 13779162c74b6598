import type { Deployment, Nodes } from "../api/types.ts";
import { size } from "../format/format.ts";
import { HeadingOf, Link } from "../page/router.tsx";
import { deployment, everyTen, nodes, useResource, useSnapshot } from "../page/store.ts";
import { t } from "../text/text.ts";
import { Facts } from "../ui/facts.tsx";
import { StaleBanner } from "../ui/notice.tsx";
import { AddNodeButton } from "./add-node.tsx";
import { NodeStatus, StatusMark } from "./node-parts.tsx";
import { type Status, statusOf } from "./node-status.ts";
import { ResetProgress } from "./reset-progress.tsx";

const ORDER: Status[] = [
  "available",
  "needsAttention",
  "providerNotReady",
  "offline",
  "oldAddress",
  "unconfirmed",
];

export function Overview() {
  const read = useSnapshot(deployment);
  const list = useResource(nodes, everyTen);
  const found = read.value;
  if (found === undefined) {
    return null;
  }
  function again() {
    void deployment.refresh();
    void nodes.refresh();
  }
  const dim = read.stale || list.stale ? "card stale" : "card";
  return (
    <>
      <HeadingOf title={t("overview.title")} />
      <StaleBanner of={[read, list]} again={again} />
      {found.reset && (
        <section className={dim}>
          <h2>{t("overview.reset")}</h2>
          <ResetProgress reset={found.reset} />
        </section>
      )}
      <div className="cards">
        <section className={dim}>
          <h2>{t("overview.configuration")}</h2>
          <Configuration found={found} />
        </section>
        {found.mode !== "direct" && (
          <NodeCards found={found} list={list.value} stale={list.stale} dim={dim} />
        )}
      </div>
      {found.mode === "direct" ? (
        <p className="empty">{t("overview.direct")}</p>
      ) : (
        <Attention found={found} list={list.value} stale={list.stale} dim={dim} />
      )}
    </>
  );
}

function Configuration({ found }: { found: Deployment }) {
  if (found.provider === null || !found.specification) {
    return (
      <>
        <p>{t("overview.noConfiguration")}</p>
        <div className="buttons start">
          <Link className="button" to="/settings/sandbox">
            {t("overview.setUp")}
          </Link>
        </div>
      </>
    );
  }
  return (
    <Facts
      facts={[
        [t("overview.backend"), t(`provider.${found.provider}`)],
        [t("overview.size"), size(found.specification.resources)],
        [t("overview.generation"), found.generation],
      ]}
    />
  );
}

interface Shown {
  found: Deployment;
  list: Nodes | undefined;
  stale: boolean;
  dim: string;
}

function NodeCards({ found, list, stale, dim }: Shown) {
  if (list === undefined) {
    return <div className="card placeholder" aria-hidden="true" />;
  }
  const counts = new Map<Status, number>();
  for (const node of list.data) {
    const status = statusOf(node, found.core_url, stale);
    counts.set(status, (counts.get(status) ?? 0) + 1);
  }
  const sum = (of: (node: Nodes["data"][number]) => number) =>
    list.data.reduce((total, node) => total + of(node), 0);
  const rollout = found.rollout;
  return (
    <>
      <section className={dim}>
        <h2>{t("overview.nodes")}</h2>
        {list.data.length === 0 ? (
          <>
            <p>{t("overview.noNodes")}</p>
            <div className="buttons start">
              <AddNodeButton />
            </div>
          </>
        ) : (
          <ul className="counts">
            {ORDER.filter((status) => counts.has(status)).map((status) => (
              <li key={status}>
                <StatusMark status={status} />
                <span className="number">{counts.get(status)}</span>
              </li>
            ))}
          </ul>
        )}
      </section>
      <section className={dim}>
        <h2>{t("overview.use")}</h2>
        <p className="large">
          {t("overview.used", { active: sum((node) => node.active), limit: sum((node) => node.max_active) })}
        </p>
        {found.provider === "microsandbox" && (
          <Facts
            facts={[
              [
                t("overview.retained"),
                t("overview.used", {
                  active: sum((node) => node.retained),
                  limit: sum((node) => node.max_retained),
                }),
              ],
            ]}
          />
        )}
      </section>
      {found.provider !== null && (
        <section className={dim}>
          <h2>{t("overview.rollout")}</h2>
          <p>{t(`overview.rollout.${rollout.state}`)}</p>
          <Facts facts={[[t("overview.previous"), rollout.previous_generation_sandboxes]]} />
        </section>
      )}
    </>
  );
}

function Attention({ found, list, stale, dim }: Shown) {
  if (list === undefined || list.data.length === 0) {
    return null;
  }
  const shown = list.data.filter((node) => statusOf(node, found.core_url, stale) !== "available");
  return (
    <section className={dim}>
      <h2>{t("overview.attention")}</h2>
      {shown.length === 0 ? (
        <p>{t("overview.attention.none")}</p>
      ) : (
        <ul className="attention">
          {shown.map((node) => (
            <li key={node.id}>
              <Link to={`/nodes/${node.id}`}>{node.name}</Link>
              <NodeStatus node={node} publicUrl={found.core_url} stale={stale} />
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
