//! The unreleased allocations, as an operator sees them (core.md section 10).

use std::sync::Arc;

use axum::{Json, extract::State};
use oac_model::{
    AllocationId, AllocationState, ComputePhase, EnvironmentId, Generation, NodeId, ProjectId, SessionId,
    Time,
};
use oac_store::{AllocationDiagnostic, AllocationRow, Initialization};
use serde::Serialize;
use utoipa_axum::routes;

use crate::{
    Core,
    http::{
        ApiError,
        auth::{CoreKeyAuth, Credential},
        page::{Page, PageQuery},
        router::{Body, Route},
        strict::StrictQuery,
        target::Target,
    },
};

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::new(Credential::CoreKey, Body::None, routes!(list_allocations)),
        Route::new(Credential::CoreKey, Body::None, routes!(list_node_allocations)),
    ]
}

/// One Core-owned lease of compute for an Environment.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Allocation {
    #[schema(value_type = String, format = Uuid)]
    id: AllocationId,
    /// Null for E2B.
    #[schema(required, value_type = Option<String>, format = Uuid)]
    node_id: Option<NodeId>,
    #[schema(value_type = String, format = Uuid)]
    tenant_id: ProjectId,
    #[schema(value_type = String, format = Uuid)]
    session_id: SessionId,
    #[schema(value_type = String, format = Uuid)]
    environment_id: EnvironmentId,
    #[schema(value_type = i64)]
    deployment_generation: Generation,
    /// `reserved`, `creating`, `running` or `cleanup_pending`.
    #[schema(value_type = String)]
    state: AllocationState,
    #[schema(value_type = String)]
    compute_phase: ComputePhase,
    #[schema(value_type = String, format = DateTime)]
    compute_phase_changed_at: Time,
    /// `pending` until the runtime first linked, then `complete`.
    #[schema(value_type = String)]
    initialization: Initialization,
    /// Empty, `node_unavailable`, `resource_missing`, `compute_unconfirmed`, `ownership_mismatch` or
    /// `provider_unavailable`.
    diagnostic: &'static str,
    /// May an operator give it up? This build has no discard, so none may.
    discardable: bool,
    /// The nodes whose former computes may be discarded.
    #[schema(value_type = Vec<String>)]
    former_computes: Vec<NodeId>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Time,
}

impl From<AllocationRow> for Allocation {
    fn from(row: AllocationRow) -> Self {
        Self {
            id: row.id,
            node_id: row.node_id,
            tenant_id: row.tenant_id,
            session_id: row.session_id,
            environment_id: row.environment_id,
            deployment_generation: row.deployment_generation,
            state: row.state,
            compute_phase: row.compute_phase,
            compute_phase_changed_at: row.compute_phase_changed_at,
            initialization: row.initialization,
            diagnostic: row.diagnostic.map_or("", AllocationDiagnostic::as_str),
            discardable: false,
            former_computes: Vec::new(),
            created_at: row.created_at,
        }
    }
}

fn page(rows: Vec<AllocationRow>, limit: u64) -> Json<Page<Allocation>> {
    Json(Page::of(rows, limit, |row| row.id.to_string(), Allocation::from))
}

/// Every unreleased allocation.
#[utoipa::path(
    get,
    path = "/core/v1/sandbox/allocations",
    params(PageQuery),
    responses((status = 200, body = Page<Allocation>))
)]
async fn list_allocations(
    State(core): State<Arc<Core>>,
    _: CoreKeyAuth,
    StrictQuery(query): StrictQuery<PageQuery>,
) -> Result<Json<Page<Allocation>>, ApiError> {
    let (limit, after) = (query.limit()?, query.after()?);
    Ok(page(
        core.store
            .single()
            .unreleased_allocations(after, limit + 1)
            .await?,
        limit,
    ))
}

/// A node's unreleased allocations.
#[utoipa::path(
    get,
    path = "/core/v1/sandbox/nodes/{node_id}/allocations",
    params(("node_id" = String, Path, format = Uuid), PageQuery),
    responses((status = 200, body = Page<Allocation>))
)]
async fn list_node_allocations(
    State(core): State<Arc<Core>>,
    _: CoreKeyAuth,
    StrictQuery(query): StrictQuery<PageQuery>,
    target: Target,
) -> Result<Json<Page<Allocation>>, ApiError> {
    let (limit, after) = (query.limit()?, query.after()?);
    let id: NodeId = target.id("node_id")?;
    let read = core.store.read().await?;
    if read.node(id).await?.is_none_or(|node| node.retired_at.is_some()) {
        return Err(ApiError::not_found());
    }
    Ok(page(read.allocations_of_node(id, after, limit + 1).await?, limit))
}
