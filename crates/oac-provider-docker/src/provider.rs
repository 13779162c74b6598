//! The provider: what it is made of, and how an operation enters.

use std::{path::PathBuf, sync::Arc, time::Instant};

use oac_model::{BootId, Digest, Generation, InstallationId, ProviderKind, Reference, Specification};
use oac_provider::{
    Cause, CreateFailure, Declarations, Failure, HostIdentity, Lanes, NoAnswer, ProbeError, Provider,
    Receipt, ReceiptError, ReceiptStore, Registered, RegistrationError, SweepReport,
};
use oac_wire::shapes::{Bootstrap, Command, CommandResult, Info, Observation, Sample};
use parking_lot::Mutex;

use crate::{
    config::{ConfigError, DockerConfig},
    decide::{Facts, Verdict},
    engine::{Engine, EngineError, Session},
    inventory::{Inventory, InventoryError},
    names::Names,
    options::{Image, Options},
};

/// The monotonic clock; a test supplies its own.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// The registration of this backend: what it declares, and the report of the suite that its tests run.
pub fn registered() -> Result<Registered, RegistrationError> {
    Registered::new(ProviderKind::Docker, include_str!("../conformance.txt"))
}

/// Everything a Docker provider is built from.
pub struct DockerSetup {
    pub config: DockerConfig,
    pub specification: Specification,
    pub installation_id: InstallationId,
    /// The generation whose sandboxes this provider makes; receipts record it.
    pub deployment_generation: Generation,
    /// `state/node/receipts`; must exist.
    pub receipts_dir: PathBuf,
    pub host: Arc<dyn HostIdentity>,
    pub clock: Clock,
}

impl DockerSetup {
    /// The clock of a running node.
    pub fn system_clock() -> Clock {
        Arc::new(Instant::now)
    }
}

/// Why a provider cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("the Docker configuration is wrong")]
    Config(#[from] ConfigError),
    #[error("the specification is not a Docker one with a Runtime release")]
    Specification,
    #[error("the receipts cannot be opened")]
    Receipts(#[from] ReceiptError),
    #[error("the Docker backend is not registered")]
    Registration(#[from] RegistrationError),
}

/// The Docker backend of one generation.
pub struct DockerProvider {
    registered: Registered,
    lanes: Arc<Lanes>,
    pub(crate) inner: Arc<Inner>,
}

/// What the operations work with; shared with the tasks that outlive their callers.
pub(crate) struct Inner {
    pub(crate) engine: Arc<Engine>,
    pub(crate) options: Options,
    pub(crate) installation: InstallationId,
    pub(crate) generation: Generation,
    pub(crate) receipts: Arc<ReceiptStore>,
    pub(crate) host: Arc<dyn HostIdentity>,
    image: Mutex<Option<Image>>,
}

/// The id of the engine behind `host` (`unix://…`), which anchors a Docker node's host_id.
pub async fn engine_id(host: &str, by: Instant) -> Result<String, EngineIdError> {
    let path = host.strip_prefix("unix://").ok_or(EngineIdError::Host)?;
    let engine = Engine::new(path.as_ref(), DockerSetup::system_clock());
    let session = tokio::time::timeout_at(by.into(), engine.connect())
        .await
        .map_err(|_| EngineIdError::Late)?
        .map_err(|e| EngineIdError::Engine(Box::new(e)))?;
    match session.engine_id() {
        "" => Err(EngineIdError::NoId),
        id => Ok(id.to_owned()),
    }
}

#[derive(Debug, thiserror::Error)]
pub enum EngineIdError {
    #[error("the Docker host must be unix:// and a path")]
    Host,
    #[error("the Docker Engine did not answer in time; check that it runs")]
    Late,
    #[error("the Docker Engine reports no id")]
    NoId,
    #[error(
        "the Docker Engine's id cannot be read; check that the engine runs and that this account may use it"
    )]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl DockerProvider {
    /// Checks the configuration and opens the receipts; asks the engine nothing.
    pub fn new(setup: DockerSetup) -> Result<Arc<Self>, SetupError> {
        Self::of(setup, None, false)
    }

    /// One generation of a node that has several: with `beside` it shares engine, lanes and receipts, since references
    /// and host are the same. A seccomp profile that cannot be read leaves a placeholder, which makes nothing and serves
    /// what was made (node.md section 5).
    pub fn of_generation(setup: DockerSetup, beside: Option<&Self>) -> Result<Arc<Self>, SetupError> {
        Self::of(setup, beside, true)
    }

    fn of(
        setup: DockerSetup,
        beside: Option<&Self>,
        may_be_placeholder: bool,
    ) -> Result<Arc<Self>, SetupError> {
        let artifacts = match &setup.specification {
            Specification {
                provider: oac_model::ProviderKind::Docker,
                runtime: Some(runtime),
                ..
            } => &runtime.artifacts,
            _ => return Err(SetupError::Specification),
        };
        let seccomp = match setup.config.check(artifacts) {
            Ok(profile) => Some(profile),
            Err(ConfigError::SeccompRead { .. } | ConfigError::SeccompJson { .. }) if may_be_placeholder => {
                None
            }
            Err(error) => return Err(error.into()),
        };
        let socket = setup.config.socket()?;
        let beside = beside.filter(|other| other.inner.engine.is_at(socket));
        let (engine, lanes, receipts) = match beside {
            Some(other) => (
                other.inner.engine.clone(),
                other.lanes.clone(),
                other.inner.receipts.clone(),
            ),
            None => (
                Engine::new(socket, setup.clock),
                Arc::default(),
                Arc::new(ReceiptStore::open(&setup.receipts_dir)?),
            ),
        };
        Ok(Arc::new(Self {
            registered: registered()?,
            lanes,
            inner: Arc::new(Inner {
                engine,
                options: Options {
                    image: setup.config.image,
                    network: setup.config.network,
                    resources: setup.specification.resources,
                    seccomp: seccomp.map(|profile| format!("seccomp={profile}")),
                },
                installation: setup.installation_id,
                generation: setup.deployment_generation,
                receipts,
                host: setup.host,
                image: Mutex::default(),
            }),
        }))
    }

    pub(crate) fn lanes(&self) -> &Arc<Lanes> {
        &self.lanes
    }
}

/// An operation that has entered: it has its receipt, one session, and knows whether this is the receipt's host.
pub(crate) struct Entered {
    pub(crate) reference: Reference,
    pub(crate) names: Names,
    pub(crate) receipt: Option<Receipt>,
    pub(crate) session: Session,
    /// The present host_id, when it is the recorded one.
    pub(crate) host_id: Option<Digest>,
    pub(crate) boot: Option<BootId>,
}

impl Entered {
    /// Whether the present host is the one that is recorded and that the receipt, if any, was made on.
    pub(crate) fn same_host(&self) -> bool {
        match (&self.receipt, self.host_id) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(receipt), present) => receipt.host_id.0 == present,
        }
    }

    /// INV-V25: on another host nothing is done.
    pub(crate) fn require_same_host(&self) -> Result<(), Failure> {
        if self.same_host() {
            Ok(())
        } else {
            Err(Failure::Unconfirmed(Cause::new(
                "this is another host than the recorded one; see oac-node doctor and rebind-host",
            )))
        }
    }
}

impl Inner {
    pub(crate) fn names(&self, reference: &Reference) -> Names {
        Names::of(self.installation, reference)
    }

    /// Reads the receipt; a bad one makes every operation of its reference unconfirmed.
    pub(crate) async fn receipt(&self, reference: Reference) -> Result<Option<Receipt>, Failure> {
        let receipts = self.receipts.clone();
        blocking(move || receipts.read(&reference))
            .await?
            .map_err(unconfirmed)
    }

    pub(crate) async fn store(&self, receipt: Receipt) -> Result<(), Failure> {
        let receipts = self.receipts.clone();
        blocking(move || receipts.replace(&receipt))
            .await?
            .map_err(unconfirmed)
    }

    pub(crate) async fn enter(&self, reference: Reference) -> Result<Entered, Failure> {
        let receipt = self.receipt(reference).await?;
        self.enter_with(reference, receipt).await
    }

    pub(crate) async fn enter_with(
        &self,
        reference: Reference,
        receipt: Option<Receipt>,
    ) -> Result<Entered, Failure> {
        let session = self.engine.session().await.map_err(unconfirmed)?;
        let current = self.host.current(session.engine_id());
        Ok(Entered {
            reference,
            names: self.names(&reference),
            receipt,
            session,
            host_id: current.filter(|c| self.host.recorded() == Some(*c)),
            boot: self.host.boot_id(),
        })
    }

    /// The generation's image as the engine knows it.
    pub(crate) async fn image(&self, session: &mut Session) -> Result<Option<Image>, EngineError> {
        if let Some(image) = self.image.lock().clone() {
            return Ok(Some(image));
        }
        let path = format!("/images/{}/json", self.options.image);
        let image = session.get::<Image>(&path).await?;
        self.image.lock().clone_from(&image);
        Ok(image)
    }

    /// The answer of `info`, with what it establishes stored first.
    pub(crate) async fn info(&self, reference: Reference) -> Result<Info, Failure> {
        let mut entered = self.enter(reference).await?;
        self.look(&mut entered).await
    }

    pub(crate) async fn look(&self, entered: &mut Entered) -> Result<Info, Failure> {
        let inventory = Inventory::take(&mut entered.session, &entered.names)
            .await
            .map_err(inventory_failure)?;
        let decision = Facts {
            reference: entered.reference,
            names: &entered.names,
            receipt: entered.receipt.as_ref(),
            inventory: &inventory,
            same_host: entered.same_host(),
            boot: entered.boot,
            steady: self.engine.is_steady(),
        }
        .decide();
        let info = match decision.verdict {
            Verdict::Known(info) => info,
            Verdict::NotFound => return Err(Failure::NotFound),
            Verdict::Unconfirmed(why) => return Err(Failure::Unconfirmed(Cause::new(why))),
        };
        let live = inventory.containers.iter().find(|c| c.is_live());
        if let Some(container) = live {
            let image = self.image(&mut entered.session).await.map_err(unconfirmed)?;
            let image =
                image.ok_or_else(|| Failure::Invalid(Cause::new("the container's image is missing")))?;
            let wrong = self.options.mismatches(container, &image, &entered.names);
            if !wrong.is_empty() {
                return Err(Failure::Invalid(Cause::new(format!(
                    "the container differs in {}",
                    wrong.join(", ")
                ))));
            }
        }
        if let Some(receipt) = decision.store {
            self.store(receipt.clone()).await?;
            entered.receipt = Some(receipt);
        }
        Ok(info)
    }
}

/// Runs disk work where it may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| Failure::Unconfirmed(Cause::new(e)))
}

/// An error and its causes in one line, for the node's own log.
pub(crate) fn cause(error: impl std::error::Error) -> Cause {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    Cause::new(text)
}

pub(crate) fn unconfirmed(error: impl std::error::Error) -> Failure {
    Failure::Unconfirmed(cause(error))
}

pub(crate) fn inventory_failure(error: InventoryError) -> Failure {
    match error {
        InventoryError::Foreign(_) => Failure::Ownership(cause(error)),
        _ => Failure::Unconfirmed(cause(error)),
    }
}

fn late(error: NoAnswer) -> Failure {
    Failure::Unconfirmed(cause(error))
}

#[async_trait::async_trait]
impl Provider for DockerProvider {
    fn declarations(&self) -> &Declarations {
        self.registered.declarations()
    }

    async fn probe(&self, by: Instant) -> Result<(), ProbeError> {
        self.inner.probe(by).await
    }

    async fn diagnose(&self, by: Instant) -> Vec<ProbeError> {
        self.inner.diagnose(by).await
    }

    async fn create(&self, b: &Bootstrap, by: Instant) -> Result<Info, CreateFailure> {
        let (inner, bootstrap) = (self.inner.clone(), b.clone());
        let work = async move { inner.create(bootstrap).await };
        match self.lanes.run(b.reference, by, work).await {
            Ok(result) => result,
            Err(error) => Err(late(error).into()),
        }
    }

    async fn info(&self, r: &Reference, by: Instant) -> Result<Info, Failure> {
        let (inner, reference) = (self.inner.clone(), *r);
        let work = async move { inner.info(reference).await };
        self.lanes.run(reference, by, work).await.map_err(late)?
    }

    /// Docker sandboxes have no lease: renew is info.
    async fn renew(&self, r: &Reference, by: Instant) -> Result<Info, Failure> {
        self.info(r, by).await
    }

    async fn kill(&self, r: &Reference, by: Instant) -> Result<(), Failure> {
        let (inner, reference) = (self.inner.clone(), *r);
        let work = async move { inner.kill(reference).await };
        self.lanes.run(reference, by, work).await.map_err(late)?
    }

    async fn command(&self, r: &Reference, c: &Command, by: Instant) -> Result<CommandResult, Failure> {
        let (inner, reference, command) = (self.inner.clone(), *r, c.clone());
        let work = async move { inner.command(reference, command, by).await };
        match self.lanes.run(reference, by, work).await {
            Ok(result) => result,
            // Never started: the command certainly did not run, but the caller learns no more than its budget's end.
            Err(error @ NoAnswer::NotStarted) => Err(late(error)),
            Err(error) => Err(Failure::CommandUnconfirmed(cause(error))),
        }
    }

    async fn observe(&self, r: &Reference, o: &Observation, by: Instant) -> Result<Sample, Failure> {
        if o.instance.provider_key != self.inner.installation {
            return Err(Failure::Ownership(Cause::new(
                "provider_key is another installation's",
            )));
        }
        let (inner, reference) = (self.inner.clone(), *r);
        let work = async move { inner.observe(reference).await };
        match self.lanes.run(reference, by, work).await {
            Ok(result) => result,
            Err(error) => Err(Failure::ObservationUnavailable(cause(error))),
        }
    }

    async fn idle(&self, r: &Reference) {
        self.lanes.idle(*r).await;
    }

    async fn sweep(&self) -> Result<SweepReport, Failure> {
        self.sweep_tombstones().await
    }
}
