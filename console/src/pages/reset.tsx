// Resetting the deployment: begun in a dialog that is bound to what it opened over, followed and ended here.

import { type FormEvent, useState } from "react";
import { api, ask } from "../api/client.ts";
import type { Deployment, Reset } from "../api/types.ts";
import type { Resource } from "../data/resource.ts";
import { write } from "../data/write.ts";
import { wholeNumber } from "../format/entry.ts";
import { deployment, nodes } from "../page/store.ts";
import { t } from "../text/text.ts";
import { Button } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Choice, Field } from "../ui/field.tsx";
import { Notice } from "../ui/notice.tsx";
import { Actions, useSending } from "../ui/send.tsx";
import { DiscardDialog } from "./discard-dialog.tsx";
import { reset as happenedReset } from "./happened.ts";
import { ResetProgress } from "./reset-progress.tsx";

type Open = "start" | "force" | "cancel";

export function ResetSection({ found }: { found: Deployment }) {
  const [open, setOpen] = useState<{ what: Open; bound: Deployment } | undefined>();
  const show = (what: Open) => setOpen({ what, bound: found });
  const close = () => setOpen(undefined);
  return (
    <>
      {found.reset === null ? (
        <>
          <p>{t("reset.text")}</p>
          <div className="buttons start">
            <Button onClick={() => show("start")}>{t("reset.title")}</Button>
          </div>
        </>
      ) : (
        <>
          <ResetProgress reset={found.reset} />
          <Discardable reset={found.reset} />
          <div className="buttons start">
            {found.reset.forced_at === null && (
              <Button look="danger" onClick={() => show("force")}>
                {t("reset.forceNow")}
              </Button>
            )}
            <Button onClick={() => show("cancel")}>{t("reset.cancel")}</Button>
          </div>
        </>
      )}
      {open?.what === "start" && <StartDialog found={found} bound={open.bound} onClose={close} />}
      {open?.what === "force" && <ForceDialog found={found} bound={open.bound} onClose={close} />}
      {open?.what === "cancel" && <CancelDialog found={found} bound={open.bound} onClose={close} />}
    </>
  );
}

/** What no waiting settles. */
function Discardable({ reset }: { reset: Reset }) {
  const [chosen, setChosen] = useState<Reset["remaining"]["discardable"][number] | undefined>();
  const all = reset.remaining.discardable;
  return (
    <>
      {all.length > 0 && (
        <>
          <p>{t("reset.discardable")}</p>
          <ul className="attention">
            {all.map((one) => (
              <li key={one.allocation_id}>
                <code>{one.session_id}</code>
                <Button className="small" onClick={() => setChosen(one)}>
                  {t("discard")}
                </Button>
              </li>
            ))}
          </ul>
        </>
      )}
      {chosen && (
        <DiscardDialog
          allocationId={chosen.allocation_id}
          sessionId={chosen.session_id}
          effect={{
            resource: deployment,
            happened: (now) =>
              !now.reset?.remaining.discardable.some((one) => one.allocation_id === chosen.allocation_id),
          }}
          onClose={() => setChosen(undefined)}
        />
      )}
    </>
  );
}

interface Props {
  found: Deployment;
  /** The deployment as it was when the dialog opened. */
  bound: Deployment;
  onClose: () => void;
}

/** Whether the dialog still stands over what it opened over (INV-W15). */
export function isBound(found: Deployment, bound: Deployment): boolean {
  return found.generation === bound.generation && found.reset?.requested_at === bound.reset?.requested_at;
}

function sendReset(bound: Deployment, clear: "auto" | "force", seconds?: number) {
  const body = {
    expected_generation: bound.generation,
    clear,
    ...(seconds !== undefined && { deadline_seconds: seconds }),
  };
  const send = () => ask(api.POST("/core/v1/sandbox/deployment/reset", { body }));
  const happened = (now: Deployment) => happenedReset(bound, clear, now);
  return write(send, { resource: deployment, happened }, nodes as Resource<unknown>);
}

function Changed() {
  return (
    <Notice look="warn" alert>
      {t("reset.changed")}
    </Notice>
  );
}

function StartDialog({ found, bound, onClose }: Props) {
  const [clear, setClear] = useState<"auto" | "force">("auto");
  const [deadline, setDeadline] = useState("3600");
  const [checked, setChecked] = useState(false);
  const sending = useSending();
  const bounds = { min: 300, max: 86_400 };
  const seconds = clear === "auto" ? wholeNumber(deadline, bounds.min, bounds.max) : undefined;
  const wrong = clear === "auto" && seconds === undefined;
  const changed = !sending.pending && !isBound(found, bound);
  function submit(event: FormEvent) {
    event.preventDefault();
    setChecked(true);
    if (!wrong && !changed) {
      void sending.send(() => sendReset(bound, clear, seconds), onClose);
    }
  }
  return (
    <Dialog title={t("reset.title")} pending={sending.pending} onClose={onClose}>
      <form onSubmit={submit} noValidate>
        <Choice
          label={t("reset.kind")}
          value={clear}
          onChange={setClear}
          options={[
            { value: "auto", label: t("reset.auto"), text: t("reset.auto.text") },
            { value: "force", label: t("reset.force"), text: t("reset.force.text") },
          ]}
        />
        {clear === "auto" && (
          <Field
            label={t("reset.deadline")}
            inputMode="numeric"
            value={deadline}
            onChange={setDeadline}
            error={
              sending.errorOf("deadline_seconds") ?? (checked && wrong ? t("bound.range", bounds) : undefined)
            }
          />
        )}
        <p>{t("reset.always")}</p>
        {changed && <Changed />}
        <Actions
          sending={sending}
          fields={["deadline_seconds"]}
          onCancel={onClose}
          submit={t("reset.title")}
          danger
          disabled={changed}
        />
      </form>
    </Dialog>
  );
}

function ForceDialog({ found, bound, onClose }: Props) {
  const sending = useSending();
  const changed = !sending.pending && !isBound(found, bound);
  function submit(event: FormEvent) {
    event.preventDefault();
    if (!changed) {
      void sending.send(() => sendReset(bound, "force"), onClose);
    }
  }
  return (
    <Dialog title={t("reset.forceNow")} pending={sending.pending} onClose={onClose}>
      <form onSubmit={submit}>
        <p>{t("reset.force.text")}</p>
        {changed && <Changed />}
        <Actions
          sending={sending}
          onCancel={onClose}
          submit={t("reset.forceNow")}
          danger
          disabled={changed}
        />
      </form>
    </Dialog>
  );
}

function CancelDialog({ found, bound, onClose }: Props) {
  const sending = useSending();
  const changed = !sending.pending && !isBound(found, bound);
  function submit(event: FormEvent) {
    event.preventDefault();
    if (changed) {
      return;
    }
    const query = { expected_generation: bound.generation };
    const send = () => ask(api.DELETE("/core/v1/sandbox/deployment/reset", { params: { query } }));
    const happened = (now: Deployment) => now.reset === null && now.generation === bound.generation;
    void sending.send(
      () => write(send, { resource: deployment, happened }, nodes as Resource<unknown>),
      onClose,
    );
  }
  return (
    <Dialog title={t("reset.cancel")} pending={sending.pending} onClose={onClose}>
      <form onSubmit={submit}>
        <p>{t("reset.cancel.text")}</p>
        {changed && <Changed />}
        <Actions sending={sending} onCancel={onClose} submit={t("reset.cancel")} disabled={changed} />
      </form>
    </Dialog>
  );
}
