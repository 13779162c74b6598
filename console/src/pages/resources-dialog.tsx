// Changing what a sandbox is made of and which Runtime runs in it. What was chosen stands against one generation; when
// that changes meanwhile nothing is sent, and what holds now is shown beside what was typed (INV-W15).

import { type FormEvent, useState } from "react";
import { api, ask } from "../api/client.ts";
import type { Deployment } from "../api/types.ts";
import type { Resource } from "../data/resource.ts";
import { write } from "../data/write.ts";
import { deployment, nodes, runtimeOffer, useFresh } from "../page/store.ts";
import { t } from "../text/text.ts";
import { Dialog } from "../ui/dialog.tsx";
import { Check } from "../ui/field.tsx";
import { Notice } from "../ui/notice.tsx";
import { Actions, useSending } from "../ui/send.tsx";
import { chosenSize, entryOf, type Kind, SizeChoice, sizeParams } from "./size.tsx";

interface Props {
  found: Deployment;
  kind: Kind;
  onClose: () => void;
}

export function ResourcesDialog({ found, kind, onClose }: Props) {
  const [base, setBase] = useState(found);
  const [changed, setChanged] = useState(false);
  const [checked, setChecked] = useState(false);
  const [entry, setEntry] = useState(() => entryOf("current", found.specification?.resources ?? {}));
  const [follow, setFollow] = useState(false);
  const sending = useSending();
  const offered = useFresh(runtimeOffer)?.value?.[kind.provider];
  const { specification } = base;
  const current = specification?.resources;
  const newer =
    offered && specification?.runtime && offered.source_commit !== specification.runtime.source_commit
      ? offered
      : undefined;

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
    if (found.generation !== base.generation) {
      review(found);
      return;
    }
    const resources = chosenSize(kind, entry, current);
    if (resources === undefined) {
      return;
    }
    const runtime = follow && newer ? newer : specification?.runtime;
    const workspace = specification?.workspace;
    const body = {
      expected_generation: base.generation,
      provider: kind.provider,
      resources,
      ...(runtime && { runtime }),
      ...(workspace && { workspace }),
    };
    const send = () => ask(api.PUT("/core/v1/sandbox/deployment", { body }));
    const happened = (now: Deployment) =>
      now.generation > base.generation &&
      now.specification?.runtime?.source_commit === runtime?.source_commit &&
      Object.entries(resources).every(
        ([name, value]) => now.specification?.resources[name as keyof typeof resources] === value,
      );
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
        <SizeChoice
          kind={kind}
          current={current}
          entry={entry}
          onChange={setEntry}
          checked={checked}
          errorOf={sending.errorOf}
        />
        {newer && (
          <Check
            label={t("resources.useRuntime", { commit: newer.source_commit.slice(0, 12) })}
            title={newer.source_commit}
            value={follow}
            onChange={setFollow}
          />
        )}
        {changed && (
          <Notice look="warn" alert>
            {t("resources.stale")}
          </Notice>
        )}
        <Actions
          sending={stale ? { ...sending, failure: undefined } : sending}
          fields={entry.preset === "custom" ? sizeParams(kind) : []}
          own={{
            sandbox_reset_required: t("reset.first"),
            sandbox_reset_in_progress: t("reset.running"),
          }}
          onCancel={onClose}
          submit={t("save")}
        />
      </form>
    </Dialog>
  );
}
