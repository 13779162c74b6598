//! HTTP to a port of a Session's sandbox: any method on `/v1/sessions/{session_id}/ports/{port}/…`, streamed both ways,
//! upgrades included (sessions.md section 4).
//!
//! What it guarantees. The sandbox gets the path and query behind the port byte for byte, and heads and bodies framed
//! anew from what was parsed, so that nobody smuggles a second request into the first. The application's credential never
//! arrives there. The sandbox is not trusted: its answer's head is bounded in size and time, counted with everything that
//! comes before it, and whatever else it does costs its own request and one of its Session's port streams.
//!
//! The shape: [`head`] rewrites heads and is pure; [`exchange`] speaks HTTP/1.1 over any byte stream within the bounds;
//! this module finds the sandbox ([`Reach`]), connects the port and joins the three. Each request has a port stream of
//! its own. A pool of open ones was refused: what a sandbox sent behind an answer would become the next request's answer.
//!
//! Answers that are Core's own carry the error envelope: 502 `sandbox_port_refused` (nothing listens),
//! 502 `sandbox_port_failed` (no usable answer), 504 `sandbox_port_timed_out` (no answer in time), and those of `Reach`.

mod exchange;
mod head;

use std::{num::NonZeroU16, sync::Arc};

use axum::{
    Extension,
    body::Body,
    extract::{Request, State},
    response::Response,
};
use http::{Method, StatusCode, header, uri::PathAndQuery};
use hyper_util::rt::TokioIo;
use oac_link::{CallError, LinkError, PortError, Tunnel, ports::relay};
use oac_store::FileOperationKind;
use tokio::time::{Instant, timeout, timeout_at};

use self::{
    exchange::{Answered, Bounded},
    head::Forwarded,
};
use super::{access::Access, reach::Reach, read::target_session};
use crate::{
    Core,
    http::{ApiError, auth::ProjectAuth, error::Chain, serve::Peer, target::Target},
    limits,
    metrics::Asked,
    task::Kind,
};

/// The paths of the one route: matching wants a part of its own for each of the two without a rest.
pub(super) const PATHS: [&str; 3] = [
    "/v1/sessions/{session_id}/ports/{port}/{*path}",
    "/v1/sessions/{session_id}/ports/{port}",
    "/v1/sessions/{session_id}/ports/{port}/",
];

/// Forwards a request to a server in the sandbox that listens on the port, on `127.0.0.1` or `::1`, and streams its
/// answer; any method, and upgrades such as WebSockets. The sandbox is started if it is not there.
#[utoipa::path(
    method(get, post, put, patch, delete, head, options),
    path = "/v1/sessions/{session_id}/ports/{port}/{path}",
    params(
        ("session_id" = String, Path, format = Uuid),
        ("port" = u16, Path, minimum = 1),
        ("path" = String, Path, description = "Passed on as it is, with the query; may be empty")
    ),
    responses(
        (status = 101, description = "Switching protocols, as the server agreed"),
        (status = "2XX", description = "Whatever the server answers, of any status")
    )
)]
pub(super) async fn forward_port(
    State(core): State<Arc<Core>>,
    auth: ProjectAuth,
    by: Asked,
    target: Target,
    Extension(Peer(peer)): Extension<Peer>,
    mut request: Request,
) -> Result<Response, ApiError> {
    let Some(port) = port_number(target.text("port")) else {
        // A Session that is nobody's business is not told apart by its ports.
        target_session(&core.store.single(), auth.project_id, &target).await?;
        return Err(ApiError::invalid_member(
            "port",
            "port is not one: give 1 to 65535.",
        ));
    };
    if request.method() == Method::CONNECT {
        // It asks for a tunnel: an answer of success to it has no body, and what follows is no HTTP any more.
        target_session(&core.store.single(), auth.project_id, &target).await?;
        return Err(ApiError::invalid_request(
            "CONNECT is for proxies, not for servers: use another method, or an upgrade.",
        ));
    }
    let (prefix, rest) = split_path(request.uri().path());
    let path = head::path_and_query(rest, request.uri().query())?;
    let forwarded = Forwarded {
        peer,
        host: match &core.config.public_url {
            Some(url) => head::host_of(url.as_str()),
            None => request.headers().get(header::HOST).cloned(),
        },
        https: core.config.public_url.as_ref().is_some_and(|url| url.is_https()),
        prefix: prefix.to_owned(),
        port,
    };
    let upgrade = head::asks_for_upgrade(request.version(), request.headers())
        .then(|| hyper::upgrade::on(&mut request));
    let reach = Reach::begin(&core, auth.project_id, &target, FileOperationKind::Port, by).await?;
    let tunnel = connect(&reach, port).await?;
    let access = Arc::new(reach.into_access());
    let request = outgoing(request, path, &forwarded);
    let is_head = request.method() == Method::HEAD;
    let answer = exchange::exchange(&core.tasks, tunnel, request, access.clone()).await?;
    let Some(client) = upgrade.filter(|_| answer.status() == StatusCode::SWITCHING_PROTOCOLS) else {
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(failed("it switched protocols unasked"));
        }
        let (mut parts, body) = answer.into_parts();
        head::rewrite_answer(&mut parts, is_head);
        return Ok(Response::from_parts(parts, Body::new(body)));
    };
    Ok(switch(&core, answer, client, access))
}

fn outgoing(request: Request, path: PathAndQuery, forwarded: &Forwarded) -> Request {
    let (mut parts, body) = request.into_parts();
    head::rewrite_request(&mut parts, path, forwarded);
    // The hold of this server's upgrade, and what else it noted about the client's request, stay here.
    parts.extensions = http::Extensions::new();
    Request::from_parts(parts, body)
}

/// The sandbox agreed to another protocol: from here on bytes pass as they are, each direction ending alone.
fn switch(
    core: &Arc<Core>,
    mut answer: http::Response<Answered>,
    client: hyper::upgrade::OnUpgrade,
    access: Arc<Access>,
) -> Response {
    let sandbox = hyper::upgrade::on(&mut answer);
    let (mut parts, body) = answer.into_parts();
    head::rewrite_switch(&mut parts);
    core.tasks
        .spawn(Kind::Connection, "upgraded port stream", async move {
            // The exchange's connection gives its stream up only while its answer is held.
            let sandbox = sandbox.await;
            drop(body);
            if let (Ok(sandbox), Ok(client)) = (sandbox, client.await) {
                let tunnel = exchange::stream_of(sandbox);
                // Whoever breaks off knows it; the other side is told by the end of its stream.
                let _ = relay(tunnel, TokioIo::new(client)).await;
            }
            drop(access);
        });
    Response::from_parts(parts, Body::empty())
}

/// Connects the port; again on a newer link when the first was just ending, for as long as `reach` waits.
async fn connect(reach: &Reach, port: NonZeroU16) -> Result<Bounded<Tunnel>, ApiError> {
    loop {
        let client = reach.client().await?;
        let until = Instant::now() + limits::PORT_CONNECT_WAIT;
        match timeout_at(until, client.connect_port(port)).await {
            Ok(Ok(tunnel)) => return Ok(Bounded::new(tunnel)),
            Ok(Err(PortError::Refused)) => return Err(ApiError::port_refused(port)),
            Ok(Err(PortError::TimedOut)) | Err(_) => return Err(ApiError::port_timed_out()),
            Ok(Err(PortError::Busy)) => return Err(ApiError::sandbox_unreachable()),
            Ok(Err(PortError::Call(CallError::Link(LinkError::TooManyStreams)))) => {
                return Err(ApiError::too_many_accesses(FileOperationKind::Port));
            }
            // Nothing was sent to the port yet.
            Ok(Err(PortError::Call(CallError::Link(error)))) => {
                tracing::debug!(error = %Chain(&error), "a port is connected again");
                // The link's own end follows; it is waited for so that this is no busy loop.
                let _ = timeout(limits::PORT_LINK_END_WAIT, client.closed()).await;
            }
            Ok(Err(PortError::Call(error))) => {
                tracing::warn!(error = %Chain(&error), "the runtime does not connect a port");
                return Err(failed("its runtime does not connect ports"));
            }
        }
    }
}

fn failed(why: &str) -> ApiError {
    ApiError::port_failed(why)
}

fn port_number(text: &str) -> Option<NonZeroU16> {
    text.parse()
        .ok()
        .filter(|port: &NonZeroU16| port.to_string() == text)
}

/// Splits a path of this route behind its port, as it was sent.
fn split_path(path: &str) -> (&str, &str) {
    // `/v1/sessions/{}/ports/{}`: the sixth slash, if there is one, begins the rest.
    let end = path.match_indices('/').nth(5).map_or(path.len(), |(at, _)| at);
    path.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_port_is_kept_byte_for_byte() {
        for (path, rest) in [
            ("/v1/sessions/s/ports/80", ""),
            ("/v1/sessions/s/ports/80/", "/"),
            ("/v1/sessions/s/ports/80//", "//"),
            ("/v1/sessions/s/ports/80/../../x", "/../../x"),
            ("/v1/sessions/s/ports/80/%2e%2e/a%2Fb%00", "/%2e%2e/a%2Fb%00"),
            ("/v1/sessions/s%2F/ports/80/v1/sessions", "/v1/sessions"),
        ] {
            let (prefix, found) = split_path(path);
            assert_eq!(found, rest, "{path}");
            assert_eq!(format!("{prefix}{rest}"), path);
        }
    }

    #[test]
    fn a_port_is_a_plain_number_from_1_to_65535() {
        for good in ["1", "80", "65535"] {
            assert!(port_number(good).is_some(), "{good}");
        }
        for bad in ["", "0", "65536", "-1", "+80", "080", "8o", " 80", "80 ", "０"] {
            assert!(port_number(bad).is_none(), "{bad}");
        }
    }
}
