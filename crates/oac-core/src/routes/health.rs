//! Liveness, readiness and the API's own description: the routes anyone may ask.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use utoipa_axum::routes;

use crate::{
    Core,
    http::{
        ApiError,
        auth::Credential,
        router::{Body, Route},
        strict::{NoQuery, StrictQuery},
    },
};

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::new(Credential::Open, Body::None, routes!(healthz)),
        Route::new(Credential::Open, Body::None, routes!(readyz)).refuses(&[503]),
        Route::new(Credential::Open, Body::None, routes!(openapi_json)),
    ]
}

/// 200 while the process lives.
#[utoipa::path(get, path = "/healthz", responses((status = 200, description = "The process lives")))]
async fn healthz(StrictQuery(NoQuery {}): StrictQuery<NoQuery>) -> StatusCode {
    StatusCode::OK
}

/// 200 only on the owner.
#[utoipa::path(get, path = "/readyz", responses((status = 200, description = "This Core owns the installation")))]
async fn readyz(
    State(core): State<Arc<Core>>,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
) -> Result<StatusCode, ApiError> {
    core.owner
        .ownership()
        .map(|_| StatusCode::OK)
        .ok_or_else(ApiError::standby)
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, description = "OpenAPI 3.1", content_type = "application/json")))]
async fn openapi_json(StrictQuery(NoQuery {}): StrictQuery<NoQuery>) -> Json<utoipa::openapi::OpenApi> {
    Json(crate::openapi_document())
}
