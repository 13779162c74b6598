import { expect, test } from "vitest";
import { details } from "./details.ts";

test("of a change the details name what differs, and shorten what only tells things apart", () => {
  const from = { name: "one", max_active: 4, labels: { zone: "west" } };
  expect(details({ from, to: { ...from, max_active: 6 } })).toBe("max_active: 4 → 6");
  expect(details({ from, to: from })).toBe("");
  expect(details({ from: {}, to: { name: "one" } })).toBe("name: null → one");
  expect(details({ labels: { zone: "west", disk: "fast" }, count: 2 })).toBe(
    "labels: zone=west, disk=fast; count: 2",
  );
  expect(details({ from: "a", to: "b" })).toBe("from: a; to: b");
  const id = "404e379d-92d2-449c-8aca-09c3342a32c9";
  expect(details({ enrollment_id: id, digest: "ab".repeat(32) })).toBe(
    "enrollment_id: 404e379d…; digest: abababab…",
  );
});
