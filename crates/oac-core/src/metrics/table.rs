//! Every metric of Core. The guide, the dashboard and the alert rules are checked against this table.

/// From a call inside the host to one that waits for an image.
const OPERATION_BOUNDS: &[f64] = &[
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
];
/// From a read in memory to a request that waits for a sandbox.
const HTTP_BOUNDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
];

oac_telemetry::table! {
    /// Every metric of Core.
    pub fn table;
    OWNER: Gauge "oac_core_owner" []
        "1 on the Core that owns the installation, 0 on one that stands by.";
    OWNER_EPOCH: Gauge "oac_core_owner_epoch" []
        "The number of this Core's ownership; 0 while it stands by.";
    BUILD_INFO: Gauge "oac_core_build_info" ["version"]
        "Always 1; its label is the version of this Core.";
    STORE_UP: Gauge "oac_core_store_up" []
        "1 when the database answered this scrape, else 0, and then nothing that is stored is shown. Owner only.";
    NODES: Gauge "oac_core_nodes" ["status"]
        "Nodes by the first status that fits: offline, draining, cordoned, not_ready, ready. Owner only.";
    NODE_SLOTS: Gauge "oac_core_node_slots" ["node", "kind"]
        "Slots of a node, by its id: active and retained are taken, max_active and max_retained are its limits. Owner only.";
    ROLLOUT_NODES: Gauge "oac_core_rollout_nodes" ["state"]
        "Nodes by how they stand with the saved configuration: ready, preparing, failed, update_required, unknown. Owner only.";
    ALLOCATIONS: Gauge "oac_core_allocations" ["state", "phase"]
        "Sandboxes that are not released, by state and compute phase. Owner only.";
    ALLOCATION_ISSUES: Gauge "oac_core_allocation_issues" ["diagnostic"]
        "Sandboxes that are not released and carry a diagnostic: node_unavailable, resource_missing, compute_unconfirmed, ownership_mismatch, provider_unavailable. Owner only.";
    CLEANUP_OLDEST_SECONDS: Gauge "oac_core_cleanup_oldest_seconds" []
        "For how long the oldest sandbox that is being cleaned up has been; 0 without one. Owner only.";
    TURNS: Gauge "oac_core_turns" ["state"]
        "Turns that did not end yet: queued, waiting, running. Owner only.";
    LINKS: Gauge "oac_core_links" []
        "Sandboxes linked to this Core now.";
    RELEASE_FILES: Gauge "oac_core_release_files" ["state"]
        "Files of published releases: held (hashed and right), unverified (not hashed yet), missing, wrong (not served).";
    PLACEMENTS: Counter "oac_core_placements_total" ["answer"]
        "Answers to demands for a sandbox: node, direct, preparing, unavailable, reset, closed. A demand that waits is answered again and again.";
    OPERATIONS: Counter "oac_core_operations_total" ["operation", "outcome"]
        "Operations on sandboxes by how they ended: ok, refused, unsupported, unconfirmed, uncertain (no usable answer), unavailable (not sent).";
    OPERATION_SECONDS: Histogram(OPERATION_BOUNDS) "oac_core_operation_seconds" ["operation"]
        "How long operations took that were sent.";
    HTTP_REQUESTS: Counter "oac_core_http_requests_total" ["route", "method", "status"]
        "Answered requests by route template, none for paths without a route.";
    HTTP_SECONDS: Histogram(HTTP_BOUNDS) "oac_core_http_seconds" ["route"]
        "From a request's head to the head of its answer.";
    TRACE_SPANS: Counter "oac_core_trace_spans_total" ["outcome"]
        "Spans by what became of them: sent, overflowed (dropped, the collector is slow or away), not_taken (refused, not reached in time, or too late).";
}
