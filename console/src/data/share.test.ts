import { expect, test } from "vitest";
import { share } from "./share.ts";

const one = { id: "1", name: "one", labels: { zone: "west" }, drain: null as object | null };
const other = { id: "2", name: "other", labels: {}, drain: null as object | null };
const copy = <T>(value: T): T => JSON.parse(JSON.stringify(value));

test("what is equal is the object that was known, and what is not is new and as it was read", () => {
  const known = { data: [one, other], old: ["a", "b"] };
  expect(share(known, copy(known))).toBe(known);
  const fresh = copy({ ...known, data: [{ ...one, labels: { zone: "east" } }, other] });
  const shared = share(known, fresh);
  expect(shared).toEqual(fresh);
  expect(shared.data[0]).not.toBe(one);
  expect(shared.data[1]).toBe(other);
  expect(shared.old).toBe(known.old);
});

test("a member of a list is known by its id, wherever it stands and whatever came or went", () => {
  const third = { ...other, id: "3" };
  const shared = share([one, other], copy([third, other, one]));
  expect(shared).toEqual([third, other, one]);
  expect(shared[1]).toBe(other);
  expect(shared[2]).toBe(one);
  expect(share([one, other], copy([other]))).toEqual([other]);
  expect(share([one], copy([one, other]))).toEqual([one, other]);
  expect(share([1, 2], [2, 1])).toEqual([2, 1]);
});

test("a member that is gone, is new or has another kind is a change", () => {
  const pairs: [unknown, unknown][] = [
    [{ a: 1 }, { a: 1, b: undefined }],
    [{ a: 1, b: 2 }, { a: 1 }],
    [{ a: 1 }, { b: 1 }],
    [{ a: null }, { a: {} }],
    [{ a: [] }, { a: {} }],
    [[{ id: "1" }], { id: "1" }],
    [undefined, { a: 1 }],
    [null, null],
    ["text", 1],
  ];
  for (const [known, fresh] of pairs) {
    expect(share(known, fresh)).toStrictEqual(fresh);
  }
  // A name that a prototype has is one like any other.
  const odd = JSON.parse('{"__proto__":{"a":1},"constructor":1}');
  expect(JSON.stringify(share({}, odd))).toBe(JSON.stringify(odd));
});
