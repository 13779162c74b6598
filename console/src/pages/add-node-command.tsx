// The command with its countdown, and, once a node registered with it, how far that node came.

import { useEffect, useRef, useState } from "react";
import type { Adding } from "../adding/add-node.ts";
import { countdown, secondsLeft, spoken } from "../adding/countdown.ts";
import { needsSomebody, STAGES, type Stage } from "../adding/progress.ts";
import type { Deployment, Node } from "../api/types.ts";
import { size } from "../format/format.ts";
import { Link } from "../page/router.tsx";
import { addNode } from "../page/store.ts";
import { readiness } from "../text/codes.ts";
import { t } from "../text/text.ts";
import { Button } from "../ui/button.tsx";
import { CommandBox } from "../ui/command-box.tsx";
import { Copyable } from "../ui/copy.tsx";
import { Failed } from "../ui/failed.tsx";
import { Icon } from "../ui/icon.tsx";
import { Notice } from "../ui/notice.tsx";
import { useNow } from "../ui/time.tsx";
import { statusOf, statusTip } from "./node-status.ts";

interface Props {
  state: Extract<Adding, { step: "command" | "deciding" | "following" }>;
  found: Deployment;
  /** What is known of the node may not be so any more. */
  stale: boolean;
  onClose: () => void;
}

export function Command({ state, found, stale, onClose }: Props) {
  const followed = state.step === "following" ? state : undefined;
  const failure = state.step === "command" ? state.failure : undefined;
  return (
    <div className="steps">
      <CommandBox main label={t("add.run")} command={state.issued.command} />
      <p className="hint">{t(followed ? "add.rerun" : "add.once")}</p>
      {followed ? (
        <Progress reached={followed.reached} node={followed.node} />
      ) : (
        <>
          <Countdown expiresAt={state.issued.expiresAt} deciding={state.step === "deciding"} />
          <Progress />
        </>
      )}
      {followed?.gone && (
        <Notice look="warn" alert>
          {t("node.gone")}
        </Notice>
      )}
      {followed && !followed.gone && !stale && (
        <Problem node={followed.node} reached={followed.reached} found={found} />
      )}
      {found.provider === "docker" && <Notice look="warn">{t("add.docker")}</Notice>}
      <Requirements found={found} />
      <Failed failure={failure} />
      <div className="buttons">
        {followed?.gone && <Button onClick={() => void addNode.check()}>{t("add.another")}</Button>}
        {state.step === "command" && (
          <Button disabled={state.busy} onClick={() => void addNode.changeLimits()}>
            {t("add.change")}
          </Button>
        )}
        <Button onClick={onClose}>{t("close")}</Button>
      </div>
    </div>
  );
}

function Countdown({ expiresAt, deciding }: { expiresAt: number; deciding: boolean }) {
  const now = useNow(250);
  const left = deciding ? 0 : secondsLeft(expiresAt, now);
  const minutes = spoken(left);
  return (
    <p className="countdown">
      <Icon name="wait" />
      {/* Its every second is for the eyes; what is said aloud stands beside it. */}
      <span role="timer" aria-live="off">
        {t("add.expires", { time: countdown(left) })}
      </span>
      <span role="status" className={deciding ? "" : "unseen"}>
        {deciding ? t("add.deciding") : minutes !== undefined && t("add.minutesLeft", { count: minutes })}
      </span>
    </p>
  );
}

function Progress({ reached, node }: { reached?: Stage; node?: Node }) {
  const done = reached === undefined ? -1 : STAGES.indexOf(reached);
  const said = reached && node ? t(`add.stage.${reached}.said`, { name: node.name }) : "";
  return (
    <>
      <ol className="progress">
        {STAGES.map((stage, at) => {
          const how = at <= done ? "done" : at === done + 1 ? "current" : "future";
          return (
            <li key={stage} className={how} aria-current={how === "current" ? "step" : undefined}>
              <Icon name={how === "done" ? "ok" : how === "current" ? "wait" : "off"} />
              <span>
                {t(`add.stage.${stage}`)}
                {stage === "registered" && node && (
                  <>
                    {" "}
                    <Link to={`/nodes/${node.id}`}>{node.name}</Link>
                  </>
                )}
                <span className="unseen">{t(`add.how.${how}`)}</span>
              </span>
            </li>
          );
        })}
      </ol>
      <p role="status" className="unseen">
        {said}
      </p>
    </>
  );
}

function Problem({ node, reached, found }: { node: Node; reached: Stage; found: Deployment }) {
  const now = useNow(1000);
  if (!needsSomebody(node, reached, now)) {
    return null;
  }
  const code = node.rollout.diagnostic ?? node.diagnostic;
  const tip = code ? t(readiness(code)) : statusTip(statusOf(node, found.core_url, false), node, now);
  const logs = `sudo journalctl -u oac-node-${found.installation_id}.service`;
  return (
    <Notice look="bad" alert>
      <strong>{t("problem")}</strong> {tip}
      <div className="logs">
        {t("problem.logs")} <Copyable text={logs} label={t("problem.logs")} />
      </div>
    </Notice>
  );
}

const SEEN = "oac.requirements-seen";

/** The one thing that the browser stores (console.md section 1). */
function wasSeen(): boolean {
  try {
    return window.localStorage.getItem(SEEN) !== null;
  } catch {
    return false;
  }
}

function Requirements({ found }: { found: Deployment }) {
  const open = useRef(!wasSeen());
  const [shown, setShown] = useState(open.current);
  useEffect(() => {
    try {
      window.localStorage.setItem(SEEN, "1");
    } catch {
      // A browser that stores nothing shows them each time.
    }
  }, []);
  const { provider, specification, core_url } = found;
  const items = [
    t("requirements.host"),
    t("requirements.selinux"),
    ...(provider === "docker" ? [t("requirements.docker")] : []),
    ...(provider === "microsandbox" ? [t("requirements.kvm"), t("requirements.glibc")] : []),
    ...(specification ? [t("requirements.size", { size: size(specification.resources) })] : []),
    t("requirements.disk"),
    ...(specification?.workspace
      ? [t("requirements.workspace", { mount: specification.workspace.mount })]
      : []),
    t("requirements.network", { address: core_url ?? "" }),
  ];
  return (
    <details open={shown} onToggle={(event) => setShown(event.currentTarget.open)} className="more">
      <summary>{t("requirements.title")}</summary>
      <ul className="bullets">
        {items.map((item) => (
          <li key={item}>{item}</li>
        ))}
      </ul>
    </details>
  );
}
