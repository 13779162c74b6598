// Changing what a sandbox is made of. What was typed stands against one generation; when that changes meanwhile nothing is
// sent, and what holds now is shown beside what was typed (INV-W15).

import { type FormEvent, useState } from "react";
import { api, ask } from "../api/client.ts";
import type { Deployment } from "../api/types.ts";
import type { Resource } from "../data/resource.ts";
import { write } from "../data/write.ts";
import { wholeNumber } from "../format/entry.ts";
import { deployment, nodes } from "../page/store.ts";
import { t } from "../text/text.ts";
import { Dialog } from "../ui/dialog.tsx";
import { Field } from "../ui/field.tsx";
import { Notice } from "../ui/notice.tsx";
import { Actions, useSending } from "../ui/send.tsx";

const MEMBERS = [
  { name: "cpus", label: "resources.cpus", min: 1, max: 255, disk: false },
  { name: "memory_mib", label: "resources.memory", min: 512, max: 1_048_576, disk: false },
  { name: "root_disk_mib", label: "resources.root", min: 1024, max: 4_294_967_295, disk: true },
  { name: "environment_disk_mib", label: "resources.environment", min: 1024, max: 4_294_967_295, disk: true },
] as const;
type Member = (typeof MEMBERS)[number]["name"];

export function ResourcesDialog({ found, onClose }: { found: Deployment; onClose: () => void }) {
  const [base, setBase] = useState(found);
  const [changed, setChanged] = useState(false);
  const [checked, setChecked] = useState(false);
  const current = base.specification?.resources;
  const [typed, setTyped] = useState<Record<Member, string>>(() => ({
    cpus: String(current?.cpus ?? ""),
    memory_mib: String(current?.memory_mib ?? ""),
    root_disk_mib: String(current?.root_disk_mib ?? ""),
    environment_disk_mib: String(current?.environment_disk_mib ?? ""),
  }));
  const sending = useSending();
  const workspace = base.specification?.workspace;
  const members = MEMBERS.filter(
    ({ name, disk }) =>
      !disk || (base.provider === "microsandbox" && !(name === "environment_disk_mib" && workspace)),
  );

  /** What holds now takes the place of what the dialog opened with. */
  function review(now: Deployment | undefined) {
    if (now !== undefined && now.generation !== base.generation) {
      setBase(now);
      setChanged(true);
    }
  }
  async function submit(event: FormEvent) {
    event.preventDefault();
    setChecked(true);
    const values = members.map(({ name, min, max }) => [name, wholeNumber(typed[name], min, max)] as const);
    if (found.generation !== base.generation) {
      review(found);
      return;
    }
    if (values.some(([, value]) => value === undefined) || base.provider === null) {
      return;
    }
    const { runtime } = base.specification ?? {};
    const body = {
      expected_generation: base.generation,
      provider: base.provider,
      resources: Object.fromEntries(values) as { cpus: number; memory_mib: number },
      ...(runtime && { runtime }),
      ...(workspace && { workspace }),
    };
    const send = () => ask(api.PUT("/core/v1/sandbox/deployment", { body }));
    const happened = (now: Deployment) =>
      now.generation > base.generation &&
      values.every(([name, value]) => now.specification?.resources[name] === value);
    await sending.send(
      () => write(send, { resource: deployment, happened }, nodes as Resource<unknown>),
      onClose,
    );
    await deployment.refresh();
    review(deployment.get().value);
  }
  const stale = sending.failure?.kind === "refused" && sending.failure.code === "sandbox_generation_stale";
  return (
    <Dialog title={t("resources.title")} pending={sending.pending} onClose={onClose}>
      <form onSubmit={submit} noValidate>
        <p>{t("resources.text")}</p>
        {members.map(({ name, label, min, max }) => {
          const value = wholeNumber(typed[name], min, max);
          const now = base.specification?.resources[name];
          const wrong = checked && value === undefined ? t("bound.range", { min, max }) : undefined;
          return (
            <Field
              key={name}
              label={t(label)}
              inputMode="numeric"
              value={typed[name]}
              onChange={(text) => setTyped({ ...typed, [name]: text })}
              error={sending.errorOf(`resources.${name}`) ?? wrong}
              hint={now !== undefined && now !== value ? t("resources.now", { value: now }) : undefined}
            />
          );
        })}
        {changed && (
          <Notice look="warn" alert>
            {t("resources.stale")}
          </Notice>
        )}
        <Actions
          sending={stale ? { ...sending, failure: undefined } : sending}
          fields={members.map(({ name }) => `resources.${name}`)}
          own={{
            sandbox_reset_required: t("reset.text"),
            sandbox_reset_in_progress: t("reset.running"),
          }}
          onCancel={onClose}
          submit={t("save")}
        />
      </form>
    </Dialog>
  );
}
