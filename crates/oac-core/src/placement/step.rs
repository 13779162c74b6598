//! What a trace says of one placement.

use oac_lifecycle::placement::Answer;
use oac_telemetry::traces::Span;

use super::{Demand, PlaceError, Placed};
use crate::{Core, metrics::labels};

/// The step that places one demand, until it is stored or known not to be. Whatever ends it otherwise, it failed.
pub(crate) struct Step {
    span: Span,
    failed: bool,
}

impl Step {
    pub(crate) fn begin(core: &Core, demand: &Demand) -> Self {
        let mut span = core.traces.step(&demand.parent, ["placement", "new"]);
        span.set("oac.session_id", demand.session_id.as_uuid());
        Self { span, failed: true }
    }

    /// What is about to be stored comes from this step. Call it before the commit: a worker may call for the sandbox as
    /// soon as that is done.
    pub(crate) fn stores(&self, core: &Core, placed: &Placed) {
        core.traces.begot(&self.span, placed.allocation_id.as_uuid());
    }

    /// `transaction` stores it, perhaps with others.
    pub(crate) fn shares(&self, transaction: &mut Span) {
        transaction.serves(&self.span);
    }

    pub(crate) fn stored(&mut self, placed: &Placed) {
        self.failed = false;
        let answer = Answer::Node {
            id: placed.node_id,
            pin: placed.placement.generation,
        };
        self.span.set("oac.answer", labels::answer(answer));
        self.span.set("oac.allocation_id", placed.allocation_id.as_uuid());
        self.span.set("oac.node_id", placed.node_id.as_uuid());
    }

    /// Another one had stored what this was to store.
    pub(crate) fn was_needless(&mut self) {
        self.failed = false;
    }

    pub(crate) fn refused(&mut self, error: &PlaceError) {
        if let PlaceError::Refused(answer) = error {
            self.span.set("oac.answer", labels::answer(*answer));
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if self.failed {
            self.span.failed();
        }
    }
}
