//! The unreleased allocations, as an operator sees them (core.md section 10).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

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
use oac_store::{
    AllocationDiagnostic, AllocationPage, AllocationRow, Initialization, NodeRow, Read, StoreError,
};
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
    link::Links,
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
    /// An operator may give it up: it ended or is missing on a node that is online, its wake or restore keeps failing, or its
    /// removal waits for former computes alone.
    discardable: bool,
    /// The nodes whose former computes may be discarded: they are offline, and did not confirm that what they once ran of the
    /// sandbox is gone.
    #[schema(value_type = Vec<String>)]
    former_computes: Vec<NodeId>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Time,
}

impl Allocation {
    fn of(row: AllocationRow, may: Discardable) -> Self {
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
            discardable: may.all,
            former_computes: may.former,
            created_at: row.created_at,
        }
    }
}

/// What an operator may discard of an allocation now.
#[derive(Debug, Default)]
pub(super) struct Discardable {
    /// With `accept_loss`.
    pub(super) all: bool,
    /// With `former_computes`: of these nodes.
    former: Vec<NodeId>,
}

/// Whether an operator may give the allocation up, whose node is online or not.
fn may_discard(row: &AllocationRow, links: &Links, node_online: bool) -> bool {
    discard::is_discardable(Sandbox {
        state: row.state,
        given_up: row.cause.is_some(),
        diagnostic: row
            .diagnostic
            .and_then(|diagnostic| Diagnostic::from_text(diagnostic.as_str())),
        node_online,
        linked: links.is_linked(row.id),
    })
}

/// What may be discarded of each of these; `elsewhere` as [`Read::computes_elsewhere`] gives it.
pub(super) async fn discardable(
    read: &Read,
    links: &Links,
    rows: &[AllocationRow],
    elsewhere: &[(AllocationId, NodeId)],
    is_online: impl Fn(NodeId) -> bool,
) -> Result<Vec<Discardable>, StoreError> {
    let mut all = Vec::with_capacity(rows.len());
    for row in rows {
        let former: BTreeSet<NodeId> = elsewhere
            .iter()
            .filter(|(id, node)| *id == row.id && !is_online(*node))
            .map(|(_, node)| *node)
            .collect();
        let cleaning = row.state == AllocationState::CleanupPending && !former.is_empty();
        all.push(Discardable {
            all: row
                .node_id
                .is_some_and(|node| may_discard(row, links, is_online(node)))
                || cleaning && allocations::former(read, row).await?.awaited_alone,
            former: former.into_iter().collect(),
        });
    }
    Ok(all)
}

/// Of these nodes, those that are offline now.
async fn offline(
    read: &Read,
    nodes: impl IntoIterator<Item = NodeId>,
) -> Result<BTreeSet<NodeId>, StoreError> {
    let owner = read.owner().await?;
    let mut offline = BTreeSet::new();
    for id in nodes {
        let node = read.node(id).await?;
        let online = |epoch, node: NodeRow| node.online(epoch, owner.now, ONLINE_WINDOW);
        if !owner
            .epoch
            .zip(node)
            .is_some_and(|(epoch, node)| online(epoch, node))
        {
            offline.insert(id);
        }
    }
    Ok(offline)
}

/// The rows as they are shown.
async fn shown(read: &Read, links: &Links, rows: Vec<AllocationRow>) -> Result<Vec<Allocation>, StoreError> {
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let elsewhere = read.computes_elsewhere(&ids).await?;
    // A node is looked up only when that decides something.
    let home = rows
        .iter()
        .filter(|row| may_discard(row, links, true))
        .filter_map(|row| row.node_id);
    let nodes: BTreeSet<NodeId> = home.chain(elsewhere.iter().map(|(_, node)| *node)).collect();
    let offline = offline(read, nodes).await?;
    let may = discardable(read, links, &rows, &elsewhere, |node| !offline.contains(&node)).await?;
    Ok(rows
        .into_iter()
        .zip(may)
        .map(|(row, may)| Allocation::of(row, may))
        .collect())
}

/// The first `limit` of what was read with one more than that. A row that cannot be read takes its place in the page and
/// is left out of it, and hides no other; the allocation workers say of it why.
async fn page(
    read: &Read,
    links: &Links,
    found: AllocationPage,
    limit: u64,
) -> Result<Json<Page<Allocation>>, ApiError> {
    let odd: BTreeSet<AllocationId> = found.unreadable.iter().map(|(id, _)| *id).collect();
    let mut ids: Vec<_> = found
        .rows
        .iter()
        .map(|row| row.id)
        .chain(odd.iter().copied())
        .collect();
    ids.sort_unstable();
    let mut shown: BTreeMap<_, _> = shown(read, links, found.rows)
        .await?
        .into_iter()
        .map(|shown| (shown.id, shown))
        .collect();
    let page = Page::of(ids, limit, AllocationId::to_string, |id| shown.remove(&id));
    Ok(Json(Page {
        data: page.data.into_iter().flatten().collect(),
        next: page.next,
    }))
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
    page(&read, &core.links, rows, limit).await
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
    page(&read, &core.links, rows, limit).await
}

/// What the operator accepts: one of the two, and true.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Discard {
    /// The sandbox, its files and its running Turn are lost. Of one that is being removed already, the same as
    /// `former_computes`.
    #[schema(nullable = false)]
    accept_loss: Option<bool>,
    /// The nodes shown as `former_computes` never return. What they once ran of the sandbox counts as ended; the sandbox goes
    /// on.
    #[schema(nullable = false)]
    former_computes: Option<bool>,
}

/// What is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    All,
    FormerComputes,
}

impl Discard {
    fn loss(&self) -> Result<Loss, ApiError> {
        let (member, loss) = match (self.accept_loss, self.former_computes) {
            (Some(true), None) => return Ok(Loss::All),
            (None, Some(true)) => return Ok(Loss::FormerComputes),
            (Some(_), Some(_)) => ("former_computes", "one of accept_loss and former_computes"),
            (_, None) => ("accept_loss", "accept_loss or former_computes"),
            (None, Some(_)) => ("former_computes", "former_computes"),
        };
        let message = format!("Nothing is discarded unless you say so: send {loss} as true.");
        Err(ApiError::invalid_member(member, message))
    }
}

/// Gives up what Core cannot prove gone. With `accept_loss` a sandbox that ended or is missing on a node that is online, or
/// whose wake or restore keeps failing, as its `discardable` says: its Turn ends `interrupted`, what is left of it is removed,
/// and the Session's next input gets a new sandbox. With `former_computes` what it once ran at the nodes of that name, which
/// will never return: the sandbox goes on, and neither its removal nor the removal of those nodes waits for them any more.
/// Repeating that changes nothing. 409 `sandbox_not_discardable` otherwise.
#[utoipa::path(
    post,
    path = "/core/v1/sandbox/allocations/{allocation_id}/discard",
    params(("allocation_id" = String, Path, format = Uuid)),
    request_body = Discard,
    responses((status = 200, body = Allocation))
)]
async fn discard_allocation(
    Operator { core, auth, target }: Operator,
    StrictJson(discard): StrictJson<Discard>,
) -> Result<Json<Allocation>, ApiError> {
    let loss = discard.loss()?;
    let id: AllocationId = target.id("allocation_id")?;
    let tx = core.begin().await?;
    let unreleased = |row: &AllocationRow| row.released_at.is_none();
    let known = tx.allocation(id).await?.filter(unreleased);
    let session = known.ok_or_else(ApiError::not_found)?.session_id;
    // Offline under its lock, no node comes back between this and the commit.
    let elsewhere: BTreeSet<NodeId> = tx
        .computes_elsewhere(&[id])
        .await?
        .into_iter()
        .map(|(_, node)| node)
        .collect();
    for node in &elsewhere {
        tx.lock_node(*node).await?;
    }
    tx.lock_session(session).await?;
    let row = tx.lock_allocation(id).await?.filter(unreleased);
    let row = row.ok_or_else(ApiError::not_found)?;
    let offline = offline(&tx, elsewhere).await?;
    let entry = Audited::new("allocation", id, "discard");
    if loss == Loss::All && row.state != AllocationState::CleanupPending {
        let before = shown(&tx, &core.links, vec![row.clone()]).await?;
        if !before.iter().any(|shown| shown.discardable) {
            return Err(ApiError::not_discardable());
        }
        let given_up = allocations::begin_cleanup(&tx, id, Cause::Discard).await?;
        let details = json!({ "session_id": session, "node_id": row.node_id });
        auth.audit(&tx, entry.details(details)).await?;
        let answer = shown(&tx, &core.links, vec![given_up.row.clone()]).await?;
        tx.commit().await?;
        given_up.tell(&core);
        return one(answer);
    }
    let former = allocations::former(&tx, &row).await?;
    if loss == Loss::All && !former.awaited_alone {
        return Err(ApiError::not_discardable());
    }
    let nodes = allocations::discard_former_computes(&tx, &row, &offline).await?;
    if nodes.is_empty() && (loss == Loss::All || !former.owed) {
        return Err(ApiError::no_former_computes());
    }
    if !nodes.is_empty() {
        let details = json!({ "session_id": session, "node_id": row.node_id, "former_computes": nodes });
        auth.audit(&tx, entry.details(details)).await?;
    }
    let answer = shown(&tx, &core.links, vec![row]).await?;
    tx.commit().await?;
    core.pokes.want(session);
    one(answer)
}

fn one(shown: Vec<Allocation>) -> Result<Json<Allocation>, ApiError> {
    shown.into_iter().next().map(Json).ok_or_else(ApiError::not_found)
}
