// Short names for what Core's description generates.
import type { components } from "./schema.ts";

type Schemas = components["schemas"];

export type Deployment = Schemas["Deployment"];
export type Node = Schemas["Node"];
export type NodeDetail = Schemas["NodeDetail"];
export type Nodes = Schemas["Nodes"];
export type Allocation = Schemas["Allocation"];
export type AuditEntry = Schemas["AuditEntry"];
export type ReadinessCode = Schemas["ReadinessCode"];
export type ReadinessState = Schemas["ReadinessState"];
export type Provider = Schemas["Provider"];
export type RuntimeRelease = Schemas["RuntimeRelease"];
export type Resources = Schemas["Resources"];
export type CleanUpCommands = Schemas["CleanupCommands"];
/** A drain as it is asked for. */
export type Drain = Schemas["NodeDrain"];
export type Specification = Schemas["Specification"];
export type Reset = Schemas["Reset"];
export type Point = Schemas["Point"];
export type ErrorEnvelope = Schemas["ErrorEnvelope"];

/** How far a node's history reaches. */
export type Range = "1h" | "6h" | "24h";
