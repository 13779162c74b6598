//! The unreleased allocations, as an operator sees them (core.md section 10).

use std::sync::Arc;

use axum::{Json, extract::State};
use oac_lifecycle::{
    allocation::Diagnostic,
    discard::{self, Sandbox},
    limits::ONLINE_WINDOW,
};
use oac_model::{
    AllocationId, AllocationState, ComputePhase, EnvironmentId, Generation, NodeId, ProjectId, SessionId,
    Time,
};
use oac_store::{AllocationDiagnostic, AllocationRow, Initialization, Read, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa_axum::routes;

use crate::{
    Core,
    allocations::{self, Cause},
    http::{
        ApiError,
        auth::{Audited, CoreKeyAuth, Credential},
        limits,
        operator::Operator,
        page::{Page, PageQuery},
        router::{Body, Route},
        strict::{StrictJson, StrictQuery},
        target::Target,
    },
};

pub(crate) fn routes() -> Vec<Route> {
    let json = Body::Json {
        limit: limits::JSON_BODY_BYTES,
    };
    vec![
        Route::new(Credential::CoreKey, Body::None, routes!(list_allocations)),
        Route::new(Credential::CoreKey, Body::None, routes!(list_node_allocations)),
        Route::new(Credential::CoreKey, json, routes!(discard_allocation)).refuses(&[409]),
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
    /// An operator may give it up: it ended or is missing on a node that is online, or its wake or restore keeps failing.
    discardable: bool,
    /// The nodes whose former computes may be discarded.
    #[schema(value_type = Vec<String>)]
    former_computes: Vec<NodeId>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Time,
}

impl Allocation {
    fn of(row: AllocationRow, discardable: bool) -> Self {
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
            discardable,
            // Former computes cannot be discarded yet: each waits for its node to confirm its end.
            former_computes: Vec::new(),
            created_at: row.created_at,
        }
    }
}

/// Whether an operator may give the allocation up, whose node is online or not.
pub(super) fn may_discard(row: &AllocationRow, node_online: bool) -> bool {
    discard::is_discardable(Sandbox {
        state: row.state,
        given_up: row.cause.is_some(),
        diagnostic: row
            .diagnostic
            .and_then(|diagnostic| Diagnostic::from_text(diagnostic.as_str())),
        node_online,
    })
}

/// Whether an operator may give the allocation up now. Its node is looked up only when that decides it.
async fn is_discardable(read: &Read, row: &AllocationRow) -> Result<bool, StoreError> {
    let Some(node_id) = row.node_id.filter(|_| may_discard(row, true)) else {
        return Ok(false);
    };
    let (owner, node) = (read.owner().await?, read.node(node_id).await?);
    let node_online = owner
        .epoch
        .zip(node)
        .is_some_and(|(epoch, node)| node.online(epoch, owner.now, ONLINE_WINDOW));
    Ok(may_discard(row, node_online))
}

async fn page(read: &Read, rows: Vec<AllocationRow>, limit: u64) -> Result<Json<Page<Allocation>>, ApiError> {
    let mut shown = Vec::with_capacity(rows.len());
    for row in rows {
        let discardable = is_discardable(read, &row).await?;
        shown.push(Allocation::of(row, discardable));
    }
    Ok(Json(Page::of(shown, limit, |a| a.id.to_string(), |a| a)))
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
    let read = core.store.read().await?;
    let rows = read.unreleased_allocations(after, limit + 1).await?;
    page(&read, rows, limit).await
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
    let rows = read.allocations_of_node(id, after, limit + 1).await?;
    page(&read, rows, limit).await
}

/// What the operator accepts.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Discard {
    /// Always true: the sandbox, its files and its running Turn are lost.
    accept_loss: bool,
}

/// Gives up a sandbox that ended or is missing on a node that is online, or whose wake or restore keeps failing, as its
/// `discardable` says: its Turn ends `interrupted`, what is left of it is removed, and the Session's next input gets a new
/// sandbox. 409 otherwise.
#[utoipa::path(
    post,
    path = "/core/v1/sandbox/allocations/{allocation_id}/discard",
    params(("allocation_id" = String, Path, format = Uuid)),
    request_body = Discard,
    responses((status = 200, body = Allocation))
)]
async fn discard_allocation(
    Operator { core, auth, target }: Operator,
    StrictJson(Discard { accept_loss }): StrictJson<Discard>,
) -> Result<Json<Allocation>, ApiError> {
    if !accept_loss {
        return Err(ApiError::invalid_member(
            "accept_loss",
            "accept_loss is true or nothing is discarded: send true.",
        ));
    }
    let id: AllocationId = target.id("allocation_id")?;
    let tx = core.begin().await?;
    let row = tx.allocation(id).await?.filter(|row| row.released_at.is_none());
    let session = row.ok_or_else(ApiError::not_found)?.session_id;
    tx.lock_session(session).await?;
    // Who changes an allocation holds its Session.
    let row = tx.allocation(id).await?.ok_or_else(ApiError::not_found)?;
    if !is_discardable(&tx, &row).await? {
        return Err(ApiError::not_discardable());
    }
    let given_up = allocations::begin_cleanup(&tx, id, Cause::Discard).await?;
    let details = json!({ "session_id": session, "node_id": row.node_id });
    auth.audit(&tx, Audited::new("allocation", id, "discard").details(details))
        .await?;
    tx.commit().await?;
    given_up.tell(&core);
    Ok(Json(Allocation::of(given_up.row, false)))
}
