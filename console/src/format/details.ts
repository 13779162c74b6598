// What the audit log says of a change beside who, what and when. Its words are Core's.

/** What tells entries apart of an id, a digest or a commit; the title has the whole. */
export function short(text: string): string {
  return text.replace(/\b([0-9a-f]{8})(-[0-9a-f]{4}-[0-9a-f-]{22}|[0-9a-f]{32,})\b/g, "$1…");
}

type Members = Record<string, unknown>;
const isMembers = (value: unknown): value is Members =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function said(value: unknown): string {
  if (isMembers(value)) {
    return Object.entries(value)
      .map(([name, member]) => `${name}=${said(member)}`)
      .join(", ");
  }
  return typeof value === "string" ? short(value) : JSON.stringify(value);
}

/** In one line; of what was changed from one thing to another, what differs. */
export function details({ from, to, ...all }: Members): string {
  const changed =
    isMembers(from) && isMembers(to)
      ? Object.keys(to)
          .filter((name) => said(from[name]) !== said(to[name]))
          .map((name) => `${name}: ${said(from[name] ?? null)} → ${said(to[name])}`)
      : Object.entries({ ...(from !== undefined && { from }), ...(to !== undefined && { to }) }).map(
          ([name, value]) => `${name}: ${said(value)}`,
        );
  return [...changed, ...Object.entries(all).map(([name, value]) => `${name}: ${said(value)}`)].join("; ");
}
