//! Beginning, forcing and canceling a reset, and what operators see of one (core.md section 14). The worker in
//! [`crate::resets`] does the rest.

use std::{collections::HashMap, sync::Arc};

use axum::{Json, extract::State};
use oac_lifecycle::{
    discard,
    reset::{DEFAULT_SECONDS, Event, Group, LONGEST_SECONDS, Remaining, SHORTEST_SECONDS, Told},
};
use oac_model::{AllocationId, NodeId, SessionId, Time};
use oac_store::{
    AllocationDiagnostic, DeploymentRow, NewReset, NodeRow, Read, ResetClear, ResourceGroup, StoreError,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{SafeDeployment, Write, rollout::NodeReadiness};
use crate::{
    Core,
    http::{
        ApiError,
        auth::{Audited, CoreKeyAuth},
        strict::{NoQuery, StrictJson, StrictQuery},
    },
    link::Links,
    resets::state_of,
    routes::allocations::discardable,
};

/// Discardable sandboxes that are listed.
const DISCARDABLE_SHOWN: usize = 1000;

/// A reset. Repeating one changes nothing, its deadline included; `auto` may become `force`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResetRequest {
    /// The deployment's generation as the caller knows it.
    expected_generation: u64,
    /// `auto` archives Sessions without work at once and the others by the deadline; `force` archives all now.
    #[schema(value_type = ResetClearSchema)]
    clear: ResetClear,
    /// Of `auto` alone; 3600 without it.
    #[schema(nullable = false, minimum = 300, maximum = 86_400)]
    deadline_seconds: Option<i64>,
}

/// How a reset treats work that still runs.
#[derive(utoipa::ToSchema)]
#[schema(as = ResetClear, rename_all = "snake_case")]
#[expect(dead_code, reason = "schema alone")]
pub(super) enum ResetClearSchema {
    Auto,
    Force,
}

/// What a cancel is meant for.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CancelQuery {
    /// The deployment's generation as the caller knows it.
    expected_generation: u64,
}

/// The seconds that a well-formed request asks for.
fn deadline(request: &ResetRequest) -> Result<Option<u32>, ApiError> {
    let bad = |message: String| ApiError::invalid_member("deadline_seconds", message);
    match (request.clear, request.deadline_seconds) {
        (ResetClear::Force, None) => Ok(None),
        (ResetClear::Force, Some(_)) => Err(bad("deadline_seconds belongs to auto: remove it.".to_owned())),
        (ResetClear::Auto, seconds) => {
            let seconds = seconds.unwrap_or(DEFAULT_SECONDS);
            let seconds = Some(seconds).filter(|s| (SHORTEST_SECONDS..=LONGEST_SECONDS).contains(s));
            let seconds = seconds.and_then(|seconds| u32::try_from(seconds).ok());
            seconds.map(Some).ok_or_else(|| {
                bad(format!(
                    "deadline_seconds must be {SHORTEST_SECONDS} to {LONGEST_SECONDS}: correct it."
                ))
            })
        }
    }
}

/// Begins to give the deployment back, so that another backend can be chosen: Sessions are archived, their sandboxes
/// removed, and once nothing is left every node and unused token is retired and the selection cleared. 409
/// `sandbox_reset_in_progress` for `auto` during a forced reset.
#[utoipa::path(
    post,
    path = "/core/v1/sandbox/deployment/reset",
    request_body = ResetRequest,
    responses((status = 200, body = SafeDeployment))
)]
pub(super) async fn reset_deployment(
    State(core): State<Arc<Core>>,
    auth: CoreKeyAuth,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    StrictJson(request): StrictJson<ResetRequest>,
) -> Result<Json<SafeDeployment>, ApiError> {
    let deadline_seconds = deadline(&request)?;
    let write = Write::begin(&core).await?;
    write.refuse_stale(request.expected_generation)?;
    let Write { tx, row } = &write;
    if row.provider.is_none() {
        return Err(ApiError::not_configured());
    }
    let event = match deadline_seconds {
        None => Event::AskedForce,
        Some(seconds) => Event::AskedAuto {
            deadline: tx.now().millis() + i64::from(seconds) * 1000,
        },
    };
    let (_, told) = state_of(row)
        .apply(event)
        .map_err(|_| ApiError::reset_in_progress())?;
    match told {
        None => {}
        Some(Told::Start) => {
            let reset = NewReset {
                clear: request.clear,
                deadline_seconds,
                actor: auth.actor(),
                source: auth.source(),
            };
            tx.start_reset(&reset).await?;
        }
        Some(_) => tx.force_reset().await?,
    }
    if let Some(told) = told {
        let details = json!({ "clear": request.clear, "deadline_seconds": deadline_seconds });
        let entry = Audited::new("sandbox_deployment", row.installation_id, told.as_str());
        auth.audit(tx, entry.details(details)).await?;
    }
    let answer = write.commit(&core).await?;
    core.pokes.resets.notify_one();
    Ok(answer)
}

/// Cancels a reset: nothing more is archived, and what was archived stays archived. Without a reset nothing happens.
#[utoipa::path(
    delete,
    path = "/core/v1/sandbox/deployment/reset",
    params(CancelQuery),
    responses((status = 200, body = SafeDeployment))
)]
pub(super) async fn cancel_reset(
    State(core): State<Arc<Core>>,
    auth: CoreKeyAuth,
    StrictQuery(query): StrictQuery<CancelQuery>,
) -> Result<Json<SafeDeployment>, ApiError> {
    let write = Write::begin(&core).await?;
    write.refuse_stale(query.expected_generation)?;
    let Write { tx, row } = &write;
    if let Ok((_, Some(told))) = state_of(row).apply(Event::Canceled) {
        tx.cancel_reset().await?;
        let entry = Audited::new("sandbox_deployment", row.installation_id, told.as_str());
        auth.audit(tx, entry).await?;
    }
    write.commit(&core).await
}

/// A reset that stands.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Reset {
    #[schema(value_type = ResetClearSchema)]
    clear: ResetClear,
    #[schema(value_type = String, format = DateTime)]
    requested_at: Time,
    /// When an automatic one is forced; null for one that began forced.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    deadline_at: Option<Time>,
    /// Since when nothing is waited for, at an operator's word or at the deadline; null before.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    forced_at: Option<Time>,
    remaining: ResetRemaining,
}

/// What is left: every sandbox, and every place that has none yet, is busy, idle or cleanup.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct ResetRemaining {
    /// Their Sessions have a running or waiting Turn, or a file is being written to them.
    busy: u64,
    /// About to be archived.
    idle: u64,
    /// Being removed by their nodes.
    cleanup: u64,
    /// Sandboxes that an operator may discard now, as the list of allocations shows them, by id; at most 1000.
    discardable: Vec<ResetDiscardable>,
    /// Of all of them, how many are on nodes that are offline.
    on_offline_nodes: u64,
    /// These nodes, by id: each has to come back, or nothing proves that its sandboxes are gone.
    offline_nodes: Vec<ResetOfflineNode>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
struct ResetDiscardable {
    #[schema(value_type = String, format = Uuid)]
    allocation_id: AllocationId,
    #[schema(value_type = String, format = Uuid)]
    session_id: SessionId,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
struct ResetOfflineNode {
    #[schema(value_type = String, format = Uuid)]
    node_id: NodeId,
    name: String,
    resources: u64,
}

impl Reset {
    /// The reset of `row`, if one stands. `nodes` are those that are not retired, each with what is known of it.
    pub(super) async fn read(
        read: &Read,
        links: &Links,
        row: &DeploymentRow,
        groups: &[ResourceGroup],
        nodes: &[(NodeRow, NodeReadiness)],
    ) -> Result<Option<Self>, StoreError> {
        let (Some(requested_at), Some(clear)) = (row.reset_requested_at, row.reset_clear) else {
            return Ok(None);
        };
        let known: HashMap<NodeId, (&str, bool)> = nodes
            .iter()
            .map(|(node, readiness)| (node.id, (node.name.as_str(), readiness.online)))
            .collect();
        let is_online = |id: NodeId| known.get(&id).is_some_and(|(_, online)| *online);
        let groups: Vec<Group> = groups.iter().map(group).collect();
        let remaining = Remaining::of(&groups, |id| !is_online(id));
        let diagnostics: Vec<AllocationDiagnostic> = discard::diagnostics()
            .filter_map(|diagnostic| AllocationDiagnostic::from_text(diagnostic.as_str()))
            .collect();
        let mut rows = read.allocations_with_diagnostics(&diagnostics).await?;
        rows.extend(read.cleanups_elsewhere().await?);
        rows.sort_by_key(|row| row.id);
        rows.dedup_by_key(|row| row.id);
        let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
        let elsewhere = read.computes_elsewhere(&ids).await?;
        let may = discardable(read, links, &rows, &elsewhere, is_online).await?;
        let discardable = rows
            .iter()
            .zip(may)
            .filter(|(_, may)| may.all)
            .map(|(allocation, _)| ResetDiscardable {
                allocation_id: allocation.id,
                session_id: allocation.session_id,
            })
            .take(DISCARDABLE_SHOWN)
            .collect();
        let offline_nodes = remaining.offline.iter().map(|(id, resources)| ResetOfflineNode {
            node_id: *id,
            name: known
                .get(id)
                .map_or_else(String::new, |(name, _)| (*name).to_owned()),
            resources: *resources,
        });
        Ok(Some(Self {
            clear,
            requested_at,
            deadline_at: row.reset_deadline_at,
            forced_at: row.reset_forced_at,
            remaining: ResetRemaining {
                busy: remaining.busy,
                idle: remaining.idle,
                cleanup: remaining.cleanup,
                discardable,
                on_offline_nodes: remaining.on_offline_nodes(),
                offline_nodes: offline_nodes.collect(),
            },
        }))
    }
}

fn group(group: &ResourceGroup) -> Group {
    Group {
        node: group.node_id,
        state: group.state,
        given_up: group.given_up,
        works: group.works,
        resources: group.resources,
    }
}
