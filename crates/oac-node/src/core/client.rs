use std::sync::Arc;

use reqwest::redirect::Policy;
use rustls::{ClientConfig, RootCertStore, crypto::ring};

use super::proxy;
use crate::{limits::CORE_CALL, origin::Origin};

/// The HTTP side of one Core. Follows no redirect and sends credentials in the Authorization header only (INV-P25).
#[derive(Debug, Clone)]
pub struct CoreClient {
    pub(super) origin: Origin,
    /// Bounded calls.
    pub(super) calls: reqwest::Client,
    /// Upgrades, whose connection outlives the request.
    pub(super) dials: reqwest::Client,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("TLS could not be set up")]
    Tls(#[source] rustls::Error),
    #[error("the HTTP client could not be set up")]
    Http(#[source] reqwest::Error),
}

impl CoreClient {
    pub fn new(origin: Origin) -> Result<Self, ClientError> {
        let tls = tls()?;
        let builder = || {
            reqwest::Client::builder()
                .tls_backend_preconfigured(tls.clone())
                .redirect(Policy::none())
                .proxy(proxy::from_environment())
                .http1_only()
                .pool_max_idle_per_host(0)
                .user_agent(concat!("oac-node/", env!("CARGO_PKG_VERSION")))
        };
        Ok(Self {
            origin,
            calls: builder().timeout(CORE_CALL).build().map_err(ClientError::Http)?,
            dials: builder().build().map_err(ClientError::Http)?,
        })
    }
}

/// The bundled roots beside the system's: a host may have no CA files, or one of its own.
fn tls() -> Result<ClientConfig, ClientError> {
    let mut roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(ClientError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}
