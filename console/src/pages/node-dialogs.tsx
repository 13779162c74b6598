// What an operator does to one node, each in a dialog that keeps what was typed until Core has confirmed the change.

import { type FormEvent, useState } from "react";
import { api, ask } from "../api/client.ts";
import type { Deployment, Node, NodeDetail, Nodes } from "../api/types.ts";
import type { Resource } from "../data/resource.ts";
import { write } from "../data/write.ts";
import { CAPACITY_MAX, isName, labelLines, labels as parseLabels, wholeNumber } from "../format/entry.ts";
import { gib, size } from "../format/format.ts";
import { deployment, nodes } from "../page/store.ts";
import { t } from "../text/text.ts";
import { Button } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Facts } from "../ui/facts.tsx";
import { Area, Field } from "../ui/field.tsx";
import type { Action } from "../ui/menu.tsx";
import { Notice } from "../ui/notice.tsx";
import { Actions, useSending } from "../ui/send.tsx";
import { shown, useTyped } from "../ui/typed.ts";
import { CleanUpDialog } from "./clean-up.tsx";
import { DrainDialog } from "./drain-dialog.tsx";

export type NodeAction = "edit" | "labels" | "cordon" | "uncordon" | "drain" | "cancelDrain" | "remove";

export interface NodeDialogProps {
  node: Node;
  found: Deployment;
  onClose: () => void;
  /** The node's page, which is read afresh too. */
  detail?: Resource<NodeDetail> | undefined;
}

/** The actions of a node's menu. */
export function operations(node: Node, open: (action: NodeAction) => void): Action[] {
  const draining = node.drain !== null;
  return [
    { label: t("labels.title"), run: () => open("labels") },
    node.cordoned
      ? { label: t("uncordon.title"), run: () => open("uncordon"), disabled: draining }
      : { label: t("cordon.title"), run: () => open("cordon") },
    draining
      ? { label: t("drain.cancel"), run: () => open("cancelDrain") }
      : { label: t("drain.title"), run: () => open("drain") },
  ];
}

export function NodeDialog({ action, ...props }: NodeDialogProps & { action: NodeAction }) {
  switch (action) {
    case "edit":
      return <EditDialog {...props} />;
    case "labels":
      return <LabelsDialog {...props} />;
    case "drain":
      return <DrainDialog {...props} />;
    case "remove":
      return <RemoveDialog {...props} />;
    default:
      return <AskDialog action={action} {...props} />;
  }
}

/** Sends a change of `node`; a lost answer is decided by how the list shows the node afterwards. */
export function change(
  { node, detail }: Pick<NodeDialogProps, "node" | "detail">,
  send: () => ReturnType<typeof ask>,
  happened: (node: Node | undefined) => boolean | undefined,
) {
  const effect = {
    resource: nodes,
    happened: (list: Nodes) => happened(list.data.find((one) => one.id === node.id)),
  };
  const others = [deployment, ...(detail ? [detail] : [])] as Resource<unknown>[];
  return write(send, effect, ...others);
}

const at = (node: Node) => ({ params: { path: { node_id: node.id } } });

function EditDialog({ node, found, onClose, detail }: NodeDialogProps) {
  const suspends = found.provider === "microsandbox";
  const name = useTyped(node.name);
  const active = useTyped(String(node.max_active));
  const retained = useTyped(String(node.max_retained));
  const [checked, setChecked] = useState(false);
  const sending = useSending();

  const maxActive = wholeNumber(active.value, 1, CAPACITY_MAX);
  const maxRetained = suspends ? wholeNumber(retained.value, 1, CAPACITY_MAX) : maxActive;
  const retainedError =
    maxRetained === undefined
      ? t("bound.number")
      : maxActive !== undefined && maxRetained < maxActive
        ? t("bound.retained")
        : undefined;
  const below =
    (maxActive !== undefined && maxActive < node.active) ||
    (suspends && maxRetained !== undefined && maxRetained < node.retained);

  function submit(event: FormEvent) {
    event.preventDefault();
    setChecked(true);
    if (!isName(name.value) || maxActive === undefined || maxRetained === undefined || retainedError) {
      return;
    }
    const body = { name: name.value.trim(), max_active: maxActive, max_retained: maxRetained };
    const send = () => ask(api.PATCH("/core/v1/sandbox/nodes/{node_id}", { ...at(node), body }));
    const happened = (now: Node | undefined) =>
      now?.name === body.name && now.max_active === maxActive && now.max_retained === maxRetained;
    void sending.send(() => change({ node, detail }, send, happened), onClose);
  }
  const recommended = node.recommended;
  return (
    <Dialog title={t("edit.title")} pending={sending.pending} onClose={onClose}>
      <form onSubmit={submit} noValidate>
        <Facts
          facts={[
            [t("host.cores"), node.cpu_count === null ? t("none") : node.cpu_count],
            [
              t("edit.memory"),
              node.available_memory_bytes === null ? t("none") : gib(node.available_memory_bytes),
            ],
            [t("host.disk"), node.available_disk_bytes === null ? t("none") : gib(node.available_disk_bytes)],
            [t("edit.sandbox"), found.specification ? size(found.specification.resources) : t("none")],
          ]}
        />
        <Field
          label={t("edit.name")}
          {...shown(name)}
          error={sending.errorOf("name") ?? (checked && !isName(name.value) ? t("bound.name") : undefined)}
        />
        <Field
          label={t("edit.active")}
          inputMode="numeric"
          {...shown(active)}
          error={
            sending.errorOf("max_active") ??
            (checked && maxActive === undefined ? t("bound.number") : undefined)
          }
        />
        {suspends && (
          <Field
            label={t("edit.retained")}
            inputMode="numeric"
            {...shown(retained)}
            error={sending.errorOf("max_retained") ?? (checked ? retainedError : undefined)}
          />
        )}
        <div className="recommendation">
          {recommended === null ? (
            <p className="hint">{t("edit.noRecommendation")}</p>
          ) : (
            <>
              <p>
                {t(suspends ? "edit.recommended" : "edit.recommendedDocker", {
                  active: recommended.max_active,
                  retained: recommended.max_retained,
                })}
              </p>
              <Button
                className="small"
                onClick={() => {
                  active.onChange(String(recommended.max_active));
                  retained.onChange(String(recommended.max_retained));
                }}
              >
                {t("edit.use")}
              </Button>
            </>
          )}
        </div>
        {below && <Notice look="warn">{t("edit.below")}</Notice>}
        <Actions
          sending={sending}
          fields={["name", "max_active", "max_retained"]}
          onCancel={onClose}
          submit={t("save")}
        />
      </form>
    </Dialog>
  );
}

function LabelsDialog({ node, onClose, detail }: NodeDialogProps) {
  const text = useTyped(labelLines(node.labels));
  const [checked, setChecked] = useState(false);
  const sending = useSending();
  const parsed = parseLabels(text.value);
  function submit(event: FormEvent) {
    event.preventDefault();
    setChecked(true);
    if ("wrong" in parsed) {
      return;
    }
    const body = { labels: { ...parsed.labels } };
    const send = () => ask(api.PUT("/core/v1/sandbox/nodes/{node_id}/labels", { ...at(node), body }));
    const sorted = (all: Record<string, string>) => JSON.stringify(Object.entries(all).sort());
    const happened = (now: Node | undefined) =>
      now !== undefined && sorted(now.labels) === sorted(body.labels);
    void sending.send(() => change({ node, detail }, send, happened), onClose);
  }
  return (
    <Dialog title={t("labels.title")} pending={sending.pending} onClose={onClose}>
      <form onSubmit={submit}>
        <Area
          label={t("labels.field")}
          value={text.value}
          onChange={text.onChange}
          hint={text.hint ?? t("labels.hint")}
          error={sending.errorOf("labels") ?? (checked && "wrong" in parsed ? parsed.wrong : undefined)}
        />
        <Actions sending={sending} fields={["labels"]} onCancel={onClose} submit={t("save")} />
      </form>
    </Dialog>
  );
}

const QUESTIONS = {
  cordon: { title: "cordon.title", text: "cordon.text", submit: "cordon.title" },
  uncordon: { title: "uncordon.title", text: "uncordon.text", submit: "uncordon.title" },
  cancelDrain: { title: "drain.cancel", text: "drain.cancel.text", submit: "drain.cancel" },
} as const;

/** What needs no more than a yes. */
function AskDialog({ action, node, onClose, detail }: NodeDialogProps & { action: keyof typeof QUESTIONS }) {
  const sending = useSending();
  const question = QUESTIONS[action];
  function submit(event: FormEvent) {
    event.preventDefault();
    const send = () =>
      action === "cancelDrain"
        ? ask(api.DELETE("/core/v1/sandbox/nodes/{node_id}/drain", at(node)))
        : ask(api.POST(`/core/v1/sandbox/nodes/{node_id}/${action}`, { ...at(node), body: {} }));
    const happened = (now: Node | undefined) =>
      action === "cancelDrain" ? now?.drain === null : now?.cordoned === (action === "cordon");
    void sending.send(() => change({ node, detail }, send, happened), onClose);
  }
  return (
    <Dialog title={t(question.title)} pending={sending.pending} onClose={onClose}>
      <form onSubmit={submit}>
        <p>{node.name}</p>
        <p>{t(question.text)}</p>
        <Actions sending={sending} onCancel={onClose} submit={t(question.submit)} />
      </form>
    </Dialog>
  );
}

function RemoveDialog({ node, onClose, detail }: NodeDialogProps) {
  const [done, setDone] = useState(false);
  const sending = useSending();
  function submit(event: FormEvent) {
    event.preventDefault();
    const send = () => ask(api.DELETE("/core/v1/sandbox/nodes/{node_id}", at(node)));
    void sending.send(
      () => change({ node, detail }, send, (now) => now === undefined),
      () => setDone(true),
    );
  }
  if (done) {
    return <CleanUpDialog title="cleanUp.title" removed={node.name} onClose={onClose} />;
  }
  return (
    <Dialog title={t("remove.title")} pending={sending.pending} onClose={onClose}>
      <form onSubmit={submit}>
        <p>
          <strong>{t("remove.ask", { name: node.name })}</strong>
        </p>
        <p>{t("remove.text")}</p>
        <Actions
          sending={sending}
          own={{ runtime_node_in_use: t("remove.refused") }}
          onCancel={onClose}
          submit={t("remove.confirm")}
          danger
        />
      </form>
    </Dialog>
  );
}
