// Whether a write whose answer was lost happened, by what a read begun after it shows (INV-W13). Each says yes or no only
// where what is shown leaves nothing else to believe; what another operator may as well have done is not known.

import type { Deployment, Drain, Node, RuntimeRelease, Specification } from "../api/types.ts";

/** A drain as it was asked for of the node `before`. On a node with nothing to wait for it is over at once. */
export function drained(before: Node, asked: Drain, now: Node | undefined): boolean | undefined {
  if (now === undefined) {
    return undefined;
  }
  if (now.drain !== null) {
    // While one stands another is refused. What only some backends do is null on the others.
    const { idle, then, retained } = now.drain;
    return (
      (then ?? asked.then) === asked.then &&
      (idle ?? asked.idle) === asked.idle &&
      (retained ?? asked.retained) === asked.retained
    );
  }
  // It leaves the node cordoned; a cordon is not the drain's alone.
  return now.cordoned && !(before.cordoned && now.active > 0) ? undefined : false;
}

/** A reset that was asked for over `bound`. */
export function reset(bound: Deployment, clear: "auto" | "force", now: Deployment): boolean | undefined {
  if (now.reset === null) {
    // What ends a reset selects nothing; whatever else changes the generation keeps a selection.
    return now.provider === null && bound.provider !== null;
  }
  if (clear === "force") {
    return now.reset.forced_at !== null;
  }
  // Forced meanwhile, by whoever: over it an automatic one is refused.
  return now.reset.forced_at === null ? true : undefined;
}

export interface Selection {
  provider: Specification["provider"];
  resources: Specification["resources"];
  runtime: RuntimeRelease;
  workspace?: { store_id: string; mount: string };
}

/** A first selection: only all of it is one's own. */
export function selected(asked: Selection, now: Deployment): boolean {
  const { specification } = now;
  const disk = (name: "root_disk_mib" | "environment_disk_mib") =>
    (specification?.resources[name] ?? 0) === (asked.resources[name] ?? 0);
  return (
    now.provider === asked.provider &&
    specification?.resources.cpus === asked.resources.cpus &&
    specification.resources.memory_mib === asked.resources.memory_mib &&
    disk("root_disk_mib") &&
    disk("environment_disk_mib") &&
    specification.runtime?.source_commit === asked.runtime.source_commit &&
    specification.workspace?.store_id.toLowerCase() === asked.workspace?.store_id.toLowerCase() &&
    specification.workspace?.mount === asked.workspace?.mount
  );
}
