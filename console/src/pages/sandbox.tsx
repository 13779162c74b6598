import { type ReactNode, useEffect, useRef, useState } from "react";
import type { Deployment } from "../api/types.ts";
import { size } from "../format/format.ts";
import { HeadingOf } from "../page/router.tsx";
import { deployment, useSnapshot } from "../page/store.ts";
import { t } from "../text/text.ts";
import { Button } from "../ui/button.tsx";
import { Copyable } from "../ui/copy.tsx";
import { Facts } from "../ui/facts.tsx";
import { Notice, StaleBanner } from "../ui/notice.tsx";
import { ResetSection } from "./reset.tsx";
import { ResourcesDialog } from "./resources-dialog.tsx";
import { SavedMeanwhile, Setup } from "./setup.tsx";
import { SuspensionForm } from "./suspension.tsx";

export function SandboxSettings() {
  const read = useSnapshot(deployment);
  const found = read.value;
  // A deployment that was there and is gone was reset while the page stood.
  const before = useRef(false);
  const [complete, setComplete] = useState(false);
  // A form that somebody fills in stays, whatever is saved meanwhile.
  const [touched, setTouched] = useState(false);
  useEffect(() => {
    const was = before.current;
    setComplete((known) => found?.provider === null && (known || was));
    before.current = found !== undefined && found.provider !== null;
  }, [found]);
  if (found === undefined) {
    return null;
  }
  const dim = read.stale ? "card stale" : "card";
  return (
    <>
      <HeadingOf title={t("sandbox.title")} />
      <StaleBanner of={[read]} again={() => void deployment.refresh()} />
      {complete && <Notice look="good">{t("reset.complete")}</Notice>}
      {found.provider !== null && touched && (
        <SavedMeanwhile found={found} onShow={() => setTouched(false)} />
      )}
      {found.provider === null || touched ? (
        <>
          {found.provider === null && !complete && <p>{t("sandbox.none")}</p>}
          <Setup found={found} onTouch={() => setTouched(true)} onSaved={() => setTouched(false)} />
        </>
      ) : (
        <>
          <section className={dim}>
            <h2>{t("sandbox.summary")}</h2>
            <Summary found={found} />
          </section>
          {found.mode === "nodes" && (
            <section className={dim}>
              <h2>{t("rollout.title")}</h2>
              <Rollout found={found} />
            </section>
          )}
          {found.suspension && (
            <section className={dim}>
              <h2>{t("suspension.title")}</h2>
              <SuspensionForm suspension={found.suspension} />
            </section>
          )}
          <section className={dim}>
            <h2>{t("reset.title")}</h2>
            <ResetSection found={found} />
          </section>
        </>
      )}
    </>
  );
}

function Summary({ found }: { found: Deployment }) {
  const [changing, setChanging] = useState(false);
  const { specification, provider } = found;
  if (!specification || provider === null) {
    return null;
  }
  const { runtime, workspace } = specification;
  const kind = provider === "e2b" ? undefined : { provider, workspace: workspace !== undefined };
  return (
    <>
      <Facts
        facts={[
          [t("overview.backend"), t(`provider.${provider}`)],
          [t("overview.size"), size(specification.resources)],
          [t("overview.generation"), found.generation],
          ...(runtime
            ? ([
                [
                  t("sandbox.runtime"),
                  <Copyable
                    key="runtime"
                    text={runtime.source_commit}
                    shown={runtime.source_commit.slice(0, 12)}
                    label={t("sandbox.runtime")}
                  />,
                ],
              ] as [string, ReactNode][])
            : []),
          ...(workspace ? ([[t("sandbox.workspace"), workspace.mount]] as [string, string][]) : []),
        ]}
      />
      {kind && (
        <div className="buttons start">
          <Button onClick={() => setChanging(true)} disabled={found.reset !== null}>
            {t("resources.title")}
          </Button>
          {found.reset !== null && <span className="hint">{t("reset.running")}</span>}
        </div>
      )}
      {kind && changing && <ResourcesDialog found={found} kind={kind} onClose={() => setChanging(false)} />}
    </>
  );
}

const BUCKETS = ["ready", "preparing", "failed", "update_required", "unknown"] as const;

function Rollout({ found }: { found: Deployment }) {
  const counts = found.rollout.nodes;
  const attention = counts !== null && counts.failed + counts.update_required > 0;
  return (
    <>
      {attention && <Notice look="warn">{t("overview.attention")}</Notice>}
      <Facts
        facts={[
          ...(counts === null
            ? []
            : BUCKETS.map((bucket): [string, number] => [t(`rollout.${bucket}`), counts[bucket]])),
          [t("overview.previous"), found.rollout.previous_generation_sandboxes],
        ]}
      />
    </>
  );
}
