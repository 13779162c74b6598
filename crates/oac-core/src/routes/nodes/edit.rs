//! What operators change of a node while everything runs (core.md sections 8, 10 and 15).
//!
//! Each is one transaction that locks the node's row, like a placement there, so that the next placement sees it. One that
//! would change nothing writes nothing and is not audited (INV-C15).

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, http::StatusCode};
use oac_lifecycle::{
    capacity::{Held, Limits},
    placement::are_labels,
};
use oac_model::NodeId;
use oac_store::{DeploymentLock, NodeLimits, NodeRow, StoreError, Tx};
use serde::Deserialize;
use serde_json::{Value, json};

use super::view::{Context, Node};
use crate::{
    Core,
    http::{
        ApiError,
        auth::{Audited, CoreKeyAuth},
        check_name,
        operator::Operator,
        strict::{Empty, StrictJson},
    },
    placement::facts_of,
};

/// A write to one node under its lock.
pub(super) struct Edit {
    pub(super) core: Arc<Core>,
    auth: CoreKeyAuth,
    pub(super) tx: Tx,
    /// The node as it is stored before.
    pub(super) row: NodeRow,
    resetting: bool,
}

impl Edit {
    /// 404 for a node that was removed or never was.
    pub(super) async fn begin(Operator { core, auth, target }: Operator) -> Result<Self, ApiError> {
        let id: NodeId = target.id("node_id")?;
        let tx = core.begin().await?;
        tx.lock_deployment(DeploymentLock::Shared).await?;
        let resetting = tx.deployment().await?.resetting();
        let row = tx.lock_node(id).await?.filter(|row| row.retired_at.is_none());
        Ok(Self {
            core,
            auth,
            tx,
            row: row.ok_or_else(ApiError::not_found)?,
            resetting,
        })
    }

    /// During a reset nodes are not managed; what they hold is being cleaned up.
    pub(super) fn refuse_during_reset(&self) -> Result<(), ApiError> {
        if self.resetting {
            Err(ApiError::reset_in_progress())
        } else {
            Ok(())
        }
    }

    /// Where it is asked for, as its audit entries say.
    pub(super) fn source(&self) -> String {
        self.auth.source()
    }

    pub(super) async fn audit(&self, action: &'static str, details: Value) -> Result<(), StoreError> {
        let entry = Audited::new("node", self.row.id, action).details(details);
        self.auth.audit(&self.tx, entry).await
    }

    /// Commits; placement learns of it, and the caller is shown the node.
    pub(super) async fn commit(self) -> Result<Json<Node>, ApiError> {
        let Self { core, tx, row, .. } = self;
        let facts = facts_of(&core, &tx, row.id).await?;
        let row = tx.node(row.id).await?.ok_or_else(ApiError::not_found)?;
        let counts = tx.node_counts(row.id).await?;
        let shown = Context::read(&tx).await?.show(row, counts);
        tx.commit().await?;
        facts.remember(&core);
        Ok(Json(shown))
    }
}

/// A node's name and limits, all three.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeEdit {
    /// 1 to 128 bytes, not blank.
    name: String,
    /// Sandboxes at once.
    #[schema(minimum = 1, maximum = 1_000_000)]
    max_active: i64,
    /// Running and suspended sandboxes together, at least `max_active`; for Docker equal to it.
    #[schema(minimum = 1, maximum = 1_000_000)]
    max_retained: i64,
}

/// Changes a node's name and limits. Lowering a limit below what runs stops nothing; it only places nothing new.
#[utoipa::path(
    patch,
    path = "/core/v1/sandbox/nodes/{node_id}",
    params(("node_id" = String, Path, format = Uuid)),
    request_body = NodeEdit,
    responses((status = 200, body = Node))
)]
pub(super) async fn edit_node(
    by: Operator,
    StrictJson(body): StrictJson<NodeEdit>,
) -> Result<Json<Node>, ApiError> {
    let edit = Edit::begin(by).await?;
    let row = &edit.row;
    check_name("name", &body.name)?;
    let limits = Limits::custom(Some(row.provider), body.max_active, body.max_retained)
        .ok_or_else(ApiError::invalid_node_capacity)?;
    edit.refuse_during_reset()?;
    let renamed = row.name != body.name;
    // Limits that an operator saved are the operator's: the pending recommendation does not come any more.
    let limited = (row.max_active, row.max_retained) != (limits.active, limits.retained)
        || row.limits == NodeLimits::RecommendedPending;
    if renamed {
        edit.tx.set_node_name(row.id, &body.name).await?;
    }
    if limited {
        edit.tx
            .set_node_limits(row.id, NodeLimits::Custom, limits.active, limits.retained)
            .await?;
    }
    if renamed || limited {
        let shape = |name: &str, active: u32, retained: u32| json!({ "name": name, "max_active": active, "max_retained": retained });
        let details = json!({
            "from": shape(&row.name, row.max_active, row.max_retained),
            "to": shape(&body.name, limits.active, limits.retained),
        });
        edit.audit("edit", details).await?;
    }
    edit.commit().await
}

/// All of a node's labels.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeLabels {
    /// At most 32 pairs; a key is `[a-z0-9][a-z0-9._/-]{0,62}`, a value at most 63 bytes.
    labels: BTreeMap<String, String>,
}

/// Replaces a node's labels. It moves nothing that is placed already.
#[utoipa::path(
    put,
    path = "/core/v1/sandbox/nodes/{node_id}/labels",
    params(("node_id" = String, Path, format = Uuid)),
    request_body = NodeLabels,
    responses((status = 200, body = Node))
)]
pub(super) async fn put_node_labels(
    by: Operator,
    StrictJson(NodeLabels { labels }): StrictJson<NodeLabels>,
) -> Result<Json<Node>, ApiError> {
    let edit = Edit::begin(by).await?;
    if !are_labels(&labels) {
        return Err(ApiError::invalid_member(
            "labels",
            "labels holds at most 32 pairs; a key is [a-z0-9][a-z0-9._/-]{0,62}, a value at most 63 bytes: correct it.",
        ));
    }
    edit.refuse_during_reset()?;
    if edit.row.labels != labels {
        edit.tx.set_node_labels(edit.row.id, &labels).await?;
        edit.audit("labels", json!({ "labels": labels })).await?;
    }
    edit.commit().await
}

/// Takes a node out of placement: nothing new is placed on it, and what runs there runs on.
#[utoipa::path(
    post,
    path = "/core/v1/sandbox/nodes/{node_id}/cordon",
    params(("node_id" = String, Path, format = Uuid)),
    request_body = Empty,
    responses((status = 200, body = Node))
)]
pub(super) async fn cordon_node(
    by: Operator,
    StrictJson(Empty {}): StrictJson<Empty>,
) -> Result<Json<Node>, ApiError> {
    set_cordoned(by, true).await
}

/// Puts a cordoned node back into placement; 409 `runtime_node_draining` while it is drained.
#[utoipa::path(
    post,
    path = "/core/v1/sandbox/nodes/{node_id}/uncordon",
    params(("node_id" = String, Path, format = Uuid)),
    request_body = Empty,
    responses((status = 200, body = Node))
)]
pub(super) async fn uncordon_node(
    by: Operator,
    StrictJson(Empty {}): StrictJson<Empty>,
) -> Result<Json<Node>, ApiError> {
    set_cordoned(by, false).await
}

async fn set_cordoned(by: Operator, cordoned: bool) -> Result<Json<Node>, ApiError> {
    let edit = Edit::begin(by).await?;
    edit.refuse_during_reset()?;
    if !cordoned && edit.row.drain_requested_at.is_some() {
        return Err(ApiError::node_draining());
    }
    if edit.row.cordoned_at.is_some() != cordoned {
        edit.tx.set_node_cordoned(edit.row.id, cordoned).await?;
        let action = if cordoned { "cordon" } else { "uncordon" };
        edit.audit(action, json!({})).await?;
    }
    edit.commit().await
}

/// Removes a node that holds nothing, for good: its credential opens nothing from then on, and the host can come back only
/// as a new node. 409 `runtime_node_in_use` while it holds anything, online or not.
#[utoipa::path(
    delete,
    path = "/core/v1/sandbox/nodes/{node_id}",
    params(("node_id" = String, Path, format = Uuid)),
    responses((status = 204, description = "Removed"))
)]
pub(super) async fn remove_node(by: Operator) -> Result<StatusCode, ApiError> {
    let edit = Edit::begin(by).await?;
    edit.refuse_during_reset()?;
    let (id, counts) = (edit.row.id, edit.tx.node_counts(edit.row.id).await?);
    let held = Held {
        retained: counts.slots.retained,
        cleanup_pending: counts.cleanup_pending,
        open_computes: edit.tx.open_computes_of_node(id).await?.len() as u64,
    };
    if !held.is_nothing() {
        return Err(ApiError::node_in_use(held.retained, held.open_computes));
    }
    edit.tx.retire_node(id).await?;
    edit.audit("remove", json!({ "name": edit.row.name })).await?;
    edit.tx.commit().await?;
    edit.core.hub.memory().forget(id);
    Ok(StatusCode::NO_CONTENT)
}
