import { type FormEvent, useState } from "react";
import { api, ask } from "../api/client.ts";
import type { Deployment } from "../api/types.ts";
import { write } from "../data/write.ts";
import { wholeNumber } from "../format/entry.ts";
import { deployment } from "../page/store.ts";
import { t } from "../text/text.ts";
import { Button } from "../ui/button.tsx";
import { Failed } from "../ui/failed.tsx";
import { Field } from "../ui/field.tsx";
import { useSending } from "../ui/send.tsx";
import { shown, useTyped } from "../ui/typed.ts";

const IDLE = { min: 60, max: 86_400 };
const RETENTION = { min: 3600, max: 2_592_000 };

/** How long a sandbox is idle before it is suspended, and how long it is kept then. */
export function SuspensionForm({ suspension }: { suspension: NonNullable<Deployment["suspension"]> }) {
  const idle = useTyped(String(suspension.idle_seconds));
  const retention = useTyped(String(suspension.retention_seconds));
  const [checked, setChecked] = useState(false);
  const [saved, setSaved] = useState(false);
  const sending = useSending();
  const idleSeconds = wholeNumber(idle.value, IDLE.min, IDLE.max);
  const retentionSeconds = wholeNumber(retention.value, RETENTION.min, RETENTION.max);

  function submit(event: FormEvent) {
    event.preventDefault();
    setChecked(true);
    setSaved(false);
    if (idleSeconds === undefined || retentionSeconds === undefined) {
      return;
    }
    const body = { idle_seconds: idleSeconds, retention_seconds: retentionSeconds };
    const send = () => ask(api.PATCH("/core/v1/sandbox/deployment/suspension", { body }));
    const happened = (now: Deployment) =>
      now.suspension?.idle_seconds === idleSeconds && now.suspension.retention_seconds === retentionSeconds;
    void sending.send(
      () => write(send, { resource: deployment, happened }),
      () => {
        setSaved(true);
        // By what is read then: what another operator saves later is shown.
        void deployment.refresh().then(() => {
          idle.forget();
          retention.forget();
        });
      },
    );
  }
  const { failure } = sending;
  const beside =
    failure?.kind === "refused" && ["idle_seconds", "retention_seconds"].includes(failure.param ?? "");
  return (
    <form onSubmit={submit} noValidate className="stack">
      <Field
        label={t("suspension.idle")}
        inputMode="numeric"
        {...shown(idle)}
        error={
          sending.errorOf("idle_seconds") ??
          (checked && idleSeconds === undefined ? t("bound.range", IDLE) : undefined)
        }
      />
      <Field
        label={t("suspension.retention")}
        inputMode="numeric"
        {...shown(retention)}
        error={
          sending.errorOf("retention_seconds") ??
          (checked && retentionSeconds === undefined ? t("bound.range", RETENTION) : undefined)
        }
      />
      <Failed failure={beside ? undefined : failure} />
      <div className="buttons start">
        <Button type="submit" disabled={sending.pending}>
          {t("save")}
        </Button>
        <span role="status">{saved && t("suspension.saved")}</span>
      </div>
    </form>
  );
}
