use std::{fmt, future::Future, sync::Arc, time::Duration};

use oac_proxy::{Proxies, ProxyError};
use rustls::{ClientConfig, RootCertStore, crypto::ring};

use super::transport::Transport;
use crate::{clock::Clock, origin::Origin};

/// The HTTP side of one Core. Follows no redirect and sends credentials in the Authorization header only (INV-P25).
#[derive(Clone)]
pub struct CoreClient {
    pub(super) origin: Origin,
    pub(super) transport: Transport,
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

/// What surrounds a node and decides how it reaches Core.
#[derive(Debug, Clone)]
pub struct Surroundings {
    pub proxies: Proxies,
    /// Who is believed to say which host is Core.
    pub roots: RootCertStore,
}

/// No proxy, and nobody to believe: enough for a Core under plain http.
impl Default for Surroundings {
    fn default() -> Self {
        Self {
            proxies: Proxies::default(),
            roots: RootCertStore::empty(),
        }
    }
}

impl Surroundings {
    /// The environment's proxies, and the bundled roots beside the system's: a host may have no CA files, or one of its
    /// own.
    pub fn of_this_process() -> Result<Self, ProxyError> {
        let mut roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Ok(Self {
            proxies: Proxies::from_variables(|name| std::env::var_os(name))?,
            roots,
        })
    }
}

impl CoreClient {
    /// Limits run by `clock`.
    pub fn new(origin: Origin, surroundings: Surroundings, clock: Clock) -> Result<Self, ClientError> {
        let tls = Arc::new(tls(surroundings.roots)?);
        let transport = Transport::new(&origin, &surroundings.proxies, tls)
            .map_err(|error| ClientError::Address(origin.clone(), error))?;
        Ok(Self {
            origin,
            transport,
            clock,
        })
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

fn tls(roots: RootCertStore) -> Result<ClientConfig, ClientError> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(ClientError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Core's address, and the proxy on the way.
impl fmt::Display for CoreClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.transport.via())
    }
}

impl fmt::Debug for CoreClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CoreClient({self})")
    }
}
