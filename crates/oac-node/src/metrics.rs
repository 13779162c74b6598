//! What the node counts, for `--metrics-listen` (node.md section 1).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
    },
    time::Instant,
};

use oac_peer::Outcome;
use oac_telemetry::{Counter, Gauges, Histogram, Set};
use oac_wire::shapes::Operation;

/// From a call inside the host to one that waits for an image.
const OPERATION_BOUNDS: &[f64] = &[
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
];

oac_telemetry::table! {
    /// Every metric of a node. The guide, the dashboard and the alert rules are checked against it.
    pub fn table;
    CONNECTED: Gauge "oac_node_connected" []
        "1 while Core has welcomed this node's connection, else 0.";
    PROVIDER_READY: Gauge "oac_node_provider_ready" []
        "1 when the sandbox backend answered its last probe, else 0.";
    OPERATIONS_RUNNING: Gauge "oac_node_operations_running" []
        "Operations at work now.";
    BUILD_INFO: Gauge "oac_node_build_info" ["version"]
        "Always 1; its label is the version of this node program.";
    DIALS: Counter "oac_node_dials_total" ["outcome"]
        "Attempts to connect to Core: welcomed, refused (Core answered 401), failed (not reached, or it refused otherwise).";
    OPERATIONS: Counter "oac_node_operations_total" ["operation", "outcome"]
        "Operations that ended: ok, or the code that Core was told.";
    OPERATION_SECONDS: Histogram(OPERATION_BOUNDS) "oac_node_operation_seconds" ["operation"]
        "How long operations took.";
    TRACE_SPANS: Counter "oac_node_trace_spans_total" ["outcome"]
        "Spans by what became of them: sent, overflowed (dropped, the collector is slow or away), not_taken (refused, not reached in time, or too late).";
}

/// How an attempt to connect ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dial {
    Welcomed,
    Refused,
    Failed,
}

/// The counters of one node. Clones count together.
#[derive(Debug, Clone)]
pub struct Metrics {
    set: Set,
    dials: Counter<1>,
    operations: Counter<2>,
    operation_seconds: Histogram<1>,
    trace_spans: Counter<1>,
    now: Arc<Now>,
}

#[derive(Debug, Default)]
struct Now {
    connected: AtomicBool,
    provider_ready: AtomicBool,
    running: AtomicI64,
}

impl Default for Metrics {
    fn default() -> Self {
        let set = Set::default();
        Self {
            dials: set.counter(&DIALS),
            operations: set.counter(&OPERATIONS),
            operation_seconds: set.histogram(&OPERATION_SECONDS),
            trace_spans: set.counter(&TRACE_SPANS),
            now: Arc::default(),
            set,
        }
    }
}

impl Metrics {
    /// One scrape.
    pub fn text(&self) -> String {
        let mut gauges = Gauges::default();
        let flag = |yes: &AtomicBool| if yes.load(Relaxed) { 1.0 } else { 0.0 };
        gauges.one(&CONNECTED, flag(&self.now.connected));
        gauges.one(&PROVIDER_READY, flag(&self.now.provider_ready));
        gauges.one(&OPERATIONS_RUNNING, self.now.running.load(Relaxed) as f64);
        gauges.many(&BUILD_INFO, [([env!("CARGO_PKG_VERSION").to_owned()], 1.0)]);
        self.set.text(gauges)
    }

    /// What counts spans.
    pub(crate) fn trace_spans(&self) -> Counter<1> {
        self.trace_spans.clone()
    }

    pub(crate) fn dialed(&self, dial: Dial) {
        let outcome = match dial {
            Dial::Welcomed => "welcomed",
            Dial::Refused => "refused",
            Dial::Failed => "failed",
        };
        self.dials.inc([outcome]);
        if matches!(dial, Dial::Welcomed) {
            self.now.connected.store(true, Relaxed);
        }
    }

    pub(crate) fn disconnected(&self) {
        self.now.connected.store(false, Relaxed);
    }

    pub(crate) fn probed(&self, ready: bool) {
        self.now.provider_ready.store(ready, Relaxed);
    }

    /// Counts an operation while it works, and how it ended.
    pub(crate) async fn operated(
        &self,
        operation: Operation,
        work: impl Future<Output = Outcome>,
    ) -> Outcome {
        let began = Instant::now();
        let running = Running::begin(&self.now.running);
        let outcome = work.await;
        drop(running);
        self.operations.inc([operation.as_str(), told(&outcome)]);
        self.operation_seconds
            .observe([operation.as_str()], began.elapsed());
        outcome
    }
}

/// What Core is told of an outcome, in one word.
pub(crate) fn told(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Success(_) => "ok",
        Outcome::Unsupported(_) => "unsupported",
        Outcome::Failed { code, .. } => code.as_str(),
    }
}

/// Counts down also when the operation's task breaks.
struct Running<'a>(&'a AtomicI64);

impl<'a> Running<'a> {
    fn begin(count: &'a AtomicI64) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
