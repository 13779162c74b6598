//! Traces: which step of one piece of work took how long, for a collector that speaks OTLP over HTTP.
//!
//! It must guarantee three things. Work never waits for a collector and never fails with it: an ended span goes into a
//! queue of [`QUEUE`] that one task empties, and what has no room there, or what the collector does not take, is dropped
//! and counted. No secret and no text of anybody else gets out: a name and the value of an attribute are texts of the
//! program itself, ids and numbers, by their types. And the spans of both ends of one call meet although its frame has
//! no room for a trace's context: both take it from the request's id, which they share ([`Tracer::calls`],
//! [`Tracer::called`]).
//!
//! Whether a trace is kept follows from the id of the sandbox it is about, so that both ends decide alike and a sandbox is
//! followed on its whole way or not at all.
//!
//! Refused alternatives: the SDK of OpenTelemetry, whose queue tells nobody how much it dropped and whose attributes take
//! any text; spans made from the lines of the log, which one recorder would take from all programs in one process.

mod endpoint;
mod export;
mod origins;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Instant, SystemTime},
};

use parking_lot::Mutex;
use tokio::sync::mpsc::{self, error::TrySendError};
use uuid::Uuid;

use crate::Counter;
pub use endpoint::{Endpoint, EndpointError};
pub use export::Export;
use origins::Origins;

/// Ended spans that wait for the collector.
pub const QUEUE: usize = 4096;

/// Where spans go, and of how many sandboxes.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub endpoint: Endpoint,
    pub sample_ratio: Ratio,
}

/// A share, from 0 (none) to 1 (all).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio(f64);

/// A share below 0, above 1, or no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a number from 0 to 1")]
pub struct RatioError;

/// Bits of an id that decide whether it is kept. The first 48 of a random UUID are all random.
const DECIDING_BITS: u32 = 48;

impl Ratio {
    pub const ALL: Self = Self(1.0);

    pub fn new(share: f64) -> Result<Self, RatioError> {
        (0.0..=1.0)
            .contains(&share)
            .then_some(Self(share))
            .ok_or(RatioError)
    }

    /// The same answer for the same id, in every program with the same share.
    fn keeps(self, id: Uuid) -> bool {
        let deciding = (id.as_u128() >> (u128::BITS - DECIDING_BITS)) as f64;
        deciding < self.0 * (1_u64 << DECIDING_BITS) as f64
    }
}

impl std::str::FromStr for Ratio {
    type Err = RatioError;

    fn from_str(text: &str) -> Result<Self, RatioError> {
        Self::new(text.parse().map_err(|_| RatioError)?)
    }
}

/// Who sends spans. Sent with each batch.
#[derive(Debug, Clone)]
pub struct Program {
    /// `service.name`.
    pub name: &'static str,
    pub version: &'static str,
    /// `service.instance.id`: which of several.
    pub instance: Uuid,
}

/// The value of an attribute: nothing that came from outside fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    Text(&'static str),
    Id(Uuid),
    Number(i64),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(text)
    }
}

impl From<Uuid> for Value {
    fn from(id: Uuid) -> Self {
        Self::Id(id)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

/// Two words: what is done, and to what. They are shown with a space between them.
pub type Name = [&'static str; 2];

/// Records spans, or nothing when traces are off, which is the default. Clones record together.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Recorder>>);

struct Recorder {
    queue: mpsc::Sender<Ended>,
    ratio: Ratio,
    spans: Counter<1>,
    origins: Mutex<Origins>,
}

/// What becomes of spans, as the counter's label says.
mod outcome {
    /// The collector took it.
    pub(super) const SENT: [&str; 1] = ["sent"];
    /// The queue was full: the collector is slow or away.
    pub(super) const OVERFLOWED: [&str; 1] = ["overflowed"];
    /// The collector refused it, was not reached in time, or is sent nothing any more.
    pub(super) const NOT_TAKEN: [&str; 1] = ["not_taken"];
}

/// One trace, as long as spans of it are open.
struct Trace {
    id: Uuid,
    /// Whether its spans are sent. It may become so until they end, when a kept sandbox turns out to be what it is about.
    kept: AtomicBool,
}

/// Names one span among all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Context {
    trace: Uuid,
    span: [u8; 8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Internal,
    Server,
    Client,
}

/// A step of work that goes on. Dropped, it has ended.
#[derive(Default)]
#[must_use = "a span ends when it is dropped"]
pub struct Span(Option<Box<Open>>);

struct Open {
    recorder: Arc<Recorder>,
    trace: Arc<Trace>,
    began: Instant,
    ended: Ended,
}

#[derive(Debug)]
struct Ended {
    context: Context,
    parent: Option<[u8; 8]>,
    name: Name,
    kind: Kind,
    began: SystemTime,
    took: std::time::Duration,
    attributes: Vec<(&'static str, Value)>,
    links: Vec<Context>,
    failed: bool,
}

/// The step that later ones are part of; it may have ended before them. The default is none.
#[derive(Clone, Default)]
pub struct Parent(Option<(Arc<Trace>, [u8; 8])>);

impl fmt::Debug for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Parent").field(&self.0.is_some()).finish()
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tracer").field(&self.0.is_some()).finish()
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Span")
            .field(&self.0.as_ref().map(|open| &open.ended))
            .finish()
    }
}

impl Tracer {
    /// A tracer whose spans [`Export`] sends while it is awaited. `spans` counts what becomes of each, by its one label.
    /// Without settings it records nothing.
    pub fn new(settings: Option<Settings>, program: Program, spans: Counter<1>) -> (Self, Export) {
        let Some(Settings {
            endpoint,
            sample_ratio,
        }) = settings
        else {
            return (Self::default(), Export::default());
        };
        let (queue, ended) = mpsc::channel(QUEUE);
        let recorder = Recorder {
            queue,
            ratio: sample_ratio,
            spans: spans.clone(),
            origins: Mutex::default(),
        };
        (
            Self(Some(Arc::new(recorder))),
            Export::to(endpoint, program, ended, spans),
        )
    }

    /// Work that somebody outside asked for: the first span of a trace of its own.
    pub fn asked(&self, name: Name) -> Span {
        self.first(name, Kind::Server)
    }

    /// A step of what `parent` names, or the first of a trace of its own.
    pub fn step(&self, parent: &Parent, name: Name) -> Span {
        match (&self.0, &parent.0) {
            (Some(recorder), Some((trace, span))) => Span::open(
                recorder,
                trace.clone(),
                random_span(),
                Some(*span),
                name,
                Kind::Internal,
            ),
            _ => self.first(name, Kind::Internal),
        }
    }

    /// Work for several steps at once: the first span of a trace of its own, which is sent when a step that it
    /// [serves](Span::serves) is.
    pub fn shared(&self, name: Name) -> Span {
        self.first_of(name, Kind::Internal, |_, _| false)
    }

    fn first(&self, name: Name, kind: Kind) -> Span {
        self.first_of(name, kind, Ratio::keeps)
    }

    fn first_of(&self, name: Name, kind: Kind, keeps: fn(Ratio, Uuid) -> bool) -> Span {
        let Some(recorder) = &self.0 else {
            return Span::default();
        };
        let id = Uuid::new_v4();
        let trace = Arc::new(Trace {
            id,
            kept: AtomicBool::new(keeps(recorder.ratio, id)),
        });
        Span::open(recorder, trace, random_span(), None, name, kind)
    }

    /// The sandbox exists because of `span`: what is done for it from now on is linked to that, for as long as this
    /// program remembers; and when the sandbox is kept, so is the trace.
    pub fn begot(&self, span: &Span, sandbox: Uuid) {
        if let (Some(recorder), Some(open)) = (&self.0, &span.0)
            && recorder.ratio.keeps(sandbox)
        {
            open.trace.kept.store(true, Relaxed);
            recorder.origins.lock().remember(sandbox, open.ended.context);
        }
    }

    /// A call for a sandbox, on the side that makes it: the first span of the trace that `request` names.
    pub fn calls(&self, name: Name, request: Uuid, sandbox: Uuid) -> Span {
        let mut span = self.of_call(
            name,
            Kind::Client,
            request,
            sandbox,
            (calling_span(request), None),
        );
        if let (Some(recorder), Some(open)) = (&self.0, &mut span.0) {
            open.ended.links.extend(recorder.origins.lock().of(sandbox));
        }
        span
    }

    /// The same call on the side that answers it.
    pub fn called(&self, name: Name, request: Uuid, sandbox: Uuid) -> Span {
        let own = (random_span(), Some(calling_span(request)));
        self.of_call(name, Kind::Server, request, sandbox, own)
    }

    fn of_call(
        &self,
        name: Name,
        kind: Kind,
        request: Uuid,
        sandbox: Uuid,
        (own, parent): ([u8; 8], Option<[u8; 8]>),
    ) -> Span {
        let Some(recorder) = self.0.as_ref().filter(|r| r.ratio.keeps(sandbox)) else {
            return Span::default();
        };
        let trace = Arc::new(Trace {
            id: request,
            kept: AtomicBool::new(true),
        });
        Span::open(recorder, trace, own, parent, name, kind)
    }
}

/// The calling side's span of a request. The first half of a UUID of version 4 is never zero.
fn calling_span(request: Uuid) -> [u8; 8] {
    halves(request).0
}

/// The second half of a UUID of version 4 is never zero either.
fn random_span() -> [u8; 8] {
    halves(Uuid::new_v4()).1
}

fn halves(id: Uuid) -> ([u8; 8], [u8; 8]) {
    let (high, low) = id.as_u64_pair();
    (high.to_be_bytes(), low.to_be_bytes())
}

impl Span {
    fn open(
        recorder: &Arc<Recorder>,
        trace: Arc<Trace>,
        own: [u8; 8],
        parent: Option<[u8; 8]>,
        name: Name,
        kind: Kind,
    ) -> Self {
        let context = Context {
            trace: trace.id,
            span: own,
        };
        Self(Some(Box::new(Open {
            recorder: recorder.clone(),
            trace,
            began: Instant::now(),
            ended: Ended {
                context,
                parent,
                name,
                kind,
                began: SystemTime::now(),
                took: std::time::Duration::ZERO,
                attributes: Vec::new(),
                links: Vec::new(),
                failed: false,
            },
        })))
    }

    /// Says something about the step. Set each name once.
    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        if let Some(open) = &mut self.0 {
            open.ended.attributes.push((name, value.into()));
        }
    }

    /// This is done for `step` too, which decided already whether it is kept: if so, this is linked to it and kept with it.
    pub fn serves(&mut self, step: &Self) {
        if let (Some(open), Some(step)) = (&mut self.0, &step.0)
            && step.trace.kept.load(Relaxed)
        {
            open.trace.kept.store(true, Relaxed);
            open.ended.links.push(step.ended.context);
        }
    }

    /// The step did not do what it was for.
    pub fn failed(&mut self) {
        if let Some(open) = &mut self.0 {
            open.ended.failed = true;
        }
    }

    /// For steps within this one.
    pub fn parent(&self) -> Parent {
        Parent(
            self.0
                .as_ref()
                .map(|open| (open.trace.clone(), open.ended.context.span)),
        )
    }

    /// A call out of the program that is part of this step.
    pub fn call(&self, name: Name) -> Self {
        match &self.0 {
            Some(open) => Self::open(
                &open.recorder,
                open.trace.clone(),
                random_span(),
                Some(open.ended.context.span),
                name,
                Kind::Client,
            ),
            None => Self::default(),
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let Some(open) = self.0.take() else { return };
        let Open {
            recorder,
            trace,
            began,
            mut ended,
        } = *open;
        if !trace.kept.load(Relaxed) {
            return;
        }
        ended.took = began.elapsed();
        match recorder.queue.try_send(ended) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => recorder.spans.inc(outcome::OVERFLOWED),
            // The last words were said.
            Err(TrySendError::Closed(_)) => recorder.spans.inc(outcome::NOT_TAKEN),
        }
    }
}

#[cfg(test)]
mod tests;
