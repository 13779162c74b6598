import { expect, test } from "vitest";
import { chosenSize, entryOf, fields, presetSize } from "./size.tsx";

const docker = { provider: "docker", workspace: false } as const;
const micro = { provider: "microsandbox", workspace: false } as const;

// inv: INV-W19
test("the sizes are half, one and two times the proposal, and Docker has no disks", () => {
  expect(presetSize(docker, "small")).toEqual({ cpus: 1, memory_mib: 1024 });
  expect(presetSize(docker, "standard")).toEqual({ cpus: 2, memory_mib: 2048 });
  expect(presetSize(docker, "large")).toEqual({ cpus: 4, memory_mib: 4096 });
  expect(presetSize(micro, "standard")).toEqual({
    cpus: 2,
    memory_mib: 4096,
    root_disk_mib: 8192,
    environment_disk_mib: 8192,
  });
  expect(fields(docker).map(({ name }) => name)).toEqual(["cpus", "memory_mib"]);
  expect(presetSize({ ...micro, workspace: true }, "small")).toEqual({
    cpus: 1,
    memory_mib: 2048,
    root_disk_mib: 4096,
  });
});

test("one's own numbers count within their bounds, and the current size is what holds", () => {
  const now = { cpus: 3, memory_mib: 777 };
  expect(chosenSize(docker, entryOf("current", now), now)).toEqual(now);
  expect(chosenSize(docker, entryOf("custom", { cpus: 255, memory_mib: 512 }), now)).toEqual({
    cpus: 255,
    memory_mib: 512,
  });
  expect(chosenSize(docker, entryOf("custom", { cpus: 256, memory_mib: 512 }), now)).toBeUndefined();
  expect(chosenSize(micro, entryOf("custom", { cpus: 1, memory_mib: 512 }), undefined)).toBeUndefined();
});
