//! Starting, serving and stopping one Core.

mod keys;
mod releases;

use std::{net::SocketAddr, path::Path, sync::Arc};

use oac_store::{ExclusiveLock, ExclusiveLockError, Holder, OpenError, Store, StoreError, StoreOptions};
use oac_telemetry::traces::Export;
use tokio::{net::TcpListener, signal::unix::SignalKind};

use crate::{
    Core, Pokes, allocations,
    config::{Config, ConfigError},
    drains,
    http::{
        router,
        serve::{self, ListenError},
        tls::{self, Certificate, PairError},
    },
    hub::{self, Hub},
    link::{self, Links},
    metrics::{self, Metrics},
    owner::{self, OwnerHandle},
    placement, presence, releases as node_files, resets,
    sessions::{
        access::{self, Accesses},
        admission::Admissions,
    },
    task::{Kind, Tasks},
    turns::{self, Turns},
};

pub use keys::{create_core_key, list_core_keys, revoke_core_key};
pub use releases::{list_releases, publish_release, remove_release};

/// Why a command of the program failed.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error(transparent)]
    Setup(#[from] crate::setup::SetupError),
    #[error("the configuration is not usable")]
    Config(#[from] ConfigError),
    #[error("Core cannot start")]
    Start(#[from] StartError),
    #[error("the Core key was not written")]
    Key(#[from] StoreError),
    #[error("the name is not usable: give 1 to 128 bytes, not blank, on one line")]
    KeyName,
    #[error("the key cannot be printed: it was created, revoke it")]
    Output(#[source] std::io::Error),
    #[error("the list cannot be printed")]
    Listed(#[source] std::io::Error),
    #[error("no Core key has that id: check it with `oac-core core-key list`")]
    NoSuchKey,
    #[error("the releases were left as they were")]
    Release(#[from] oac_release::store::StoreError),
    #[error("the operating system gave no random bytes")]
    Entropy(#[source] getrandom::Error),
    #[error("signals cannot be received")]
    Signals(#[source] std::io::Error),
    #[error("a part of Core ended unexpectedly: see its log, then start it again")]
    Failed,
}

/// Why a Core did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the HTTP service cannot listen")]
    Listen(#[from] ListenError),
    #[error("`metrics_listen` is of no use: choose another address, or an empty one for no metrics")]
    Metrics(#[source] ListenError),
    #[error("the database cannot be locked")]
    Lock(#[from] ExclusiveLockError),
    #[error("the database cannot be opened")]
    Store(#[from] OpenError),
    #[error("the TLS certificate cannot be used")]
    Certificate(#[from] PairError),
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
    #[error("the listening address is unknown")]
    Address(#[source] std::io::Error),
}

/// A Core that serves, as owner or standby.
pub struct Running {
    pub core: Arc<Core>,
    /// Where it listens, in the order of the configuration.
    pub addresses: Vec<SocketAddr>,
    /// Where it answers scrapes.
    pub metrics_address: Option<SocketAddr>,
    /// Sends spans. Stopped last: no collector keeps another Core waiting for the lease.
    export: Tasks,
}

/// `oac-core run`: serves until SIGTERM or SIGINT.
pub async fn program(config: &Path) -> Result<(), ProgramError> {
    oac_telemetry::log::start();
    let config = Config::load(config)?;
    let mut terminate =
        tokio::signal::unix::signal(SignalKind::terminate()).map_err(ProgramError::Signals)?;
    let mut interrupt =
        tokio::signal::unix::signal(SignalKind::interrupt()).map_err(ProgramError::Signals)?;
    allow_open_files();
    let running = start(config).await?;
    for address in &running.addresses {
        tracing::info!(%address, "listening");
    }
    if let Some(address) = running.metrics_address {
        tracing::info!(%address, "answering scrapes");
    }
    let failed = tokio::select! {
        _ = terminate.recv() => false,
        _ = interrupt.recv() => false,
        () = running.core.tasks.failed() => true,
    };
    running.stop().await;
    if failed { Err(ProgramError::Failed) } else { Ok(()) }
}

/// Each node, sandbox and reader holds a connection: as many as the host's administrator permits, not the few that a
/// shell or a service manager starts programs with.
fn allow_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(event = "open_files_limited", %error, "the limit of open files stays as it is: it bounds the connections");
    }
}

/// Binds the configured addresses, then [`start_on`].
pub async fn start(config: Config) -> Result<Running, StartError> {
    let listeners = serve::bind(&config.listen).await?;
    start_on(config, listeners, 0).await
}

/// Opens the database, then takes the lease or stands by, and serves on `listeners`. `clock_offset_millis` moves the
/// database's clock and is zero outside tests.
pub async fn start_on(
    config: Config,
    listeners: Vec<TcpListener>,
    clock_offset_millis: i64,
) -> Result<Running, StartError> {
    let addresses = listeners
        .iter()
        .map(TcpListener::local_addr)
        .collect::<Result<_, _>>()
        .map_err(StartError::Address)?;
    let metrics_listener = match config.metrics_listen {
        Some(address) => serve::bind(&[address]).await.map_err(StartError::Metrics)?.pop(),
        None => None,
    };
    let metrics_address = metrics_listener
        .as_ref()
        .map(TcpListener::local_addr)
        .transpose()
        .map_err(StartError::Address)?;
    let certificate = config.tls.as_ref().map(Certificate::load).transpose()?;
    let acceptor = certificate.as_ref().map(Certificate::acceptor).transpose();
    let acceptor = acceptor.map_err(StartError::Tls)?;
    let lock = ExclusiveLock::take(&config.database)?;
    let store = open_store(&config, clock_offset_millis).await?;
    let metrics = Metrics::default();
    let (traces, export) = metrics.traces(config.traces.clone());
    let core = Arc::new(Core {
        config,
        store,
        owner: OwnerHandle::default(),
        hub: Hub::new(metrics.clone(), traces.clone()),
        links: Links::default(),
        admissions: Admissions::default(),
        samples: Default::default(),
        turns: Turns::default(),
        accesses: Accesses::default(),
        metrics,
        releases: node_files::Releases::default(),
        traces,
        pokes: Pokes::default(),
        tasks: Tasks::default(),
    });
    core.tasks.spawn(
        Kind::Worker,
        "owner lease",
        owner::keep(core.clone(), Holder::random(), lock),
    );
    node_files::start(&core).await;
    start_workers(&core);
    if let Some(certificate) = certificate {
        tls::keep(&core, certificate);
    }
    serve::serve(&core, listeners, router::router(&core), acceptor);
    if let Some(listener) = metrics_listener {
        metrics::serve(&core, listener);
    }
    Ok(Running {
        core,
        addresses,
        metrics_address,
        export: start_export(export),
    })
}

async fn open_store(config: &Config, clock_offset_millis: i64) -> Result<Store, OpenError> {
    Store::open(StoreOptions {
        password: config.database_password.clone(),
        clock_offset_millis,
        ..StoreOptions::new(config.database.clone())
    })
    .await
}

/// Starts every worker of `core`; each waits for ownership before it acts.
fn start_workers(core: &Arc<Core>) {
    hub::start(core);
    link::start(core);
    presence::start(core);
    placement::start(core);
    allocations::start(core);
    drains::start(core);
    resets::start(core);
    turns::start(core);
    access::start(core);
}

/// Sends spans until it is told to stop, then what is left of them, for a short while.
fn start_export(mut export: Export) -> Tasks {
    let tasks = Tasks::default();
    let stopping = tasks.stopping();
    tasks.spawn(Kind::Finish, "traces", async move {
        tokio::select! {
            never = export.run() => match never {},
            () = stopping.cancelled() => {}
        }
        export.flush().await;
    });
    tasks
}

impl Running {
    /// Closes every connection, waits for the tasks, and expires the lease, so that another Core need not wait for it.
    pub async fn stop(self) {
        let Self { core, export, .. } = self;
        core.tasks.stop();
        core.hub.close_all().await;
        core.links.close_all().await;
        core.tasks.shutdown().await;
        if let Some(ownership) = core.owner.ownership()
            && let Err(error) = core.store.release_ownership(ownership.holder).await
        {
            tracing::warn!(event = "lease_not_given_up", %error, "the lease was not given up: another Core waits until it expires");
        }
        core.store.close().await;
        export.shutdown().await;
    }
}
