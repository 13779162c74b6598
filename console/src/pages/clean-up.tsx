// What gives a host back: a command to run there, whose node was removed or never was.

import { cleanUpBlocker } from "../adding/blocker.ts";
import { cleanUpCommands, deployment, nodes, release, useFresh, useSnapshot } from "../page/store.ts";
import { type Key, t } from "../text/text.ts";
import { Button } from "../ui/button.tsx";
import { CommandBox } from "../ui/command-box.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Notice, StaleBanner } from "../ui/notice.tsx";
import { Blocked } from "./add-node.tsx";

interface Props {
  title: Extract<Key, "cleanUp.title" | "cleanUp.any">;
  /** The node that was removed just now. */
  removed?: string;
  onClose: () => void;
}

export function CleanUpDialog({ title, removed, onClose }: Props) {
  const found = useSnapshot(deployment);
  const list = useSnapshot(nodes);
  const served = useFresh(release);
  const commands = useFresh(cleanUpCommands);
  const known = served?.value !== undefined && served.failure === undefined;
  const by = known ? cleanUpBlocker({ deployment: found.value, release: served.value }) : undefined;
  const old = list.value?.old_addresses ?? [];
  function again() {
    void release.refresh();
    void cleanUpCommands.refresh();
  }
  return (
    <Dialog title={t(title)} onClose={onClose} wide>
      <div className="steps">
        {removed !== undefined && <Notice look="good">{t("remove.done", { name: removed })}</Notice>}
        {by !== undefined ? (
          <Notice look="warn" alert>
            <Blocked by={by} />
          </Notice>
        ) : (
          <>
            {served && commands && <StaleBanner of={[served, commands]} again={again} />}
            {!commands && (
              <p role="status" className="late">
                {t("loading")}
              </p>
            )}
            {commands?.value && (
              <>
                <CommandBox main label={t("cleanUp.text")} command={commands.value.command} />
                {title === "cleanUp.any" && <p className="hint">{t("cleanUp.first")}</p>}
                {old.length > 0 && (
                  <details className="more">
                    <summary>{t("cleanUp.old")}</summary>
                    {old.map((address) => (
                      <CommandBox
                        key={address}
                        label={t("cleanUp.force", { address })}
                        command={commands.value?.forced_command ?? ""}
                      />
                    ))}
                  </details>
                )}
              </>
            )}
          </>
        )}
        <div className="buttons">
          <Button onClick={onClose}>{t("close")}</Button>
        </div>
      </div>
    </Dialog>
  );
}
