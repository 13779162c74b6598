import { memo, useDeferredValue, useMemo, useState } from "react";
import type { Node } from "../api/types.ts";
import { HeadingOf, isReturn, Link, useKept } from "../page/router.tsx";
import { deployment, everyTen, nodes, useResource, useSnapshot } from "../page/store.ts";
import { language, t } from "../text/text.ts";
import { Button } from "../ui/button.tsx";
import { Field } from "../ui/field.tsx";
import { Menu } from "../ui/menu.tsx";
import { StaleBanner } from "../ui/notice.tsx";
import { Ago } from "../ui/time.tsx";
import { AddNodeButton } from "./add-node.tsx";
import { CleanUpDialog } from "./clean-up.tsx";
import { type NodeAction, NodeDialog, operations } from "./node-dialogs.tsx";
import { NodeConfiguration, NodeStatus } from "./node-parts.tsx";
import { isSteady } from "./node-status.ts";

/** From so many nodes on there is a filter. */
const FILTER_ABOVE = 20;
/** What is drawn at once of a long list; the rest follows without holding up a key or a click. */
const AT_ONCE = 40;

const collator = new Intl.Collator(language);

/** By name, then id; those whose name, id or a label holds `text`. */
export function shown(all: Node[], text: string): Node[] {
  const wanted = text.trim().toLowerCase();
  const holds = (node: Node) =>
    [node.name, node.id, ...Object.entries(node.labels).map(([key, value]) => `${key}=${value}`)].some(
      (part) => part.toLowerCase().includes(wanted),
    );
  return all.filter(holds).sort((a, b) => collator.compare(a.name, b.name) || (a.id < b.id ? -1 : 1));
}

export function NodeList() {
  const read = useSnapshot(deployment);
  const list = useResource(nodes, everyTen);
  const [filter, setFilter] = useKept("filter");
  const [open, setOpen] = useState<{ node: Node; action: NodeAction } | undefined>();
  const [cleaning, setCleaning] = useState(false);
  const all = list.value?.data;
  const rows = useMemo(() => (all === undefined ? [] : shown(all, filter)), [all, filter]);
  // Whoever comes back is scrolled to where they were: all of it has to be there.
  const drawn = useDeferredValue(rows, isReturn() ? rows : rows.slice(0, AT_ONCE));
  const found = read.value;
  if (found === undefined) {
    return null;
  }
  if (found.mode === "direct") {
    return (
      <>
        <HeadingOf title={t("nodes.title")} />
        <p className="empty">{t("nodes.direct")}</p>
      </>
    );
  }
  const suspends = found.provider === "microsandbox";
  // A node that was removed stays in its own dialog.
  const chosen = open && (all?.find((node) => node.id === open.node.id) ?? open.node);
  return (
    <>
      <div className="title">
        <HeadingOf title={t("nodes.title")} />
        <div className="buttons">
          <Button onClick={() => setCleaning(true)}>{t("cleanUp.any")}</Button>
          <AddNodeButton main />
        </div>
      </div>
      <StaleBanner of={[read, list]} again={() => void nodes.refresh()} />
      {all === undefined && !list.stale && <div className="card placeholder tall" aria-hidden="true" />}
      {all?.length === 0 && (
        <div className="empty">
          <p>{t("nodes.none")}</p>
          <p>{t("nodes.none.text")}</p>
        </div>
      )}
      {all !== undefined && (all.length > FILTER_ABOVE || filter !== "") && (
        <div className="filter">
          <Field label={t("nodes.filter")} value={filter} onChange={setFilter} type="search" />
          <p role="status">{t("nodes.filtered", { count: rows.length })}</p>
        </div>
      )}
      {all !== undefined && all.length > 0 && rows.length === 0 && (
        <p className="empty">{t("nodes.noneFound")}</p>
      )}
      {rows.length > 0 && (
        <section className={list.stale ? "card table-card stale" : "card table-card"}>
          <table className="nodes">
            <caption className="unseen">{t("nodes.caption")}</caption>
            <thead>
              <tr>
                <th scope="col">{t("nodes.node")}</th>
                <th scope="col" className="wide-status">
                  {t("nodes.status")}
                </th>
                <th scope="col" className="wide-configuration">
                  {t("nodes.configuration")}
                </th>
                <th scope="col" className="wide-count">
                  {t("nodes.active")}
                </th>
                {suspends && (
                  <th scope="col" className="wide-suspended">
                    {t("nodes.suspended")}
                  </th>
                )}
                <th scope="col" className="wide-time">
                  {t("nodes.lastSeen")}
                </th>
                <th scope="col" className="wide-time">
                  {t("nodes.added")}
                </th>
                <th scope="col" className="wide-actions">
                  {t("nodes.actions")}
                </th>
              </tr>
            </thead>
            <tbody>
              {drawn.map((node) => (
                <Row
                  key={node.id}
                  node={node}
                  publicUrl={found.core_url}
                  suspends={suspends}
                  stale={list.stale}
                  setOpen={setOpen}
                />
              ))}
            </tbody>
          </table>
        </section>
      )}
      {cleaning && <CleanUpDialog title="cleanUp.any" onClose={() => setCleaning(false)} />}
      {open && chosen && (
        <NodeDialog node={chosen} action={open.action} found={found} onClose={() => setOpen(undefined)} />
      )}
    </>
  );
}

interface RowProps {
  node: Node;
  publicUrl: string | null;
  suspends: boolean;
  stale: boolean;
  setOpen: (open: { node: Node; action: NodeAction }) => void;
}

const alike = ({ node, ...rest }: RowProps, { node: next, ...other }: RowProps) =>
  isSteady(node, next) &&
  rest.publicUrl === other.publicUrl &&
  rest.suspends === other.suspends &&
  rest.stale === other.stale &&
  rest.setOpen === other.setOpen;

/** Of most nodes a list brings nothing but a later sign of life, and only its cell is drawn again. */
const Row = memo(function Row(props: RowProps) {
  return (
    <tr>
      <Before {...props} />
      <td data-label={t("nodes.lastSeen")}>
        <Ago time={props.node.last_seen_at} />
      </td>
      <After {...props} />
    </tr>
  );
});

const Before = memo(function Before({ node, publicUrl, suspends, stale }: RowProps) {
  return (
    <>
      <th scope="row">
        <Link to={`/nodes/${node.id}`} title={node.name}>
          {node.name}
        </Link>
        <code title={node.id}>{node.id.slice(0, 8)}</code>
      </th>
      <td data-label={t("nodes.status")}>
        <NodeStatus node={node} publicUrl={publicUrl} stale={stale} />
      </td>
      <td data-label={t("nodes.configuration")}>
        <NodeConfiguration node={node} />
      </td>
      <td data-label={t("nodes.active")} className="number">
        {t("nodes.of", { active: node.active, limit: node.max_active })}
      </td>
      {suspends && (
        <td data-label={t("nodes.suspended")} className="number">
          {node.snapshots}
        </td>
      )}
    </>
  );
}, alike);

const After = memo(function After({ node, setOpen }: RowProps) {
  const open = (action: NodeAction) => setOpen({ node, action });
  return (
    <>
      <td data-label={t("nodes.added")}>
        <Ago time={node.created_at} />
      </td>
      <td className="row-actions">
        <Button className="small" onClick={() => open("edit")}>
          {t("edit.title")}
        </Button>
        <Button className="small" onClick={() => open("remove")}>
          {t("remove")}
        </Button>
        <Menu label={t("nodes.actionsFor", { name: node.name })} actions={operations(node, open)} />
      </td>
    </>
  );
}, alike);
