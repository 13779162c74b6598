//! Signing in to the console and out of it (console.md section 1).

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{AppendHeaders, IntoResponse, Response},
};
use oac_model::Secret;
use serde::Deserialize;
use utoipa_axum::routes;

use crate::{
    Core, entropy,
    http::{
        ApiError,
        auth::Credential,
        console, limits,
        router::{Body, Route},
        strict::{NoQuery, StrictJson, StrictQuery},
    },
};

pub(crate) fn routes() -> Vec<Route> {
    let json = Body::Json {
        limit: limits::JSON_BODY_BYTES,
    };
    vec![
        Route::new(Credential::Console, json, routes!(sign_in)),
        Route::new(Credential::Console, Body::None, routes!(sign_out)),
    ]
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct SignIn {
    /// A Core key. It is not kept: the session stands for it from here on.
    #[schema(value_type = String, format = Password)]
    core_key: Secret,
}

/// Begins a console session; its token is a cookie that scripts cannot read.
#[utoipa::path(
    post,
    path = "/core/v1/console/session",
    request_body = SignIn,
    responses((status = 204, description = "Signed in; the cookie oac_console is set"))
)]
async fn sign_in(
    State(core): State<Arc<Core>>,
    headers: HeaderMap,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    StrictJson(asked): StrictJson<SignIn>,
) -> Result<Response, ApiError> {
    let token = entropy::secret("").map_err(|e| ApiError::internal("begin a session", &e))?;
    let tx = core.begin().await?;
    let key = tx.authenticate_core_key(&asked.core_key).await?;
    let key = key.ok_or_else(ApiError::invalid_api_key)?;
    tx.create_console_session(key.id, token.digest()).await?;
    tx.commit().await?;
    Ok(answer(&core, &headers, Some(&token)))
}

/// Ends the console session and clears its cookie; a session that has ended by itself is no error.
#[utoipa::path(
    delete,
    path = "/core/v1/console/session",
    responses((status = 204, description = "Signed out; the cookie oac_console is cleared"))
)]
async fn sign_out(
    State(core): State<Arc<Core>>,
    headers: HeaderMap,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
) -> Result<Response, ApiError> {
    if let Some(token) = console::cookie(&headers) {
        let tx = core.begin().await?;
        tx.end_console_session(&token).await?;
        tx.commit().await?;
    }
    Ok(answer(&core, &headers, None))
}

fn answer(core: &Core, headers: &HeaderMap, token: Option<&Secret>) -> Response {
    let cookie = console::set_cookie(&core.config, headers, token);
    let set = AppendHeaders(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
    (StatusCode::NO_CONTENT, set).into_response()
}
