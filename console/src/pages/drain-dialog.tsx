import { type FormEvent, useState } from "react";
import { api, ask } from "../api/client.ts";
import { wholeNumber } from "../format/entry.ts";
import { t } from "../text/text.ts";
import { Dialog } from "../ui/dialog.tsx";
import { Choice, Field } from "../ui/field.tsx";
import { Actions, useSending } from "../ui/send.tsx";
import { drained } from "./happened.ts";
import { change, type NodeDialogProps } from "./node-dialogs.tsx";

const BOUNDS = { min: 60, max: 604_800 };

export function DrainDialog({ node, found, onClose, detail }: NodeDialogProps) {
  const suspends = found.provider === "microsandbox";
  const [deadline, setDeadline] = useState("3600");
  const [idle, setIdle] = useState<"suspend" | "wait">(suspends ? "suspend" : "wait");
  const [then, setThen] = useState<"archive" | "terminate">("archive");
  const [retained, setRetained] = useState<"keep" | "release">("keep");
  const [checked, setChecked] = useState(false);
  const sending = useSending();
  const seconds = wholeNumber(deadline, BOUNDS.min, BOUNDS.max);

  function submit(event: FormEvent) {
    event.preventDefault();
    setChecked(true);
    if (seconds === undefined) {
      return;
    }
    const body = { deadline_seconds: seconds, idle, then, retained };
    const send = () =>
      ask(
        api.POST("/core/v1/sandbox/nodes/{node_id}/drain", { params: { path: { node_id: node.id } }, body }),
      );
    void sending.send(() => change({ node, detail }, send, (now) => drained(node, body, now)), onClose);
  }
  const bounds = { min: BOUNDS.min, max: BOUNDS.max };
  return (
    <Dialog title={t("drain.title")} pending={sending.pending} onClose={onClose}>
      <form onSubmit={submit} noValidate>
        <p>{node.name}</p>
        <Field
          label={t("drain.deadline")}
          inputMode="numeric"
          value={deadline}
          onChange={setDeadline}
          error={
            sending.errorOf("deadline_seconds") ??
            (checked && seconds === undefined ? t("bound.range", bounds) : undefined)
          }
        />
        {suspends && (
          <Choice
            label={t("drain.idle")}
            value={idle}
            onChange={setIdle}
            inline
            options={[
              { value: "suspend", label: t("drain.idle.suspend") },
              { value: "wait", label: t("drain.idle.wait") },
            ]}
          />
        )}
        <Choice
          label={t("drain.then")}
          value={then}
          onChange={setThen}
          inline
          options={[
            { value: "archive", label: t("drain.then.archive") },
            { value: "terminate", label: t("drain.then.terminate") },
          ]}
        />
        {suspends && (
          <Choice
            label={t("drain.retained")}
            value={retained}
            onChange={setRetained}
            inline
            options={[
              { value: "keep", label: t("drain.retained.keep") },
              { value: "release", label: t("drain.retained.release") },
            ]}
          />
        )}
        <Actions
          sending={sending}
          fields={["deadline_seconds"]}
          onCancel={onClose}
          submit={t("drain.start")}
        />
      </form>
    </Dialog>
  );
}
