//! A node's dial: checks 2 to 7 of protocol.md section 4, in order.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, header},
    response::Response,
};
use hyper_util::rt::TokioIo;
use oac_model::{ConnectionId, NodeId, Secret};
use oac_peer::core::Registered;
use oac_store::NodeRow;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

use super::{
    Hub, connection, limits,
    socket::{Meter, Socket},
};
use crate::{Core, http::ApiError, task::Kind};

/// The only connection of a node: WebSocket, node protocol.
#[utoipa::path(
    get,
    path = "/api/v1/sandbox-node/connect",
    params(("node_id" = String, Query, description = "The node's id")),
    responses(
        (status = 101, description = "The node protocol follows"),
    )
)]
pub(super) async fn connect(State(core): State<Arc<Core>>, request: Request) -> Result<Response, ApiError> {
    // In this order: a hub that is closed for a lost epoch is noticed by whoever still had that epoch.
    let closing = core.hub.closing.subscribe();
    let ownership = core.owner.ownership().ok_or_else(ApiError::standby)?;
    if core.tasks.stopping().is_cancelled() {
        return Err(ApiError::standby());
    }
    let (node_id, credential) = presented(&request).ok_or_else(ApiError::invalid_node_credential)?;
    let node = core
        .store
        .single()
        .node(node_id)
        .await
        .map_err(|_| ApiError::authentication_unavailable())?
        .filter(|node| node.retired_at.is_none() && node.credential_digest.matches(&credential.digest()))
        .ok_or_else(ApiError::invalid_node_credential)?;
    if request.headers().contains_key(header::ORIGIN) {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            None,
            "Browsers do not speak the node protocol.",
        ));
    }
    let reservation = Reservation::take(&core, node_id)?;
    let (response, upgrade) = upgrade(request)?;

    let task_core = core.clone();
    // It ends on its own when Core stops, after removing its presence.
    core.tasks.spawn(Kind::Finish, "node connection", async move {
        let Ok(Ok(upgraded)) = tokio::time::timeout(limits::UPGRADE, upgrade).await else {
            return;
        };
        let meter = Meter::new(task_core.hub.clock.clone());
        let socket = Socket::new(TokioIo::new(upgraded), meter.clone());
        let socket = WebSocketStream::from_raw_socket(socket, Role::Server, Some(config())).await;
        let opened = connection::Opened {
            registered: registered(&node),
            credential: credential.digest(),
            connection_id: reservation.connection_id,
            ownership,
            closing,
        };
        connection::run(task_core, opened, socket, meter, reservation).await;
    });
    Ok(response)
}

fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(limits::READ_BUFFER_BYTES)
        .write_buffer_size(0)
        .max_message_size(Some(oac_wire::limits::REQUEST_FRAME_BYTES))
        .max_frame_size(Some(oac_wire::limits::REQUEST_FRAME_BYTES))
}

/// Exactly one `Authorization` of exactly two parts, the first `Bearer`, and exactly one canonical `node_id`.
fn presented(request: &Request) -> Option<(NodeId, Secret)> {
    let mut values = request.headers().get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let mut parts = value.to_str().ok()?.split_whitespace();
    let (Some("Bearer"), Some(credential), None) = (parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    let mut members = request.uri().query()?.split('&');
    let (Some(member), None) = (members.next(), members.next()) else {
        return None;
    };
    let node_id = member.strip_prefix("node_id=")?.parse().ok()?;
    Some((node_id, Secret::new(credential)))
}

fn registered(node: &NodeRow) -> Registered {
    Registered {
        node_id: node.id,
        installation_id: node.installation_id,
        provider: node.provider,
        backend_fingerprint: node.backend_fingerprint,
        deployment_generation: node.enrolled_generation,
        specification_digest: node.enrolled_digest,
        managing: node.generation_management == Some(true),
    }
}

/// The 101 and the stream behind it; 400 for anything that is not a well-formed WebSocket upgrade.
fn upgrade(mut request: Request) -> Result<(Response, hyper::upgrade::OnUpgrade), ApiError> {
    let malformed =
        || ApiError::invalid_request("This is not a WebSocket upgrade: connect with a node program.");
    let headers = request.headers();
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| {
        request.method() == Method::GET
            && names(headers, header::CONNECTION, "upgrade")
            && names(headers, header::UPGRADE, "websocket")
            && headers
                .get(header::SEC_WEBSOCKET_VERSION)
                .is_some_and(|v| v == "13")
    });
    let accept = key
        .filter(|key| key.len() == 24 && key.as_bytes().ends_with(b"=="))
        .map(|key| derive_accept_key(key.as_bytes()))
        .ok_or_else(malformed)?;
    let upgrade = request
        .extensions_mut()
        .remove::<hyper::upgrade::OnUpgrade>()
        .ok_or_else(malformed)?;
    let response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_ACCEPT, accept)
        .body(Body::empty())
        .map_err(|_| malformed())?;
    Ok((response, upgrade))
}

fn names(headers: &HeaderMap, name: header::HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| {
            value
                .split(',')
                .any(|part| part.trim().eq_ignore_ascii_case(token))
        })
}

/// One identity, held from check 6 until its connection is freed; freed at the latest when dropped.
pub(super) struct Reservation {
    core: Arc<Core>,
    node_id: NodeId,
    pub(super) connection_id: ConnectionId,
}

impl Reservation {
    fn take(core: &Arc<Core>, node_id: NodeId) -> Result<Self, ApiError> {
        let connection_id = ConnectionId::random();
        core.hub
            .reservations
            .lock()
            .reserve(node_id, connection_id)
            .map_err(|_| {
                ApiError::new(
                    StatusCode::CONFLICT,
                    None,
                    "The node is connected already: stop the other program.",
                )
            })?;
        Ok(Self {
            core: core.clone(),
            node_id,
            connection_id,
        })
    }

    fn hub(&self) -> &Hub {
        &self.core.hub
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.hub().free(self.node_id, self.connection_id);
    }
}
