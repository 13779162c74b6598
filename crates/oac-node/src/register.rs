//! `register`: makes the identity durable, then tells Core (node.md section 4).

use std::{path::Path, sync::Arc, time::Instant};

use oac_dial::Origin;
use oac_model::{DiagnosticCode, Digest, Secret};
use oac_provider::Provider;
use oac_wire::frames::Identity;

use crate::{
    clock::Clock,
    config::Configuration,
    core::{CallError, ClientError, CoreClient, Enrollment, Surroundings},
    identity::{IdentityError, IdentityStore, Stored},
    limits::PROBE,
};

/// What `register` is told.
#[derive(Debug)]
pub struct Registration<'a> {
    pub config: &'a Configuration,
    pub state_dir: &'a Path,
    /// Core's origin as the operator gave it; the configuration's.
    pub core: &'a Origin,
    /// 1..128 bytes, not blank, without NUL, CR, LF.
    pub name: &'a str,
    pub token: &'a Secret,
    /// The present host's.
    pub host_id: Digest,
}

#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    #[error(
        "--core-url {given} is not the configuration's {configured}; use the address the node was installed for"
    )]
    Address { given: Origin, configured: Origin },
    #[error("--name must be 1 to 128 bytes, not blank and on one line")]
    Name,
    #[error("the identity could not be made durable")]
    Identity(#[from] IdentityError),
    #[error("the state directory belongs to another host; see oac-node doctor")]
    Host,
    #[error("the provider is not ready: {code}; run oac-node doctor for the reason")]
    NotReady { code: DiagnosticCode },
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("Core did not confirm the identity")]
    Confirm(#[source] CallError),
    #[error("the enrollment token is unknown, used or expired; create another one and register again")]
    Token,
    #[error("Core did not enroll the node")]
    Enroll(#[source] CallError),
}

impl RegisterError {
    /// Whether Core refused the token: the one failure that no repetition cures (exit status 78).
    pub fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Token)
    }
}

/// Registers the node; repeating it after a lost answer gives the same identity. `provider` makes the provider of a
/// node recorded on the given host.
pub async fn register(
    registration: &Registration<'_>,
    provider: Arc<dyn Provider>,
) -> Result<Identity, RegisterError> {
    let surroundings = Surroundings::of_this_process().map_err(ClientError::from)?;
    let core = CoreClient::new(registration.config.core.clone(), surroundings, Clock::start())?;
    register_by(&core, registration, provider).await
}

/// [`register`] over a client of the caller's.
pub async fn register_by(
    core: &CoreClient,
    registration: &Registration<'_>,
    provider: Arc<dyn Provider>,
) -> Result<Identity, RegisterError> {
    let Registration { config, name, .. } = *registration;
    if registration.core != &config.core {
        return Err(RegisterError::Address {
            given: registration.core.clone(),
            configured: config.core.clone(),
        });
    }
    let one_line = !name.contains(['\0', '\r', '\n']);
    if name.trim().is_empty() || name.len() > 128 || !one_line {
        return Err(RegisterError::Name);
    }
    let store = IdentityStore::create(registration.state_dir)?;
    let stored = match store.load()? {
        Some(stored) => {
            stored.verify(config)?;
            if stored.host_id != registration.host_id {
                return Err(RegisterError::Host);
            }
            stored
        }
        None => {
            let stored = Stored::new(config, registration.host_id)?;
            store.store(&stored)?;
            stored
        }
    };
    match tokio::time::timeout(PROBE, provider.probe(Instant::now() + PROBE)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(code = %error.code, error = error.text, "the provider is not ready");
            return Err(RegisterError::NotReady { code: error.code });
        }
        Err(_) => {
            return Err(RegisterError::NotReady {
                code: DiagnosticCode::ProviderUnavailable,
            });
        }
    }
    // An earlier enrollment whose answer was lost has used the token up; the credential tells.
    let confirmed = match core.identity(&stored.identity, &stored.credential).await {
        Ok(confirmed) => confirmed,
        Err(CallError::Unauthorized) => core
            .enroll(
                registration.token,
                &Enrollment {
                    identity: &stored.identity,
                    credential: &stored.credential,
                    name,
                },
            )
            .await
            .map_err(|error| match error {
                CallError::Unauthorized => RegisterError::Token,
                error => RegisterError::Enroll(error),
            })?,
        Err(error) => return Err(RegisterError::Confirm(error)),
    };
    let stored = store.store_capacity(confirmed.max_active, confirmed.max_retained)?;
    Ok(stored.identity)
}
