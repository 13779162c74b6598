//! The checks every request passes before its handler.

use std::sync::Arc;

use axum::{
    body::Body as HttpBody,
    extract::{Request, State},
    http::{HeaderMap, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use oac_model::{CoreKeyId, Secret};
use oac_store::{Read, StoreError};

use super::{
    ApiError,
    auth::{self, CoreKeyAuth, Credential, MachineAuth, NODE_ID_HEADER, NodeAuth, ProjectAuth},
    console,
    error::Chain,
    router::Body,
    serve::Peer,
};
use crate::Core;

/// What the table says about one route.
#[derive(Clone)]
pub(crate) struct Rule {
    pub(crate) core: Arc<Core>,
    pub(crate) credential: Credential,
    pub(crate) body: Body,
}

/// The whole body, within its limit.
#[derive(Clone)]
pub(crate) struct BufferedBody(pub(crate) Bytes);

const API_PREFIXES: [&str; 3] = ["/api/v1", "/core/v1", "/v1"];

/// Is `path` below one of the prefixes that only the owner answers?
pub(crate) fn is_api(path: &str) -> bool {
    API_PREFIXES.iter().any(|prefix| {
        path.strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// First check: a Core that does not own the installation answers nothing else (INV-C3).
pub(crate) async fn owned(State(core): State<Arc<Core>>, request: Request, next: Next) -> Response {
    if is_api(request.uri().path()) && core.owner.ownership().is_none() {
        return ApiError::standby().into_response();
    }
    next.run(request).await
}

/// `details` are for operators: outside `/core/v1` an error is sent without them.
pub(crate) async fn hide_details(request: Request, next: Next) -> Response {
    let operator = request.uri().path().starts_with("/core/v1/");
    let response = next.run(request).await;
    match response.extensions().get::<ApiError>() {
        Some(error) if !operator && error.details.is_some() => ApiError {
            details: None,
            ..error.clone()
        }
        .into_response(),
        _ => response,
    }
}

/// What no route answers is the console's, or nothing.
pub(crate) async fn no_route(request: Request) -> Response {
    let path = request.uri().path();
    let page = match is_api(path) {
        true => None,
        false => crate::console::answer(request.method(), path, request.headers()),
    };
    page.unwrap_or_else(|| ApiError::not_found().into_response())
}

pub(crate) async fn no_method() -> ApiError {
    ApiError::method_not_allowed()
}

/// Credential, then body size and media type.
pub(crate) async fn check(State(rule): State<Rule>, request: Request, next: Next) -> Response {
    match admit(&rule, request).await {
        Ok(request) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

async fn admit(rule: &Rule, mut request: Request) -> Result<Request, ApiError> {
    authenticate(rule, &mut request).await?;
    let limit = match rule.body {
        Body::Stream => return Ok(request),
        Body::None => super::limits::MACHINE_BODY_BYTES,
        Body::Json { limit } => limit,
    };
    if rule.body == Body::None && request.body().is_end_stream() {
        return Ok(request);
    }
    let declared = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|n| n > limit as u64) {
        return Err(ApiError::body_too_large(limit));
    }
    if rule.body != Body::None && !is_json(request.headers()) {
        return Err(ApiError::not_json());
    }
    let body = std::mem::replace(request.body_mut(), HttpBody::empty());
    let bytes = match Limited::new(body, limit).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(ApiError::body_too_large(limit)),
        Err(_) => return Err(ApiError::invalid_request("The body ended early: send it whole.")),
    };
    if rule.body == Body::None && !bytes.is_empty() {
        return Err(ApiError::invalid_request("This route takes no body: send none."));
    }
    request.extensions_mut().insert(BufferedBody(bytes));
    Ok(request)
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return false;
    };
    let Ok(text) = value.to_str() else {
        return false;
    };
    let mut parts = text.split(';').map(str::trim);
    parts
        .next()
        .is_some_and(|media| media.eq_ignore_ascii_case("application/json"))
        && parts.all(|parameter| {
            parameter.split_once('=').is_some_and(|(k, v)| {
                k.eq_ignore_ascii_case("charset") && v.trim_matches('"').eq_ignore_ascii_case("utf-8")
            })
        })
}

/// Finds who is asking and leaves it in the request for the extractors of `auth`.
async fn authenticate(rule: &Rule, request: &mut Request) -> Result<(), ApiError> {
    let bearer = auth::bearer(request.headers());
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
    let read = rule.core.store.single();
    match rule.credential {
        // The handlers of the last two check theirs where the design wants it: after the body, and at the link.
        Credential::Open | Credential::EnrollmentToken | Credential::Link => {}
        Credential::CoreKey => {
            let key = if request.headers().contains_key(header::AUTHORIZATION) {
                let secret = bearer.ok_or_else(ApiError::invalid_api_key)?;
                let key = read.authenticate_core_key(&secret).await.map_err(unanswered)?;
                key.map(|key| key.id)
            } else {
                console_session(&rule.core, &read, request.headers()).await?
            };
            request.extensions_mut().insert(CoreKeyAuth {
                core_key_id: key.ok_or_else(ApiError::invalid_api_key)?,
                peer,
            });
        }
        Credential::Console if !console::is_own(&rule.core.config, request.headers()) => {
            return Err(ApiError::invalid_api_key());
        }
        Credential::Console => {}
        Credential::ProjectKey => {
            let secret = bearer.ok_or_else(ApiError::invalid_api_key)?;
            let key = read.authenticate_project_key(&secret).await.map_err(unanswered)?;
            let key = key.ok_or_else(ApiError::invalid_api_key)?;
            request.extensions_mut().insert(ProjectAuth {
                project_id: key.project_id,
                key_id: key.id,
                peer,
            });
        }
        Credential::Node => {
            let node = node(&read, bearer, request.headers()).await?;
            request.extensions_mut().insert(node);
        }
        Credential::EnrollmentTokenOrNode if request.headers().contains_key(NODE_ID_HEADER) => {
            let node = node(&read, bearer, request.headers()).await?;
            request.extensions_mut().insert(MachineAuth::Node(node));
        }
        Credential::EnrollmentTokenOrNode => {
            let secret = bearer.ok_or_else(ApiError::invalid_node_credential)?;
            let token = read.enrollment_token(&secret).await.map_err(unanswered)?;
            let token = token.ok_or_else(ApiError::invalid_node_credential)?;
            let now = read.database_time().await.map_err(unanswered)?;
            let deployment = read.deployment().await.map_err(unanswered)?;
            if !token.usable(now, deployment.installation_id) {
                return Err(ApiError::invalid_node_credential());
            }
            let (max_active, max_retained) = (token.max_active, token.max_retained);
            request.extensions_mut().insert(MachineAuth::Token {
                max_active,
                max_retained,
            });
        }
    }
    Ok(())
}

/// The Core key that the request's console session came from, if it has one that lives. Its use is stored, within a minute.
async fn console_session(
    core: &Core,
    read: &Read,
    headers: &HeaderMap,
) -> Result<Option<CoreKeyId>, ApiError> {
    if !console::is_own(&core.config, headers) {
        return Ok(None);
    }
    let Some(token) = console::cookie(headers) else {
        return Ok(None);
    };
    let Some(used) = read.console_session(&token).await.map_err(unanswered)? else {
        return Ok(None);
    };
    if used.to_be_renewed {
        let tx = core.begin().await?;
        tx.renew_console_session(used.session.id)
            .await
            .map_err(unanswered)?;
        tx.commit().await.map_err(unanswered)?;
    }
    Ok(Some(used.session.core_key_id))
}

/// The node whose credential was sent; a node id in the header must be its own.
async fn node(read: &Read, bearer: Option<Secret>, headers: &HeaderMap) -> Result<NodeAuth, ApiError> {
    let secret = bearer.ok_or_else(ApiError::invalid_node_credential)?;
    let node = read.node_by_credential(&secret).await.map_err(unanswered)?;
    let node = node.ok_or_else(ApiError::invalid_node_credential)?;
    let mut named = headers.get_all(NODE_ID_HEADER).iter();
    let agrees = match (named.next(), named.next()) {
        (None, _) => true,
        (Some(id), None) => id.to_str().ok().and_then(|id| id.parse().ok()) == Some(node.id),
        (Some(_), Some(_)) => false,
    };
    if agrees {
        Ok(NodeAuth { node_id: node.id })
    } else {
        Err(ApiError::invalid_node_credential())
    }
}

/// Without an answer of the store nobody is refused as unknown.
fn unanswered(error: StoreError) -> ApiError {
    tracing::error!(event = "credential_unchecked", error = %Chain(&error), "a credential cannot be checked");
    ApiError::authentication_unavailable()
}
