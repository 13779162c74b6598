import { useEffect, useMemo, useRef, useState } from "react";
import type { NodeDetail, Range } from "../api/types.ts";
import { moment, parse } from "../format/format.ts";
import { HeadingOf, Link } from "../page/router.tsx";
import { deployment, everyFifteen, nodeDetail, useResource, useSnapshot } from "../page/store.ts";
import { t } from "../text/text.ts";
import { Button } from "../ui/button.tsx";
import { Copyable } from "../ui/copy.tsx";
import { Facts } from "../ui/facts.tsx";
import { Notice, StaleBanner } from "../ui/notice.tsx";
import { Ago } from "../ui/time.tsx";
import { type NodeAction, NodeDialog, operations } from "./node-dialogs.tsx";
import { NodeHost } from "./node-host.tsx";
import { NodeConfiguration, NodeStatus } from "./node-parts.tsx";
import { NodeSandboxes } from "./node-sandboxes.tsx";

export function NodePage({ id }: { id: string }) {
  const [range, setRange] = useState<Range>("1h");
  const asked = useRef<Range>("1h");
  const resource = useMemo(() => nodeDetail(id, () => asked.current), [id]);
  const read = useResource(resource, everyFifteen);
  const found = useSnapshot(deployment).value;
  const [action, setAction] = useState<NodeAction | undefined>();
  // What is drawn was read for one range; another is drawn once it was read.
  const drawn = useRef<{ detail: NodeDetail; range: Range } | undefined>(undefined);
  if (read.value && drawn.current?.detail !== read.value) {
    drawn.current = { detail: read.value, range: asked.current };
  }
  useEffect(() => {
    if (asked.current !== range) {
      asked.current = range;
      void resource.written();
    }
  }, [range, resource]);

  const detail = read.value;
  const gone = read.failure?.kind === "refused" && read.failure.status === 404;
  // Over a dialog nothing is taken away: what was typed stays until it is closed (INV-W14).
  if (gone && action === undefined) {
    return (
      <>
        <HeadingOf title={t("node.gone")} />
        <p>{t("node.gone.text")}</p>
        <Link to="/nodes">{t("node.back")}</Link>
      </>
    );
  }
  if (detail === undefined || found === undefined) {
    return (
      <>
        <HeadingOf title={t("node.loading")} />
        <StaleBanner of={[read]} again={() => void resource.refresh()} />
        {!read.stale && <div className="card placeholder tall" aria-hidden="true" />}
      </>
    );
  }
  const dim = read.stale ? "card stale" : "card";
  return (
    <>
      <p className="crumb">
        <Link to="/nodes">{t("nodes.title")}</Link>
      </p>
      <div className="title">
        <HeadingOf title={detail.name} />
        <NodeStatus node={detail} publicUrl={found.core_url} stale={read.stale} />
        <div className="buttons">
          <Button onClick={() => setAction("edit")}>{t("edit.title")}</Button>
          {operations(detail, setAction).map((one) => (
            <Button key={one.label} onClick={one.run} disabled={one.disabled}>
              {one.label}
            </Button>
          ))}
          <Button onClick={() => setAction("remove")}>{t("remove.title")}</Button>
        </div>
      </div>
      <StaleBanner of={[read]} again={() => void resource.refresh()} />
      {gone && action !== "remove" && <Notice look="warn">{t("node.gone")}</Notice>}
      <Draining detail={detail} />
      <div className="pair">
        <section className={dim}>
          <h2>{t("node.about")}</h2>
          <Facts
            facts={[
              [
                t("node.id"),
                <Copyable key="id" text={detail.id} shown={detail.id.slice(0, 8)} label={t("node.id")} />,
              ],
              [t("node.lastSeen"), <Ago key="seen" time={detail.last_seen_at} />],
              [t("node.added"), <Ago key="added" time={detail.created_at} />],
              [t("node.labels"), <Labels key="labels" all={detail.labels} />],
            ]}
          />
        </section>
        <section className={dim}>
          <h2>{t("node.capacity")}</h2>
          <Capacity detail={detail} stale={read.stale} />
        </section>
      </div>
      <section className="card table-card">
        <h2>{t("sandboxes.title")}</h2>
        <NodeSandboxes id={id} />
      </section>
      <section className={dim}>
        <h2>{t("host.title")}</h2>
        <NodeHost
          detail={drawn.current?.detail ?? detail}
          range={drawn.current?.range ?? range}
          chosen={range}
          setRange={setRange}
          stale={read.stale}
        />
      </section>
      {action && (
        <NodeDialog
          node={detail}
          action={action}
          found={found}
          detail={resource}
          onClose={() => setAction(undefined)}
        />
      )}
    </>
  );
}

function Draining({ detail }: { detail: NodeDetail }) {
  const { drain } = detail;
  if (drain === null) {
    return null;
  }
  const passed = drain.deadline_passed_at;
  const time = moment(parse(passed ?? drain.deadline_at ?? drain.requested_at));
  return (
    <Notice look="info">
      <p>{t(passed === null ? "node.draining" : "node.drainPassed", { active: detail.active, time })}</p>
      <p>{t("uncordon.draining")}</p>
    </Notice>
  );
}

function Labels({ all }: { all: Record<string, string> }) {
  const entries = Object.entries(all);
  if (entries.length === 0) {
    return t("node.noLabels");
  }
  return (
    <ul className="labels">
      {entries.map(([key, value]) => (
        <li key={key}>
          <code>
            {key}={value}
          </code>
        </li>
      ))}
    </ul>
  );
}

function Capacity({ detail, stale }: { detail: NodeDetail; stale: boolean }) {
  const suspends = detail.provider === "microsandbox";
  const blind = stale || !detail.online;
  const of = (active: number, limit: number) => t("nodes.of", { active, limit });
  return (
    <Facts
      facts={[
        [t("node.active"), of(detail.active, detail.max_active)],
        [t("node.running"), blind ? t("none") : detail.running],
        ...(suspends
          ? ([
              [t("node.retained"), of(detail.retained, detail.max_retained)],
              [t("node.snapshots"), blind ? t("none") : detail.snapshots],
            ] as [string, string | number][])
          : []),
        [t("node.reserved"), detail.reserved],
        [t("node.configuration"), <NodeConfiguration key="configuration" node={detail} />],
        [t("node.generation"), detail.rollout.ready_generation ?? t("none")],
      ]}
    />
  );
}
