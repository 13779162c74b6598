//! A TCP connection inside the sandbox, over a stream of the link (sessions.md section 7, `POST /v1/ports/{port}`).
//!
//! The stream's exchange ends with 101, and then the stream carries raw bytes with its own back-pressure and
//! half-close. What a [`Tunnel`] guarantees beyond that: an end of file is the other side's end and nothing else. A
//! stream that was reset, or whose link broke, reads as an error, so that a truncated answer never passes for a whole
//! one.

mod relay;
mod tunnel;

use std::num::NonZeroU16;

use http::{HeaderValue, Request, StatusCode, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio_util::compat::FuturesAsyncReadCompatExt;

pub use relay::relay;
pub use tunnel::{Accepting, Tunnel, TunnelWatch};

use crate::{
    client::{CallError, error_of},
    exchange::{LinkError, RequestBody, ResponseBody, StreamClass, beside, empty},
    mux::LinkClient,
    service::codes,
};

/// The protocol that the upgrade names.
pub const PROTOCOL: &str = "tcp";

/// Why a port was not connected.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    #[error(transparent)]
    Call(#[from] CallError),
    /// 502: nothing listens there.
    #[error("nothing listens on the port")]
    Refused,
    /// 502: something listens there and does not accept.
    #[error("the port does not accept connections in time")]
    TimedOut,
    /// 503: the runtime has too many port streams, or takes none now.
    #[error("the runtime takes no port stream now")]
    Busy,
}

impl From<LinkError> for PortError {
    fn from(error: LinkError) -> Self {
        Self::Call(CallError::Link(error))
    }
}

impl LinkClient {
    /// Connects to `127.0.0.1:{port}`, else `[::1]:{port}`, inside the sandbox. Bound the wait: the runtime answers when
    /// it likes.
    pub async fn connect_port(&self, port: NonZeroU16) -> Result<Tunnel, PortError> {
        let (stream, permit) = self.open(StreamClass::Bulk).await?;
        let request = Request::post(format!("/v1/ports/{port}"))
            .header(header::HOST, HeaderValue::from_static("runtime"))
            .header(header::CONNECTION, HeaderValue::from_static("upgrade"))
            .header(header::UPGRADE, HeaderValue::from_static(PROTOCOL))
            .body(empty());
        let request: Request<RequestBody> =
            request.unwrap_or_else(|error| unreachable!("a path of a number is valid: {error}"));
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream.compat()))
            .await
            .map_err(LinkError::Broken)?;
        let mut connection = Box::pin(connection.with_upgrades());
        let (answer, running) = beside(&mut connection, sender.send_request(request)).await;
        let mut answer = answer.map_err(LinkError::Broken)?;
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            let upgrade = hyper::upgrade::on(&mut answer);
            if running {
                connection.await.map_err(LinkError::Broken)?;
            }
            let upgraded = upgrade.await.map_err(LinkError::Broken)?;
            return Ok(Tunnel::of(upgraded, Some(permit)));
        }
        let answer =
            answer.map(|incoming| ResponseBody::new(incoming, running.then_some(connection), permit));
        Err(match error_of(answer).await {
            CallError::Answered { code, .. } if code == codes::PORT_REFUSED => PortError::Refused,
            CallError::Answered { code, .. } if code == codes::PORT_TIMED_OUT => PortError::TimedOut,
            CallError::Answered { status, .. } if status == StatusCode::SERVICE_UNAVAILABLE => {
                PortError::Busy
            }
            error => PortError::Call(error),
        })
    }
}
