//! What Core measures about itself (core.md section 16), at `/metrics` of a listener of its own.
//!
//! A scrape costs a bounded amount however large the installation is: what happens is counted as it happens; what is
//! stored is read in one snapshot without a lock, by one reader at a time, at most every [`READ_AGE`], within
//! [`READ_WAIT`], and answered from memory in between; and no more than [`NODE_SERIES`] nodes have series of their own. When
//! the database does not answer, what it would have said is left out, and `oac_core_store_up` is 0: an old number would
//! look like a fresh one. A Core that stands by reads nothing and says `oac_core_owner 0`, so that sums over all Cores
//! count each thing once.

pub(crate) mod labels;
mod stored;
pub(crate) mod table;

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    extract::{FromRequestParts, MatchedPath, Request, State},
    http::{Extensions, request::Parts},
    middleware::Next,
    response::Response,
};
use oac_lifecycle::placement::Answer;
use oac_peer::Moment;
use oac_telemetry::{
    Counter, Gauges, Histogram, Set,
    traces::{self, Export, Parent, Tracer},
};
use oac_wire::shapes::Operation;
use tokio::{net::TcpListener, sync::Mutex};

use crate::{Core, http::error::Chain, hub::CallOutcome, task::Kind};

pub use table::table;

/// What was read is answered again for this long.
const READ_AGE: Duration = Duration::from_secs(5);
/// How long a scrape waits for the database.
const READ_WAIT: Duration = Duration::from_secs(5);
/// Nodes with series of their own: the oldest so many.
pub const NODE_SERIES: usize = 10_000;

/// The last answer of the database.
struct Answered {
    stored: Arc<stored::Stored>,
    young_until: Moment,
}

/// The counters of one Core. Clones count together.
#[derive(Clone)]
pub struct Metrics {
    set: Set,
    placements: Counter<1>,
    operations: Counter<2>,
    operation_seconds: Histogram<1>,
    http_requests: Counter<3>,
    http_seconds: Histogram<1>,
    trace_spans: Counter<1>,
    read: Arc<Mutex<Option<Answered>>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let set = Set::default();
        Self {
            placements: set.counter(&table::PLACEMENTS),
            operations: set.counter(&table::OPERATIONS),
            operation_seconds: set.histogram(&table::OPERATION_SECONDS),
            http_requests: set.counter(&table::HTTP_REQUESTS),
            http_seconds: set.histogram(&table::HTTP_SECONDS),
            trace_spans: set.counter(&table::TRACE_SPANS),
            read: Arc::default(),
            set,
        }
    }
}

impl Metrics {
    /// What records spans, counted here, and what sends them.
    pub(crate) fn traces(&self, settings: Option<traces::Settings>) -> (Tracer, Export) {
        let program = traces::Program {
            name: "oac-core",
            version: env!("CARGO_PKG_VERSION"),
            instance: uuid::Uuid::new_v4(),
        };
        Tracer::new(settings, program, self.trace_spans.clone())
    }

    pub(crate) fn placed(&self, answer: Answer) {
        self.placements.inc([labels::answer(answer)]);
    }

    /// An operation ended that took so long; only what was sent is timed.
    pub(crate) fn operated(&self, operation: Operation, outcome: &CallOutcome, took: Duration) {
        self.operations.inc([operation.as_str(), outcome.as_str()]);
        if !matches!(outcome, CallOutcome::Unsupported | CallOutcome::Unavailable) {
            self.operation_seconds.observe([operation.as_str()], took);
        }
    }

    /// What the database says, or the last answer when that is young; `None` when it does not say.
    async fn stored(&self, core: &Core) -> Option<Arc<stored::Stored>> {
        let mut last = self.read.lock().await;
        let clock = core.hub.clock();
        if let Some(last) = &*last
            && clock.now() < last.young_until
        {
            return Some(last.stored.clone());
        }
        *last = None;
        let read = tokio::time::timeout(READ_WAIT, stored::Stored::read(core)).await;
        let stored = match read {
            Ok(Ok(stored)) => Arc::new(stored),
            Ok(Err(error)) => {
                tracing::warn!(event = "metrics_incomplete", error = %Chain(&error), "metrics leave out what is stored");
                return None;
            }
            Err(_) => {
                tracing::warn!(
                    event = "metrics_incomplete",
                    "metrics leave out what is stored: the database did not answer in time"
                );
                return None;
            }
        };
        *last = Some(Answered {
            stored: stored.clone(),
            young_until: clock.now().plus_millis(READ_AGE.as_millis() as u64),
        });
        Some(stored)
    }
}

/// One scrape.
pub async fn text(core: &Core) -> String {
    let mut gauges = Gauges::default();
    let ownership = core.owner.ownership();
    let flag = |yes: bool| if yes { 1.0 } else { 0.0 };
    gauges.one(&table::OWNER, flag(ownership.is_some()));
    let epoch = ownership.map_or(0, |ownership| ownership.epoch.get());
    gauges.one(&table::OWNER_EPOCH, epoch as f64);
    gauges.one(&table::LINKS, core.links.count() as f64);
    core.releases.show(&mut gauges);
    let version = [env!("CARGO_PKG_VERSION").to_owned()];
    gauges.many(&table::BUILD_INFO, [(version, 1.0)]);
    if ownership.is_some() {
        let stored = core.metrics.stored(core).await;
        gauges.one(&table::STORE_UP, flag(stored.is_some()));
        if let Some(stored) = stored {
            stored.show(&mut gauges);
        }
    }
    core.metrics.set.text(gauges)
}

/// Counts and traces a request under its route's template, whoever answers it.
pub(crate) async fn count(State(core): State<Arc<Core>>, mut request: Request, next: Next) -> Response {
    let route = labels::route(request.extensions().get::<MatchedPath>());
    let method = labels::method(request.method());
    let began = Instant::now();
    let mut span = core.traces.asked([method, route]);
    request.extensions_mut().insert(span.parent());
    let response = next.run(request).await;
    let status = labels::status(response.status());
    span.set("http.request.method", method);
    span.set("http.route", route);
    span.set("http.response.status_code", i64::from(response.status().as_u16()));
    if response.status().is_server_error() {
        span.failed();
    }
    core.metrics.http_requests.inc([route, method, status]);
    core.metrics.http_seconds.observe([route], began.elapsed());
    response
}

/// The request that is being answered, for the steps it asks for.
pub(crate) struct Asked(pub(crate) Parent);

impl<S: Send + Sync> FromRequestParts<S> for Asked {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions))
    }
}

impl Asked {
    /// Of a request with these extensions.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        Self(extensions.get().cloned().unwrap_or_default())
    }
}

/// Answers scrapes on `listener` until Core stops.
pub fn serve(core: &Arc<Core>, listener: TcpListener) {
    let core_ = core.clone();
    core.tasks.spawn(Kind::Worker, "metrics", async move {
        match oac_telemetry::serve(listener, || text(&core_)).await {}
    });
}
