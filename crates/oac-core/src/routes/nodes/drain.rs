//! Starting and canceling a drain (core.md section 15). The worker in `crate::drains` does the rest.

use axum::Json;
use oac_lifecycle::drain::{LONGEST_SECONDS, SHORTEST_SECONDS};
use oac_store::{DrainIdle, DrainRetained, DrainThen, NewDrain};
use serde::Deserialize;
use serde_json::json;

use super::{edit::Edit, view::Node};
use crate::http::{ApiError, operator::Operator, strict::StrictJson};

/// How a node is emptied; all four members.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeDrain {
    /// From now until what still runs is ended.
    #[schema(minimum = 60, maximum = 604_800)]
    deadline_seconds: i64,
    /// `suspend` idle sandboxes before the deadline, or `wait`. Without a backend that suspends both wait.
    #[schema(value_type = super::view::DrainIdleSchema)]
    idle: DrainIdle,
    /// At the deadline `archive` the Sessions of what still runs, or `terminate` the sandboxes and keep the Sessions.
    #[schema(value_type = super::view::DrainThenSchema)]
    then: DrainThen,
    /// `keep` suspended sandboxes on the node, or `release` them at the deadline.
    #[schema(value_type = super::view::DrainRetainedSchema)]
    retained: DrainRetained,
}

/// Cordons a node and empties it by a deadline. 409 `runtime_node_draining` while a drain stands.
#[utoipa::path(
    post,
    path = "/core/v1/sandbox/nodes/{node_id}/drain",
    params(("node_id" = String, Path, format = Uuid)),
    request_body = NodeDrain,
    responses((status = 200, body = Node))
)]
pub(super) async fn drain_node(
    by: Operator,
    StrictJson(body): StrictJson<NodeDrain>,
) -> Result<Json<Node>, ApiError> {
    let edit = Edit::begin(by).await?;
    let deadline_seconds = u32::try_from(body.deadline_seconds)
        .ok()
        .filter(|_| (SHORTEST_SECONDS..=LONGEST_SECONDS).contains(&body.deadline_seconds))
        .ok_or_else(|| {
            ApiError::invalid_member(
                "deadline_seconds",
                format!("deadline_seconds must be {SHORTEST_SECONDS} to {LONGEST_SECONDS}: correct it."),
            )
        })?;
    edit.refuse_during_reset()?;
    if edit.row.drain_requested_at.is_some() {
        return Err(ApiError::node_draining());
    }
    let drain = NewDrain {
        deadline_seconds,
        idle: body.idle,
        then: body.then,
        retained: body.retained,
        source: edit.source(),
    };
    edit.tx.start_drain(edit.row.id, &drain).await?;
    let details = json!({
        "deadline_seconds": deadline_seconds,
        "idle": body.idle,
        "then": body.then,
        "retained": body.retained,
    });
    edit.audit("drain_start", details).await?;
    let core = edit.core.clone();
    let node = edit.commit().await?;
    core.pokes.drains.notify_one();
    Ok(node)
}

/// Cancels a drain. The cordon stays, and nothing is undone. Without a drain nothing happens.
#[utoipa::path(
    delete,
    path = "/core/v1/sandbox/nodes/{node_id}/drain",
    params(("node_id" = String, Path, format = Uuid)),
    responses((status = 200, body = Node))
)]
pub(super) async fn cancel_drain(by: Operator) -> Result<Json<Node>, ApiError> {
    let edit = Edit::begin(by).await?;
    if edit.row.drain_requested_at.is_some() {
        edit.tx.end_drain(edit.row.id).await?;
        edit.audit("drain_cancel", json!({})).await?;
    }
    edit.commit().await
}
