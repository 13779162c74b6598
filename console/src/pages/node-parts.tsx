// A node's status and configuration, as lists and its page show them: text and picture, the reason in a tip.

import type { Node } from "../api/types.ts";
import { t } from "../text/text.ts";
import { Icon } from "../ui/icon.tsx";
import { useLive } from "../ui/time.tsx";
import { Tip } from "../ui/tip.tsx";
import { badges, configuration, ICON, type Status, statusOf, statusTip } from "./node-status.ts";

interface Props {
  node: Node;
  publicUrl: string | null;
  stale: boolean;
}

export function StatusMark({ status }: { status: Status }) {
  return (
    <span className={`status ${status}`}>
      <Icon name={ICON[status]} />
      {t(`status.${status}`)}
    </span>
  );
}

export function NodeStatus({ node, publicUrl, stale }: Props) {
  const status = statusOf(node, publicUrl, stale);
  const tip = useLive((now) => statusTip(status, node, now));
  return (
    <span className="marks">
      <span className="with-tip">
        <StatusMark status={status} />
        {tip !== undefined && <Tip text={tip} />}
      </span>
      {badges(node).map((badge) => (
        <span key={badge} className="badge">
          {badge}
        </span>
      ))}
    </span>
  );
}

export function NodeConfiguration({ node }: { node: Node }) {
  const { text, tip } = configuration(node);
  return (
    <span className="with-tip">
      {text}
      {tip !== undefined && <Tip text={tip} />}
    </span>
  );
}
