use std::{fmt, future::Future, time::Duration};

use http::HeaderValue;
use oac_dial::Origin;
use oac_dial::{Surroundings, Way};
use oac_proxy::ProxyError;

use crate::clock::Clock;

const PROGRAM: HeaderValue = HeaderValue::from_static(concat!("oac-node/", env!("CARGO_PKG_VERSION")));

/// The HTTP side of one Core. Follows no redirect and sends credentials in the Authorization header only (INV-P25).
#[derive(Clone)]
pub struct CoreClient {
    pub(super) origin: Origin,
    pub(super) way: Way,
    pub(crate) clock: Clock,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("TLS could not be set up")]
    Tls(#[source] rustls::Error),
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    #[error("Core's address {0} is none that can be dialed")]
    Address(Origin, #[source] url::ParseError),
}

impl CoreClient {
    /// Limits run by `clock`.
    pub fn new(origin: Origin, surroundings: Surroundings, clock: Clock) -> Result<Self, ClientError> {
        let tls = oac_dial::tls(surroundings.roots).map_err(ClientError::Tls)?;
        let way = Way::new(origin.url(), &surroundings.proxies, tls, PROGRAM)
            .map_err(|error| ClientError::Address(origin.clone(), error))?;
        Ok(Self { origin, way, clock })
    }

    /// `None` when `work` takes longer.
    pub(super) async fn within<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        let end = self.clock.now().plus_millis(limit.as_millis() as u64);
        tokio::select! {
            done = work => Some(done),
            () = self.clock.until(Some(end)) => None,
        }
    }
}

/// Core's address, and the proxy on the way.
impl fmt::Display for CoreClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.way.via())
    }
}

impl fmt::Debug for CoreClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CoreClient({self})")
    }
}
