//! Port streams: a stream of the link that becomes a TCP connection to a port of this sandbox
//! (sessions.md sections 4 and 7).
//!
//! The port is looked for on the loopback addresses alone, IPv4 first. Each stream counts as activity from before the
//! connection is tried until both directions have ended, or until its other end or its link is gone.

use std::{io, net::IpAddr, net::Ipv4Addr, net::Ipv6Addr, num::NonZeroU16, sync::Arc};

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use oac_link::{
    ports::{Accepting, PROTOCOL, relay},
    service::codes,
};
use tokio::{net::TcpStream, sync::Semaphore, time::timeout};

use crate::{
    activity::Activity,
    limits,
    service::{Answer, Refusal},
    task,
};

const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// The port streams of one runtime; clones share their bound.
#[derive(Debug, Clone)]
pub(crate) struct Ports {
    activity: Activity,
    places: Arc<Semaphore>,
}

impl Ports {
    pub(crate) fn new(activity: Activity) -> Self {
        Self {
            activity,
            places: Arc::new(Semaphore::new(limits::PORT_STREAMS)),
        }
    }

    /// `POST /v1/ports/{port}`: 101 once the port accepted, and then its bytes.
    pub(crate) async fn connect(
        &self,
        port: NonZeroU16,
        mut request: Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        if !asks_for_upgrade(request.headers()) {
            return Err(Refusal::invalid("this path needs Upgrade: tcp"));
        }
        let busy = |message| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, codes::BUSY, message);
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return Err(busy("too many port streams are open"));
        };
        let Some(active) = self.activity.begin() else {
            return Err(busy("the sandbox is being suspended"));
        };
        let mut stream = open(port).await?;
        let accepting = Accepting::of(&mut request);
        task::spawn(task::Kind::PortStream, async move {
            if let Some(tunnel) = accepting.accepted().await {
                // The server learns what happened here: an end or a reset, also while it reads nothing.
                if relay(tunnel, &mut stream).await.is_err() {
                    let _ = stream.set_zero_linger();
                }
            }
            drop((active, place));
        });
        Ok(switching())
    }
}

fn asks_for_upgrade(headers: &HeaderMap) -> bool {
    headers
        .get(header::UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(PROTOCOL.as_bytes()))
}

async fn open(port: NonZeroU16) -> Result<TcpStream, Refusal> {
    let mut timed_out = false;
    let mut why = String::new();
    for address in LOOPBACK {
        match timeout(
            limits::PORT_CONNECT_TIMEOUT,
            TcpStream::connect((address, port.get())),
        )
        .await
        {
            Ok(Ok(stream)) => {
                // What passes here was made to be sent now.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Ok(Err(error)) => why = crate::turns::why(&error),
            Err(_) => timed_out = true,
        }
    }
    Err(if timed_out {
        Refusal::new(
            StatusCode::BAD_GATEWAY,
            codes::PORT_TIMED_OUT,
            "the port does not accept connections in time",
        )
    } else {
        let mut message = "nothing listens on the port".to_owned();
        if !why.is_empty() {
            message = format!("{message}: {why}");
        }
        Refusal::new(StatusCode::BAD_GATEWAY, codes::PORT_REFUSED, message)
    })
}

fn switching() -> Answer {
    let body = Empty::new().map_err(|never: std::convert::Infallible| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
    answer
}
