//! The nodes, as an operator sees them (core.md section 10).

mod detail;
mod drain;
mod edit;
mod view;

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use oac_model::{Digest, EnrollmentId, NodeId};
use oac_store::NodeRow;
use serde::{Deserialize, Serialize};
use utoipa_axum::routes;

pub(crate) use self::view::Context;
use self::{
    detail::{NodeDetail, Range},
    view::Node,
};
use crate::{
    Core,
    http::{
        ApiError,
        auth::{CoreKeyAuth, Credential},
        limits,
        router::{Body, Route},
        strict::StrictQuery,
        target::Target,
    },
};

pub(crate) fn routes() -> Vec<Route> {
    let json = Body::Json {
        limit: limits::JSON_BODY_BYTES,
    };
    vec![
        Route::new(Credential::CoreKey, Body::None, routes!(list_nodes)),
        Route::new(Credential::CoreKey, Body::None, routes!(get_node)),
        Route::new(Credential::CoreKey, json, routes!(edit::edit_node)).refuses(&[409]),
        Route::new(Credential::CoreKey, json, routes!(edit::put_node_labels)).refuses(&[409]),
        Route::new(Credential::CoreKey, json, routes!(edit::cordon_node)).refuses(&[409]),
        Route::new(Credential::CoreKey, json, routes!(edit::uncordon_node)).refuses(&[409]),
        Route::new(Credential::CoreKey, Body::None, routes!(edit::remove_node)).refuses(&[409]),
        Route::new(Credential::CoreKey, json, routes!(drain::drain_node)).refuses(&[409]),
        Route::new(Credential::CoreKey, Body::None, routes!(drain::cancel_drain)).refuses(&[409]),
    ]
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct NodesQuery {
    /// Only the node that this enrollment made.
    #[param(nullable = false, value_type = Option<String>, format = Uuid)]
    enrollment_id: Option<EnrollmentId>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Nodes {
    data: Vec<Node>,
    /// Addresses other than the public one that nodes were enrolled under.
    old_addresses: Vec<String>,
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DetailQuery {
    /// How far the history reaches; `1h` without it.
    #[param(nullable = false, inline)]
    range: Option<Range>,
}

/// Every node, oldest first, with an ETag.
#[utoipa::path(
    get,
    path = "/core/v1/sandbox/nodes",
    params(NodesQuery),
    responses((status = 200, body = Nodes), (status = 304, description = "As the ETag sent names it"))
)]
async fn list_nodes(
    State(core): State<Arc<Core>>,
    _: CoreKeyAuth,
    headers: HeaderMap,
    StrictQuery(query): StrictQuery<NodesQuery>,
) -> Result<Response, ApiError> {
    let read = core.store.read().await?;
    let context = Context::read(&read).await?;
    let wanted = |node: &NodeRow| query.enrollment_id.is_none() || node.enrollment_id == query.enrollment_id;
    let rows = read
        .nodes_with_counts()
        .await?
        .into_iter()
        .filter(|(node, _)| wanted(node));
    let data = rows.map(|(node, counts)| context.show(node, counts)).collect();
    let public = core.config.public_url.as_ref().map(|url| url.as_str());
    let mut old_addresses = read.enrolled_core_urls().await?;
    old_addresses.retain(|url| Some(url.as_str()) != public);
    tagged(&headers, &Nodes { data, old_addresses })
}

/// One node with its host's measurements and their history.
#[utoipa::path(
    get,
    path = "/core/v1/sandbox/nodes/{node_id}",
    params(("node_id" = String, Path, format = Uuid), DetailQuery),
    responses((status = 200, body = NodeDetail))
)]
async fn get_node(
    State(core): State<Arc<Core>>,
    _: CoreKeyAuth,
    StrictQuery(query): StrictQuery<DetailQuery>,
    target: Target,
) -> Result<Json<NodeDetail>, ApiError> {
    let id: NodeId = target.id("node_id")?;
    let read = core.store.read().await?;
    let row = read
        .node(id)
        .await?
        .filter(|row| row.retired_at.is_none())
        .ok_or_else(ApiError::not_found)?;
    Ok(Json(
        NodeDetail::read(&read, row, query.range.unwrap_or_default()).await?,
    ))
}

/// `body` with a strong ETag over its bytes, or 304 when the caller has it.
fn tagged(headers: &HeaderMap, body: &impl Serialize) -> Result<Response, ApiError> {
    let bytes = serde_json::to_vec(body).map_err(|error| ApiError::internal("write an answer", &error))?;
    let tag = format!("\"{}\"", Digest::of(&bytes));
    let has = headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .any(|list| {
            list.split(',')
                .map(str::trim)
                .any(|t| t == "*" || t.strip_prefix("W/").unwrap_or(t) == tag)
        });
    let etag = HeaderValue::try_from(tag).map_err(|error| ApiError::internal("write an answer", &error))?;
    if has {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response());
    }
    let json = HeaderValue::from_static("application/json");
    Ok((
        StatusCode::OK,
        [(header::CONTENT_TYPE, json), (header::ETAG, etag)],
        bytes,
    )
        .into_response())
}
