//! `run`: from the lock of the identity to the last operation (node.md section 4).

use std::{future::Future, path::Path, sync::Arc};

use oac_dial::Origin;
use oac_peer::node::Exit;
use oac_telemetry::traces::{self, Export, Tracer};

use crate::{
    agent::{Agent, ConfirmError, Served, confirm},
    clock::Clock,
    config::Configuration,
    core::{CallError, ClientError, CoreClient, Surroundings},
    identity::{IdentityError, IdentityStore, Stored},
    metrics::Metrics,
};

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("the identity cannot be used")]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("Core did not confirm this node")]
    Confirm(#[from] ConfirmError),
    /// Exit status 78.
    #[error("Core refuses this node's credential; the node was removed, or add it again")]
    Unauthorized,
}

impl RunError {
    /// Whether Core answered 401: the service manager must not start the node again (exit status 78).
    pub fn is_unauthorized(&self) -> bool {
        matches!(
            self,
            Self::Unauthorized | Self::Confirm(ConfirmError::Call(CallError::Unauthorized))
        )
    }
}

/// A locked and verified identity: the first step of `run`, before the provider is built.
#[derive(Debug)]
pub struct Opened {
    store: IdentityStore,
    stored: Stored,
    metrics: Metrics,
    traces: Tracer,
}

impl Opened {
    /// Where the identity's Core is.
    pub fn core(&self) -> &Origin {
        &self.stored.core
    }

    /// Locks the state directory and checks that it belongs to the configuration. No network (INV-N1).
    pub fn new(config: &Configuration, state_dir: &Path) -> Result<Self, IdentityError> {
        let store = IdentityStore::open(state_dir)?;
        let stored = store.load()?.ok_or(IdentityError::Missing)?;
        stored.verify(config)?;
        Ok(Self {
            store,
            stored,
            metrics: Metrics::default(),
            traces: Tracer::default(),
        })
    }

    pub fn stored(&self) -> &Stored {
        &self.stored
    }

    /// The run's operations are traced, and the spans go to a collector while what is returned is awaited.
    pub fn trace(&mut self, settings: Option<traces::Settings>) -> Export {
        let program = traces::Program {
            name: "oac-node",
            version: env!("CARGO_PKG_VERSION"),
            instance: self.stored.identity.node_id.as_uuid(),
        };
        let (tracer, export) = Tracer::new(settings, program, self.metrics.trace_spans());
        self.traces = tracer;
        export
    }

    /// What the run counts.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }
}

/// Serves until `stop` resolves, by `clock`. `operations` is the number of concurrent operations, 1..32; `started` is
/// called once Core has confirmed the identity.
pub async fn run(
    clock: Clock,
    opened: Opened,
    served: impl Into<Served>,
    operations: usize,
    started: impl FnOnce(),
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let surroundings = Surroundings::of_this_process().map_err(ClientError::from)?;
    let core = CoreClient::new(opened.stored.core.clone(), surroundings, clock)?;
    run_by(core, opened, served, operations, started, stop).await
}

/// [`run`] over a client of the caller's, and by its clock.
pub async fn run_by(
    core: CoreClient,
    opened: Opened,
    served: impl Into<Served>,
    operations: usize,
    started: impl FnOnce(),
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let Opened {
        store,
        metrics,
        traces,
        ..
    } = opened;
    let store = Arc::new(store);
    let mut stop = std::pin::pin!(stop);
    let stored = tokio::select! {
        confirmed = confirm(&core, store.clone()) => confirmed?,
        () = &mut stop => return Ok(()),
    };
    started();
    let agent = Agent::new(core, store, stored, served.into(), operations, (metrics, traces));
    match agent.run(stop).await {
        Exit::Stopped => Ok(()),
        Exit::Unauthorized => Err(RunError::Unauthorized),
    }
}
