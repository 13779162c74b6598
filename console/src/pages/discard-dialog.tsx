import type { FormEvent } from "react";
import { api, ask } from "../api/client.ts";
import type { Resource } from "../data/resource.ts";
import { type Effect, write } from "../data/write.ts";
import { deployment, nodes } from "../page/store.ts";
import { listed, t } from "../text/text.ts";
import { Dialog } from "../ui/dialog.tsx";
import { Actions, useSending } from "../ui/send.tsx";

interface Props<R> {
  allocationId: string;
  sessionId: string;
  /** Only what is left on these nodes is given up, by name; the sandbox itself goes on. */
  former?: string[] | undefined;
  /** What shows whether the sandbox was given up. */
  effect: Effect<R>;
  onClose: () => void;
}

/** Gives a sandbox up that nothing else can settle, after saying what is lost. */
export function DiscardDialog<R>({ allocationId, sessionId, former, effect, onClose }: Props<R>) {
  const sending = useSending();
  function submit(event: FormEvent) {
    event.preventDefault();
    const send = () =>
      ask(
        api.POST("/core/v1/sandbox/allocations/{allocation_id}/discard", {
          params: { path: { allocation_id: allocationId } },
          body: former ? { former_computes: true } : { accept_loss: true },
        }),
      );
    const others = [nodes, deployment].filter((one) => one !== (effect.resource as unknown));
    void sending.send(() => write(send, effect, ...(others as Resource<unknown>[])), onClose);
  }
  return (
    <Dialog title={t(former ? "discard.former" : "discard")} pending={sending.pending} onClose={onClose}>
      <form onSubmit={submit}>
        <p>
          {t("sandboxes.session")} <code>{sessionId}</code>
        </p>
        <p>{former ? t("discard.former.text", { nodes: listed(former) }) : t("discard.text")}</p>
        <Actions
          sending={sending}
          onCancel={onClose}
          submit={t(former ? "discard.former.confirm" : "discard.confirm")}
          danger
        />
      </form>
    </Dialog>
  );
}
