//! The certificate that Core shows, replaced while it serves.
//!
//! Both files are looked at every few seconds and whenever they differ from what was seen last, read as a pair. A pair that
//! is unusable, perhaps because only one of the two was written yet, is named in the log once and the previous one stays.
//! Refused alternative: watching the files' names, which links and mounted secrets make miss changes.

use std::{fmt, io::Read as _, path::PathBuf, sync::Arc, time::Duration};

use oac_model::Digest;
use parking_lot::RwLock;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio_rustls::TlsAcceptor;

use super::error::Chain;
use crate::{
    Core,
    config::{SecretFileError, TlsFiles, read_private_file},
    task::Kind,
};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(5);
const CERTIFICATE_BYTES: u64 = 1024 * 1024;
const KEY_BYTES: u64 = 64 * 1024;

/// Why a pair of files is of no use. Nothing of a key is repeated.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    #[error("cannot read {}: check that it exists and that Core's account may read it", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is larger than 1 MiB", path.display())]
    Large { path: PathBuf },
    #[error("{} holds no certificate in PEM form", path.display())]
    NoCertificate { path: PathBuf },
    #[error("`tls.key_file` is not usable")]
    Key(#[source] SecretFileError),
    #[error("{} holds no private key in PEM form", path.display())]
    NoKey { path: PathBuf },
    #[error("{} and {} do not go together: the key must be that of the first certificate", certificate.display(), key.display())]
    Mismatch {
        certificate: PathBuf,
        key: PathBuf,
        source: rustls::Error,
    },
}

/// A pair of files and what was made of it.
pub(crate) struct Certificate {
    files: TlsFiles,
    current: RwLock<Arc<CertifiedKey>>,
    /// What the files held, or the reason they could not be read, when they were judged last.
    seen: RwLock<Digest>,
}

impl Certificate {
    pub(crate) fn load(files: &TlsFiles) -> Result<Arc<Self>, PairError> {
        let content = Content::read(files)?;
        Ok(Arc::new(Self {
            files: files.clone(),
            current: RwLock::new(content.pair(files)?),
            seen: RwLock::new(content.digest()),
        }))
    }

    /// TLS 1.2 and 1.3, HTTP/1.1, without client certificates.
    pub(crate) fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config).into())
    }

    /// Looks at the files again.
    fn look(&self) {
        let content = Content::read(&self.files);
        let digest = match &content {
            Ok(content) => content.digest(),
            Err(error) => Digest::of(Chain(error).to_string()),
        };
        if *self.seen.read() == digest {
            return;
        }
        *self.seen.write() = digest;
        match content.and_then(|content| content.pair(&self.files)) {
            Ok(pair) => {
                *self.current.write() = pair;
                tracing::info!(
                    event = "certificate_replaced",
                    "new connections get the new TLS certificate"
                );
            }
            Err(error) => tracing::error!(
                event = "certificate_unusable",
                error = %Chain(&error),
                "the new TLS certificate is not used: the previous one stays in use"
            ),
        }
    }
}

/// Looks at the files for as long as Core runs.
pub(crate) fn keep(core: &Arc<Core>, certificate: Arc<Certificate>) {
    let clock = core.hub.clock.clone();
    core.tasks.spawn(Kind::Worker, "tls certificate", async move {
        loop {
            clock.pass(LOOK).await;
            let certificate = certificate.clone();
            // Two small files, yet on whatever file system.
            if let Err(error) = tokio::task::spawn_blocking(move || certificate.look()).await {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    });
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().clone())
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Certificate").field(&self.files).finish()
    }
}

/// What the two files hold.
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Content {
    fn read(files: &TlsFiles) -> Result<Self, PairError> {
        let path = &files.certificate;
        let read = |source| PairError::Read {
            path: path.clone(),
            source,
        };
        let mut certificate = Vec::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(CERTIFICATE_BYTES + 1).read_to_end(&mut certificate))
            .map_err(read)?;
        if certificate.len() as u64 > CERTIFICATE_BYTES {
            return Err(PairError::Large { path: path.clone() });
        }
        Ok(Self {
            certificate,
            key: read_private_file(&files.key, KEY_BYTES).map_err(PairError::Key)?,
        })
    }

    fn digest(&self) -> Digest {
        let length = (self.certificate.len() as u64).to_be_bytes();
        Digest::of([&length[..], &self.certificate, &self.key].concat())
    }

    fn pair(&self, files: &TlsFiles) -> Result<Arc<CertifiedKey>, PairError> {
        let no_certificate = || PairError::NoCertificate {
            path: files.certificate.clone(),
        };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<_, _>>()
            .map_err(|_| no_certificate())?;
        if chain.is_empty() {
            return Err(no_certificate());
        }
        // The reader's own error may repeat a line of the key.
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| PairError::NoKey {
            path: files.key.clone(),
        })?;
        CertifiedKey::from_der(chain, key, &ring::default_provider())
            .map(Arc::new)
            .map_err(|source| PairError::Mismatch {
                certificate: files.certificate.clone(),
                key: files.key.clone(),
                source,
            })
    }
}
