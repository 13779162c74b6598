// What is read again and again is mostly what was read before. Whoever compares by identity, as a row that is drawn only
// when it changed, then sees just what did.

type Members = Record<string, unknown>;

const isObject = (value: unknown): value is Members =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** What tells a member of a list from the others wherever it stands; its place when it has no `id`. */
const nameOf = (member: unknown, at: number): unknown => (isObject(member) ? (member.id ?? at) : at);

/**
 * `fresh` with every part of `known` in its place that is equal to it; `known` itself when all of it is. Both are as JSON
 * gives them.
 */
export function share<T>(known: unknown, fresh: T): T {
  if (Array.isArray(fresh) && Array.isArray(known)) {
    const before = new Map(known.map((member, at) => [nameOf(member, at), member]));
    const shared = fresh.map((member, at) => share(before.get(nameOf(member, at)), member));
    const same = shared.length === known.length && shared.every((member, at) => member === known[at]);
    return (same ? known : shared) as T;
  }
  if (isObject(fresh) && isObject(known)) {
    const shared = Object.entries(fresh).map(([name, value]) => [name, share(known[name], value)] as const);
    const same =
      shared.length === Object.keys(known).length &&
      shared.every(([name, value]) => Object.hasOwn(known, name) && value === known[name]);
    return (same ? known : Object.fromEntries(shared)) as T;
  }
  return fresh;
}
