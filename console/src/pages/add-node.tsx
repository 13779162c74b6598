// The dialog that adds a node: what stands in the way, the limits, the command, and how far its node came.

import { type FormEvent, useEffect, useState } from "react";
import type { Adding, Limits } from "../adding/add-node.ts";
import type { Blocker } from "../adding/blocker.ts";
import type { Deployment } from "../api/types.ts";
import { CAPACITY_MAX, wholeNumber } from "../format/entry.ts";
import { Link } from "../page/router.tsx";
import { addNode, deployment, useAddNode, useSnapshot } from "../page/store.ts";
import { t } from "../text/text.ts";
import { Button } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Failed } from "../ui/failed.tsx";
import { Choice, Field } from "../ui/field.tsx";
import { Notice, StaleBanner } from "../ui/notice.tsx";
import { Command } from "./add-node-command.tsx";

/** Opens the dialog, from whichever page. */
export function AddNodeButton({ main }: { main?: boolean }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button look={main ? "primary" : "plain"} onClick={() => setOpen(true)}>
        {t("add.title")}
      </Button>
      {open && <AddNodeDialog onClose={() => setOpen(false)} />}
    </>
  );
}

function AddNodeDialog({ onClose }: { onClose: () => void }) {
  const { state, list } = useAddNode();
  const found = useSnapshot(deployment).value;
  useEffect(() => {
    addNode.open();
    return () => addNode.close();
  }, []);
  return (
    <Dialog title={t("add.title")} pending={state.step === "issuing"} onClose={onClose} wide>
      {list && <StaleBanner of={[list]} again={() => addNode.again()} />}
      {found && <Step state={state} found={found} stale={list?.stale ?? false} onClose={onClose} />}
    </Dialog>
  );
}

interface StepProps {
  state: Adding;
  found: Deployment;
  /** The list that is followed is. */
  stale: boolean;
  onClose: () => void;
}

function Step({ state, found, stale, onClose }: StepProps) {
  switch (state.step) {
    case "checking":
      return <Check by={state.was} checking onClose={onClose} />;
    case "blocked":
      return <Check by={state.by} onClose={onClose} />;
    case "form":
    case "issuing":
      return <LimitsForm state={state} found={found} onClose={onClose} />;
    case "command":
    case "deciding":
    case "following":
      return <Command state={state} found={found} stale={stale} onClose={onClose} />;
    case "expired":
      return (
        <div className="steps">
          <Notice look="warn" alert>
            {t("add.expired")}
          </Notice>
          <Failed failure={state.failure} />
          <div className="buttons">
            <Button disabled={state.busy} onClick={() => void addNode.changeLimits()}>
              {t("add.change")}
            </Button>
            <Button look="primary" autoFocus disabled={state.busy} onClick={() => void addNode.renew()}>
              {t("add.renew")}
            </Button>
          </div>
        </div>
      );
    case "done":
      return (
        <div className="steps">
          <Notice look="good">{t("add.done", { name: state.node.name })}</Notice>
          <div className="buttons">
            <Button onClick={() => void addNode.check()}>{t("add.another")}</Button>
            <Button look="primary" autoFocus onClick={onClose}>
              {t("close")}
            </Button>
          </div>
        </div>
      );
  }
}

/** A blocker with the way to where it is removed. */
export function Blocked({ by }: { by: Blocker }) {
  if (typeof by === "object") {
    return t("blocked.files", { backend: t(`provider.${by.files}`) });
  }
  const to = { configuration: "/settings/sandbox", address: "/settings/service" }[by as string];
  const page = by === "configuration" ? "nav.sandbox" : "nav.service";
  return (
    <>
      {t(`blocked.${by}`)} {to && <Link to={to}>{t(page)}</Link>}
    </>
  );
}

function Check({
  by,
  checking,
  onClose,
}: {
  by: Blocker | undefined;
  checking?: boolean;
  onClose: () => void;
}) {
  return (
    <div className="steps">
      {by === undefined ? (
        <p role="status" className="late">
          {t("add.checking")}
        </p>
      ) : (
        <Notice look="warn" alert>
          <Blocked by={by} />
        </Notice>
      )}
      <div className="buttons">
        <Button onClick={onClose}>{t("close")}</Button>
        {by !== undefined && (
          <Button look="primary" aria-disabled={checking} onClick={() => void addNode.check()}>
            {t("stale.again")}
          </Button>
        )}
      </div>
    </div>
  );
}

interface FormProps {
  state: Extract<Adding, { step: "form" | "issuing" }>;
  found: Deployment;
  onClose: () => void;
}

function LimitsForm({ state, found, onClose }: FormProps) {
  const { typed } = useAddNode();
  const [checked, setChecked] = useState(false);
  const suspends = found.provider === "microsandbox";
  const active = wholeNumber(typed.active, 1, CAPACITY_MAX);
  const retained = suspends ? wholeNumber(typed.retained, 1, CAPACITY_MAX) : active;
  const few = active !== undefined && retained !== undefined && retained < active;
  const retainedError = retained === undefined ? t("bound.number") : few ? t("bound.retained") : undefined;
  const pending = state.step === "issuing";
  const failure = state.step === "form" ? state.failure : undefined;

  function limits(): Limits | undefined {
    if (!typed.custom) {
      return { recommended: true };
    }
    const fits = active !== undefined && retained !== undefined && !few;
    return fits ? { max_active: active, max_retained: retained } : undefined;
  }
  function submit(event: FormEvent) {
    event.preventDefault();
    setChecked(true);
    const wanted = limits();
    if (wanted !== undefined && !pending) {
      void addNode.generate(wanted);
    }
  }
  const refused = failure?.kind === "refused" ? failure : undefined;
  const errorOf = (param: string) => (refused?.param === param ? refused.message : undefined);
  const beside = typed.custom && (errorOf("max_active") ?? errorOf("max_retained")) !== undefined;
  return (
    <form onSubmit={submit} noValidate>
      <Choice
        label={t("add.limits")}
        value={typed.custom ? "custom" : "recommended"}
        onChange={(value) => addNode.type({ custom: value === "custom" })}
        options={[
          { value: "recommended", label: t("add.recommended"), text: t("add.recommended.text") },
          { value: "custom", label: t("add.custom") },
        ]}
      />
      {typed.custom && (
        <div className="fields">
          <Field
            label={t("edit.active")}
            inputMode="numeric"
            value={typed.active}
            onChange={(text) => addNode.type({ active: text })}
            error={errorOf("max_active") ?? (checked && active === undefined ? t("bound.number") : undefined)}
          />
          {suspends && (
            <Field
              label={t("edit.retained")}
              inputMode="numeric"
              value={typed.retained}
              onChange={(text) => addNode.type({ retained: text })}
              error={errorOf("max_retained") ?? (checked ? retainedError : undefined)}
            />
          )}
        </div>
      )}
      {failure?.kind === "lost" ? (
        <Notice look="bad" alert>
          {t("add.lost")}
        </Notice>
      ) : (
        <Failed
          failure={beside ? undefined : failure}
          own={{ sandbox_reset_in_progress: t("blocked.reset") }}
        />
      )}
      <div className="buttons">
        <Button onClick={onClose} disabled={pending}>
          {t("cancel")}
        </Button>
        <Button type="submit" look="primary" disabled={pending} aria-busy={pending}>
          {t("add.generate")}
        </Button>
      </div>
    </form>
  );
}
