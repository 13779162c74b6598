// The first sandbox configuration, a step at a time or the whole form at once (console.md section 7).

import { type FormEvent, type ReactNode, useEffect, useRef, useState } from "react";
import { verdict } from "../adding/blocker.ts";
import { api, ask } from "../api/client.ts";
import type { Deployment } from "../api/types.ts";
import type { Resource } from "../data/resource.ts";
import { write } from "../data/write.ts";
import { size } from "../format/format.ts";
import { deployment, nodes, runtimeOffer, useFresh } from "../page/store.ts";
import { t } from "../text/text.ts";
import { Button } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Facts } from "../ui/facts.tsx";
import { Failed } from "../ui/failed.tsx";
import { Choice, Field } from "../ui/field.tsx";
import { Notice } from "../ui/notice.tsx";
import { useSending } from "../ui/send.tsx";
import { selected } from "./happened.ts";
import { chosenSize, entryOf, type Kind, SizeChoice, type SizeEntry, sizeParams } from "./size.tsx";

const STEPS = ["where", "backend", "size", "review"] as const;
type Step = (typeof STEPS)[number];

interface Props {
  found: Deployment;
  /** Somebody began to fill it in. */
  onTouch: () => void;
  onSaved: () => void;
}

export function Setup({ found, onTouch, onSaved }: Props) {
  const [step, setStep] = useState<Step>("where");
  const [whole, setWhole] = useState(false);
  const [provider, setProvider] = useState<Kind["provider"]>("microsandbox");
  const [agreed, setAgreed] = useState(false);
  const [asking, setAsking] = useState(false);
  const [entry, setEntry] = useState<SizeEntry>(() => entryOf("standard", {}));
  const [store, setStore] = useState("");
  const [mount, setMount] = useState("");
  const [checked, setChecked] = useState(false);
  const sending = useSending();
  const offer = useFresh(runtimeOffer);
  const heading = useRef<HTMLHeadingElement>(null);
  const moved = useRef(false);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the heading of another step takes the focus
  useEffect(() => {
    if (moved.current) {
      heading.current?.focus();
    }
  }, [step, whole]);

  const workspace = provider === "microsandbox" && (store.trim() !== "" || mount.trim() !== "");
  const kind: Kind = { provider, workspace };
  const resources = chosenSize(kind, entry, undefined);
  const runtime = offer?.value?.[provider];
  const halfWorkspace = workspace && (store.trim() === "" || mount.trim() === "");

  function move(to: Step) {
    moved.current = true;
    onTouch();
    setStep(to);
  }
  function choose(backend: Kind["provider"]) {
    onTouch();
    if (backend === "docker" && !agreed) {
      setAsking(true);
    } else {
      setProvider(backend);
    }
  }
  function submit(event: FormEvent) {
    event.preventDefault();
    setChecked(true);
    if (resources === undefined || halfWorkspace) {
      return;
    }
    if (!whole && step !== "review") {
      setChecked(false);
      move(STEPS[STEPS.indexOf(step) + 1] ?? "review");
      return;
    }
    if (!runtime) {
      return;
    }
    const body = {
      expected_generation: found.generation,
      provider,
      resources,
      runtime,
      ...(workspace && { workspace: { store_id: store.trim(), mount: mount.trim(), kind: "nfs" } }),
    };
    const send = () => ask(api.POST("/core/v1/sandbox/deployment", { body }));
    const happened = (now: Deployment) => selected(body, now);
    void sending.send(
      () => write(send, { resource: deployment, happened }, nodes as Resource<unknown>),
      onSaved,
    );
  }

  const parts: Record<Step, ReactNode> = {
    where: (
      <Choice
        label={t("setup.where")}
        value="machines"
        onChange={onTouch}
        options={[
          { value: "machines", label: t("setup.machines"), text: t("setup.machines.text") },
          { value: "cloud", label: t("setup.cloud"), text: t("setup.cloud.text"), disabled: true },
        ]}
      />
    ),
    backend: (
      <Choice
        label={t("setup.backend")}
        value={provider}
        onChange={choose}
        options={[
          { value: "microsandbox", label: t("provider.microsandbox"), text: t("setup.microsandbox.text") },
          { value: "docker", label: t("provider.docker"), text: t("setup.docker.text") },
        ]}
      />
    ),
    size: (
      <SizeChoice
        kind={kind}
        entry={entry}
        onChange={(next) => {
          onTouch();
          setEntry(next);
        }}
        checked={checked}
        errorOf={sending.errorOf}
      />
    ),
    review: (
      <Facts
        facts={[
          ...(whole
            ? []
            : ([
                [t("setup.where"), t("setup.machines")],
                [t("setup.backend"), t(`provider.${provider}`)],
                [t("size.title"), resources ? size(resources) : t("none")],
              ] as [string, ReactNode][])),
          [
            t("sandbox.runtime"),
            runtime ? (
              <code key="runtime" title={runtime.source_commit}>
                {runtime.source_commit.slice(0, 12)}
              </code>
            ) : (
              t("none")
            ),
          ],
          ...(workspace ? ([[t("sandbox.workspace"), mount]] as [string, ReactNode][]) : []),
          [t("service.address"), found.core_url ?? t("service.unset")],
        ]}
      />
    ),
  };
  const { failure } = sending;
  const beside = failure?.kind === "refused" && sizeParams(kind).includes(failure.param ?? "");
  // Somebody else saved one meanwhile, which is said above.
  const taken = found.provider !== null;
  const atEnd = whole || step === "review";
  const shown: readonly Step[] = whole ? STEPS : [step];
  const unusable = verdict(found.core_url) !== "service.usable";
  return (
    <section className="card setup">
      <form onSubmit={submit} noValidate>
        <div className="title">
          <h2 ref={heading} tabIndex={-1}>
            {whole
              ? t("setup.title")
              : t("setup.step", {
                  at: STEPS.indexOf(step) + 1,
                  of: STEPS.length,
                  name: t(`setup.step.${step}`),
                })}
          </h2>
          <div className="buttons">
            <Button
              look="quiet"
              aria-pressed={whole}
              onClick={() => {
                moved.current = true;
                onTouch();
                setWhole(!whole);
              }}
            >
              {t("setup.advanced")}
            </Button>
          </div>
        </div>
        {shown.map((one) => (
          <div key={one} className="steps">
            {parts[one]}
            {whole && one === "size" && provider === "microsandbox" && (
              <fieldset className="set">
                <legend>{t("sandbox.workspace")}</legend>
                <p className="hint">{t("setup.workspace.text")}</p>
                <div className="fields">
                  <Field
                    label={t("setup.store")}
                    value={store}
                    onChange={setStore}
                    error={
                      sending.errorOf("workspace.store_id") ??
                      (checked && workspace && store.trim() === "" ? t("setup.both") : undefined)
                    }
                  />
                  <Field
                    label={t("setup.mount")}
                    value={mount}
                    onChange={setMount}
                    error={
                      sending.errorOf("workspace.mount") ??
                      (checked && workspace && mount.trim() === "" ? t("setup.both") : undefined)
                    }
                  />
                </div>
              </fieldset>
            )}
          </div>
        ))}
        {atEnd && unusable && <Notice look="info">{t("setup.address")}</Notice>}
        {atEnd && offer && !runtime && (
          <Notice
            look="warn"
            alert
            action={
              <Button className="small" onClick={() => void runtimeOffer.refresh()}>
                {t("stale.again")}
              </Button>
            }
          >
            {offer.failure
              ? t("blocked.unread")
              : t("setup.noRuntime", { backend: t(`provider.${provider}`) })}
          </Notice>
        )}
        <Failed
          failure={taken || beside ? undefined : failure}
          own={{
            sandbox_generation_stale: t("resources.stale"),
            sandbox_reset_required: t("reset.first"),
            sandbox_reset_in_progress: t("reset.running"),
          }}
        />
        <div className="buttons">
          {!whole && step !== "where" && (
            <Button
              disabled={sending.pending}
              onClick={() => move(STEPS[STEPS.indexOf(step) - 1] ?? "where")}
            >
              {t("setup.back")}
            </Button>
          )}
          <Button
            type="submit"
            look="primary"
            disabled={sending.pending || (atEnd && (!runtime || taken))}
            aria-busy={sending.pending}
          >
            {t(atEnd ? "setup.save" : "setup.next")}
          </Button>
        </div>
      </form>
      {asking && (
        <AskDocker
          onClose={(yes) => {
            setAsking(false);
            if (yes) {
              setAgreed(true);
              setProvider("docker");
            }
          }}
        />
      )}
    </section>
  );
}

function AskDocker({ onClose }: { onClose: (yes: boolean) => void }) {
  return (
    <Dialog title={t("setup.docker.title")} onClose={() => onClose(false)}>
      <p>{t("setup.docker.ask")}</p>
      <div className="buttons">
        <Button onClick={() => onClose(false)}>{t("cancel")}</Button>
        <Button look="primary" onClick={() => onClose(true)}>
          {t("setup.docker.use")}
        </Button>
      </div>
    </Dialog>
  );
}

/** What somebody else saved while the form was filled in. */
export function SavedMeanwhile({ found, onShow }: { found: Deployment; onShow: () => void }) {
  const { provider, specification } = found;
  return (
    <Notice
      look="warn"
      alert
      action={
        <Button className="small" onClick={onShow}>
          {t("setup.show")}
        </Button>
      }
    >
      {t("setup.meanwhile", {
        backend: provider ? t(`provider.${provider}`) : t("none"),
        size: specification ? size(specification.resources) : t("none"),
      })}
    </Notice>
  );
}
