use std::sync::Arc;

use oac_proxy::{Proxies, ProxyError};
use rustls::{ClientConfig, RootCertStore, crypto::ring};

/// What surrounds a process and decides how it reaches a server.
#[derive(Debug, Clone)]
pub struct Surroundings {
    pub proxies: Proxies,
    /// Who is believed to say which host is which.
    pub roots: RootCertStore,
}

/// No proxy, and nobody to believe: enough for a server under plain http.
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

/// TLS that believes `roots`.
pub fn tls(roots: RootCertStore) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
