//! What running sandboxes were last seen to use. The worker of the allocations observes; reading observes nothing.

use std::sync::Arc;

use axum::{Json, extract::State};
use oac_model::{AllocationId, SessionId, Time};
use oac_store::{ObservationStatus, ObservedAllocation};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa_axum::routes;

use crate::{
    Core,
    http::{
        ApiError,
        auth::{CoreKeyAuth, Credential},
        router::{Body, Route},
        strict::StrictQuery,
    },
};

/// An answer without a follower counts for so long: three observations.
const CURRENT_MILLIS: i64 = 90_000;
/// Rows read at a time.
const PAGE: u64 = 1000;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::new(
        Credential::CoreKey,
        Body::None,
        routes!(runtime_observations),
    )]
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ObservationsQuery {
    /// Only this Session's.
    #[param(nullable = false, value_type = Option<String>, format = Uuid)]
    session_id: Option<SessionId>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
struct RuntimeObservations {
    data: Vec<RuntimeObservation>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
struct RuntimeObservation {
    #[schema(value_type = String, format = Uuid)]
    allocation_id: AllocationId,
    #[schema(value_type = String, format = Uuid)]
    session_id: SessionId,
    /// `observed`: the sample is at most 90 s old. Else why there is no such sample: `pending` (not observed yet),
    /// `node_unavailable` (its node is not connected), `observation_unavailable` (it cannot be read now),
    /// `runtime_not_running`, `unsupported` (its backend reads none) or `ownership`.
    #[schema(value_type = String)]
    status: &'static str,
    /// The last sample there was, whatever the status says.
    #[schema(required, value_type = Option<RuntimeSample>)]
    sample: Option<Value>,
}

/// What a sandbox used at one moment, as its node measured it.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "schema alone")]
struct RuntimeSample {
    #[schema(format = DateTime)]
    observed_at: String,
    #[schema(required, format = DateTime)]
    started_at: Option<String>,
    #[schema(required)]
    cpu_usage_seconds_total: Option<f64>,
    #[schema(required)]
    cpu_capacity_cores: Option<f64>,
    #[schema(nullable = false)]
    cpu_utilization_ratio: Option<f64>,
    #[schema(required)]
    memory_usage_bytes: Option<i64>,
    #[schema(required)]
    memory_limit_bytes: Option<i64>,
    #[schema(nullable = false)]
    disk_usage_bytes: Option<i64>,
    #[schema(nullable = false)]
    disk_limit_bytes: Option<i64>,
}

/// What every running sandbox was last seen to use, about every 30 s.
#[utoipa::path(
    get,
    path = "/core/v1/sandbox/runtime-observations",
    params(ObservationsQuery),
    responses((status = 200, body = RuntimeObservations))
)]
async fn runtime_observations(
    State(core): State<Arc<Core>>,
    _: CoreKeyAuth,
    StrictQuery(query): StrictQuery<ObservationsQuery>,
) -> Result<Json<RuntimeObservations>, ApiError> {
    let read = core.store.read().await?;
    let now = read.database_time().await?;
    let mut data = Vec::new();
    let mut after = None;
    loop {
        let rows = read.observed_allocations(query.session_id, after, PAGE).await?;
        let Some(last) = rows.last() else { break };
        after = Some(last.id);
        data.extend(rows.into_iter().map(|row| shown(&core, row, now)));
    }
    Ok(Json(RuntimeObservations { data }))
}

fn shown(core: &Core, row: ObservedAllocation, now: Time) -> RuntimeObservation {
    let connected = row.node_id.is_none_or(|node| core.hub.connected(node).is_some());
    RuntimeObservation {
        allocation_id: row.id,
        session_id: row.session_id,
        status: status(row.observation, row.sampled_at, connected, now),
        sample: row.sample,
    }
}

fn status(last: Option<ObservationStatus>, at: Option<Time>, connected: bool, now: Time) -> &'static str {
    let current = at.is_some_and(|at| now.millis() - at.millis() <= CURRENT_MILLIS);
    match last {
        _ if !connected => "node_unavailable",
        None => "pending",
        Some(ObservationStatus::Observed) if !current => ObservationStatus::Unavailable.as_str(),
        Some(status) => status.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_counts_for_90_seconds_and_only_while_its_node_is_connected() {
        let now = Time::from_millis(1_700_000_000_000).unwrap();
        let observed = Some(ObservationStatus::Observed);
        let ago = |millis: i64| Some(now.plus_millis(-millis));
        assert_eq!(status(None, None, true, now), "pending");
        assert_eq!(status(observed, ago(90_000), true, now), "observed");
        assert_eq!(
            status(observed, ago(90_001), true, now),
            "observation_unavailable"
        );
        assert_eq!(status(observed, ago(0), false, now), "node_unavailable");
        let stopped = Some(ObservationStatus::RuntimeNotRunning);
        assert_eq!(status(stopped, ago(0), true, now), "runtime_not_running");
    }
}
