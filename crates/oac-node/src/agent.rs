//! The node's one loop: an event is awaited, the state machine of `oac-peer` takes it, its actions are performed.
//!
//! Everything that takes time (a dial, a measurement, an operation) runs in a task and comes back as an event, so the
//! loop always reads, beats and notices budgets. The owner epoch is the exception: it is stored before anything else
//! is read (INV-P6).

use std::{collections::VecDeque, future::Future, pin::pin, sync::Arc};

use oac_model::Generation;
use oac_peer::{
    FailureCode, Outcome,
    node::{Action, Event, Exit, Job, Node, Reason, Refresh},
};
use oac_provider::Provider;
use oac_telemetry::traces::Tracer;
use parking_lot::Mutex;
use tokio::{
    task::AbortHandle,
    time::{Instant, sleep_until},
};

use crate::{
    clock::Clock,
    core::{CallError, Connection, CoreClient, DialError, Incoming},
    health,
    identity::{IdentityStore, Stored},
    limits::{MAINTENANCE, SHUTDOWN},
    managing::Managing,
    measure::Meter,
    metrics::{Dial, Metrics, told},
    operation,
    task::{Done, Engaged, Tasks},
};

pub(crate) struct Agent {
    node: Node,
    clock: Clock,
    core: CoreClient,
    store: Arc<IdentityStore>,
    stored: Stored,
    served: Served,
    tasks: Tasks,
    dial: Option<AbortHandle>,
    connection: Option<Box<Connection>>,
    /// Utilization is measured between two reports of one connection.
    meter: Arc<Mutex<Meter>>,
    metrics: Metrics,
    traces: Tracer,
}

/// What a node serves.
pub enum Served {
    /// The enrolled generation alone.
    Fixed(Arc<dyn Provider>),
    /// Every generation that the host holds.
    Managing(Box<Managing>),
}

impl From<Arc<dyn Provider>> for Served {
    fn from(provider: Arc<dyn Provider>) -> Self {
        Self::Fixed(provider)
    }
}

impl From<Managing> for Served {
    fn from(managing: Managing) -> Self {
        Self::Managing(Box::new(managing))
    }
}

impl Served {
    /// What runs an operation of `generation`; `None` where nothing of it is served now.
    fn engage(&mut self, generation: Generation) -> Option<Engaged> {
        match self {
            // The connection refuses every other generation.
            Self::Fixed(provider) => Some(Engaged {
                provider: provider.clone(),
                _kept: None,
            }),
            Self::Managing(managing) => managing.acquire(generation).map(|(provider, kept)| Engaged {
                provider,
                _kept: Some(kept),
            }),
        }
    }

    fn sweeper(&self) -> Option<Arc<dyn Provider>> {
        match self {
            Self::Fixed(provider) => Some(provider.clone()),
            Self::Managing(managing) => managing.sweeper(),
        }
    }
}

/// What the loop awaited.
enum Awaited {
    Stop,
    Wakeup,
    Maintenance,
    Done(Done),
    Incoming(Incoming),
}

impl Agent {
    pub(crate) fn new(
        core: CoreClient,
        store: Arc<IdentityStore>,
        stored: Stored,
        served: Served,
        operations: usize,
        (metrics, traces): (Metrics, Tracer),
    ) -> Self {
        let clock = core.clock.clone();
        let mut seed = [0; 8];
        if getrandom::fill(&mut seed).is_err() {
            seed = std::process::id()
                .to_le_bytes()
                .repeat(2)
                .try_into()
                .unwrap_or_default();
        }
        let node = Node::new(
            stored.identity.clone(),
            stored.owner_epoch,
            operations,
            u64::from_le_bytes(seed),
            clock.now(),
        );
        let node = match &served {
            Served::Fixed(_) => node,
            Served::Managing(managing) => node.managing(managing.table()),
        };
        let meter = Arc::new(Mutex::new(Meter::new(store.directory().path())));
        Self {
            node,
            clock,
            core,
            store,
            stored,
            served,
            tasks: Tasks::default(),
            dial: None,
            connection: None,
            meter,
            metrics,
            traces,
        }
    }

    /// Serves until `stop` or Core's confirmed 401.
    pub(crate) async fn run(mut self, stop: impl Future<Output = ()>) -> Exit {
        let mut stop = pin!(stop);
        let mut maintenance = Instant::now();
        let mut events: VecDeque<Event<'static>> = VecDeque::new();
        let clock = self.clock.clone();
        loop {
            let of_generations = match &self.served {
                Served::Fixed(_) => None,
                Served::Managing(managing) => Some(managing.next_wakeup()),
            };
            let wakeup = self.node.next_wakeup().into_iter().chain(of_generations).min();
            let awaited = tokio::select! {
                () = &mut stop => Awaited::Stop,
                done = self.tasks.next() => Awaited::Done(done),
                incoming = incoming(&mut self.connection) => Awaited::Incoming(incoming),
                () = clock.until(wakeup) => Awaited::Wakeup,
                () = sleep_until(maintenance) => Awaited::Maintenance,
            };
            match awaited {
                Awaited::Stop => events.push_back(Event::Stop),
                Awaited::Wakeup => {
                    if let Some(connection) = &self.connection {
                        events.push_back(Event::Bytes(connection.progress.heard()));
                    }
                    events.push_back(Event::Tick);
                }
                Awaited::Maintenance => {
                    maintenance = Instant::now() + MAINTENANCE;
                    self.maintain();
                }
                Awaited::Done(done) => events.extend(self.done(done)),
                Awaited::Incoming(Incoming::Text(text)) => {
                    if let Some(exit) = self.take(Event::Message(text.as_bytes())).await {
                        return exit;
                    }
                }
                Awaited::Incoming(Incoming::Unreadable) => events.push_back(Event::Unreadable),
                Awaited::Incoming(Incoming::Lost) => events.push_back(Event::Lost),
            }
            loop {
                while let Some(event) = events.pop_front() {
                    if let Some(exit) = self.take(event).await {
                        return exit;
                    }
                }
                match self.proceed() {
                    Some(changed) => events.push_back(changed),
                    None => break,
                }
            }
        }
    }

    /// The next step of a managing node's generations.
    fn proceed(&mut self) -> Option<Event<'static>> {
        let Served::Managing(managing) = &mut self.served else {
            return None;
        };
        let node = &self.node;
        let table = managing.proceed(self.clock.now(), &|g| node.works_on(g), &mut self.tasks);
        self.metrics.probed(managing.is_ready());
        table.map(Event::Generations)
    }

    /// One event and whatever its actions cause at once.
    async fn take(&mut self, event: Event<'_>) -> Option<Exit> {
        let mut actions = VecDeque::from(self.node.apply(event, self.clock.now()));
        while let Some(action) = actions.pop_front() {
            match action {
                Action::StoreEpoch(epoch) => {
                    let store = self.store.clone();
                    let result = tokio::task::spawn_blocking(move || store.store_epoch(epoch)).await;
                    let stored = matches!(result, Ok(Ok(())));
                    if let Ok(Err(error)) = result {
                        tracing::error!(event = "epoch_not_stored", error = %chain(&error), "the owner epoch could not be stored");
                    }
                    actions.extend(self.node.apply(Event::EpochStored(stored), self.clock.now()));
                }
                Action::Exit(exit) => return Some(self.exit(exit).await),
                Action::Send(text) => {
                    let queued = self.connection.as_ref().is_some_and(|c| c.send(text));
                    if !queued {
                        actions.extend(self.node.apply(Event::Lost, self.clock.now()));
                    }
                }
                Action::Dial => self.dial(),
                Action::Measure(attempt) => {
                    let meter = self.meter.clone();
                    match &self.served {
                        Served::Fixed(provider) => {
                            let report = health::report(provider.clone(), meter);
                            self.tasks
                                .errand(async move { Done::Measured(attempt, Box::new(report.await)) });
                        }
                        Served::Managing(_) => {
                            let report = health::report_of_host(meter);
                            self.tasks
                                .errand(async move { Done::Measured(attempt, Box::new(report.await)) });
                        }
                    }
                }
                Action::Accepted(connection_id, owner_epoch) => {
                    self.metrics.dialed(Dial::Welcomed);
                    tracing::info!(event = "core_connected", %connection_id, %owner_epoch, "connected to Core");
                    if let Served::Managing(managing) = &mut self.served {
                        managing.connected(connection_id);
                    }
                }
                Action::Deployment(deployment) => {
                    if let Served::Managing(managing) = &mut self.served {
                        managing.deployed(&deployment);
                    }
                }
                Action::Granted(from, references) => {
                    if let Served::Managing(managing) = &mut self.served {
                        managing.granted(from, &references);
                    }
                }
                Action::Close(reason) => self.close(&reason).await,
                Action::Refresh => self.refresh(),
                Action::Run(job) => {
                    let ticket = job.ticket;
                    if !self.start(job) {
                        for event in [
                            Event::Answered(ticket, Outcome::failed(FailureCode::Unconfirmed)),
                            Event::Ended(ticket),
                        ] {
                            actions.extend(self.node.apply(event, self.clock.now()));
                        }
                    }
                }
            }
        }
        None
    }

    fn dial(&mut self) {
        self.meter = Arc::new(Mutex::new(Meter::new(self.store.directory().path())));
        let core = self.core.clone();
        let (node_id, credential) = (self.stored.identity.node_id, self.stored.credential.clone());
        let dial = async move { Done::Dialed(core.dial(node_id, &credential).await.map(Box::new)) };
        self.dial = Some(self.tasks.errand(dial));
    }

    /// False where nothing serves the request's generation (INV-N20).
    #[must_use]
    fn start(&mut self, job: Job) -> bool {
        let Job {
            ticket,
            id,
            deadline,
            request,
        } = job;
        let Some(engaged) = self.served.engage(request.deployment_generation) else {
            return false;
        };
        let by = self.clock.instant(deadline);
        let metrics = self.metrics.clone();
        let operation = request.arguments.operation();
        let allocation = request.reference.allocation_id.as_uuid();
        let name = ["operation", operation.as_str()];
        let mut span = self.traces.called(name, id.as_uuid(), allocation);
        span.set("oac.operation", operation.as_str());
        span.set("oac.request_id", id.as_uuid());
        span.set("oac.allocation_id", allocation);
        let backend = self.stored.identity.provider.as_str();
        self.tasks.operation(ticket, async move {
            let mut call = span.call([backend, operation.as_str()]);
            let work = operation::run(&*engaged.provider, &request, by);
            let outcome = metrics.operated(operation, work).await;
            call.set("oac.answer", told(&outcome));
            if !matches!(outcome, Outcome::Success(_)) {
                call.failed();
            }
            drop(call);
            Done::Answered(ticket, request.reference, outcome, Box::new(engaged), span)
        });
        true
    }

    fn done(&mut self, done: Done) -> Option<Event<'static>> {
        match done {
            Done::Dialed(result) => {
                // A dial that was given up meanwhile has no handle any more.
                self.dial.take()?;
                Some(match result {
                    Ok(connection) => {
                        self.connection = Some(connection);
                        Event::Upgraded
                    }
                    Err(DialError::Refused) => {
                        self.metrics.dialed(Dial::Refused);
                        Event::Refused
                    }
                    Err(error) => {
                        self.metrics.dialed(Dial::Failed);
                        tracing::warn!(event = "core_unreachable", error = %chain(&error), "the connection to Core failed");
                        Event::DialFailed
                    }
                })
            }
            Done::Measured(attempt, health) => {
                if matches!(self.served, Served::Fixed(_)) {
                    self.metrics.probed(health.provider_ready);
                }
                Some(Event::Measured(attempt, health))
            }
            Done::Probed(generation, probed) => {
                if let Served::Managing(managing) = &mut self.served {
                    managing.probed(generation, probed, self.clock.now());
                }
                None
            }
            Done::Child(end) => {
                if let Served::Managing(managing) = &mut self.served {
                    managing.ended(*end, self.clock.now());
                }
                None
            }
            Done::Refreshed(refresh) => {
                if let Refresh::Confirmed { identity, .. } = &refresh {
                    self.stored.identity = (**identity).clone();
                }
                Some(Event::Refreshed(refresh))
            }
            Done::Answered(ticket, reference, outcome, engaged, span) => {
                self.tasks.operation(ticket, async move {
                    engaged.provider.idle(&reference).await;
                    // Native work may outlive its answer; the operation has ended now.
                    drop(span);
                    Done::Ended(ticket)
                });
                Some(Event::Answered(ticket, outcome))
            }
            Done::Ended(ticket) => Some(Event::Ended(ticket)),
            Done::Nothing => None,
        }
    }

    /// The identity file and GET identity, read again.
    fn refresh(&mut self) {
        let (core, store) = (self.core.clone(), self.store.clone());
        self.tasks.errand(async move {
            let refresh = match confirm(&core, store).await {
                Ok(stored) => Refresh::Confirmed {
                    stored_epoch: stored.owner_epoch,
                    identity: Box::new(stored.identity),
                },
                Err(ConfirmError::Call(CallError::Unauthorized)) => Refresh::Refused,
                Err(error) => {
                    tracing::warn!(event = "identity_unconfirmed", error = %chain(&error), "the identity could not be confirmed");
                    Refresh::Failed
                }
            };
            Done::Refreshed(refresh)
        });
    }

    fn maintain(&mut self) {
        let Some(provider) = self.served.sweeper() else {
            return;
        };
        self.tasks.errand(async move {
            match provider.sweep().await {
                Ok(report) if report.removed + report.left > 0 => {
                    tracing::info!(
                        removed = report.removed,
                        left = report.left,
                        "swept late leftovers"
                    );
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(event = "sweep_failed", error = %chain(&error), "the sweep failed; it is repeated"),
            }
            Done::Nothing
        });
    }

    async fn close(&mut self, reason: &Reason) {
        self.metrics.disconnected();
        if let Served::Managing(managing) = &mut self.served {
            managing.disconnected();
        }
        match reason {
            Reason::Stopping => tracing::info!("stopping"),
            reason => {
                tracing::warn!(event = "core_connection_ended", core = %self.core, reason = %chain(reason), "the connection to Core ended");
            }
        }
        if let Some(dial) = self.dial.take() {
            dial.abort();
        }
        if let Some(connection) = self.connection.take()
            && *reason == Reason::Stopping
        {
            connection.close().await;
        }
    }

    /// Starts nothing more; operations get 10 s, and their native work outlives the process.
    async fn exit(&mut self, exit: Exit) -> Exit {
        if let Served::Managing(managing) = &mut self.served {
            managing.stop();
        }
        if !self.tasks.finish(SHUTDOWN).await {
            tracing::warn!(
                event = "operations_left",
                "operations were still running; Core will observe what became of them"
            );
        }
        exit
    }
}

async fn incoming(connection: &mut Option<Box<Connection>>) -> Incoming {
    match connection {
        Some(connection) => connection.next().await,
        None => std::future::pending().await,
    }
}

/// Why an identity is not confirmed.
#[derive(Debug, thiserror::Error)]
pub enum ConfirmError {
    #[error("GET identity failed")]
    Call(#[source] CallError),
    #[error("the stored identity cannot be used")]
    Store(#[source] crate::identity::IdentityError),
}

/// GET identity, and the capacity that Core has stored.
pub(crate) async fn confirm(core: &CoreClient, store: Arc<IdentityStore>) -> Result<Stored, ConfirmError> {
    let load = {
        let store = store.clone();
        blocking(move || store.load()).await
    };
    let stored = load
        .and_then(|stored| stored.ok_or(crate::identity::IdentityError::Missing))
        .map_err(ConfirmError::Store)?;
    let confirmed = core
        .identity(&stored.identity, &stored.credential)
        .await
        .map_err(ConfirmError::Call)?;
    blocking(move || store.store_capacity(confirmed.max_active, confirmed.max_retained))
        .await
        .map_err(ConfirmError::Store)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// An error and its causes on one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
