//! The dispatcher of Turns and the follower of their output.
//!
//! Guarantees: at most one Turn of a Session runs, in sequence order (INV-S1); a Turn is started at most once, whatever
//! answer is lost (INV-S2), and never sent to a second allocation (INV-S8); a terminal Turn never changes (INV-S3);
//! the bytes stored are exactly a prefix of the bytes written (INV-S4), and only stored or counted bytes are
//! acknowledged (INV-S5).
//!
//! The shape that guarantees it: everything that needs a sandbox happens in one driver per link ([`drive`]), which
//! converges what is stored with what the runtime reports. Every write is a transaction of [`ledger`] that locks the
//! Session or compares the offset it continues from, so that a driver that lives a moment too long changes nothing.
//! What needs no sandbox (admission, cancel of a waiting Turn, archive) is a function of `ledger` too, used by the
//! routes. Admission records the Turn as sent in its own transaction when the sandbox is linked and idle, and the
//! settling transaction does so for the next one; that is why a short command costs two transactions.
//!
//! Refused alternatives: a central dispatcher that scans for work, which costs a scan per command; a follower that
//! appends without comparing offsets and trusts that links never overlap.

mod acked;
mod batch;
mod drive;
mod follow;
pub(crate) mod ledger;
mod prune;
mod reconcile;
mod settle;
pub(crate) mod signals;

use std::sync::Arc;

use oac_model::{SessionId, TurnId};

use crate::{Core, task::Kind};
pub(crate) use drive::drive;
pub(crate) use settle::Settlement;
use signals::{Counts, Signals};

/// What readers of Turns wait for.
#[derive(Default)]
pub struct Turns {
    /// Output, or the end, of a Turn was stored.
    pub(crate) output: Signals<TurnId>,
    /// An event of a Session was stored.
    pub(crate) events: Signals<SessionId>,
    /// Open event streams.
    pub(crate) streams: Counts<SessionId>,
    acked: acked::Acked,
}

impl Turns {
    /// Wakes the readers of a Session's events and of these Turns' output, after a commit.
    pub fn notify(&self, session: SessionId, turns: &[TurnId]) {
        for turn in turns {
            self.output.notify(*turn);
        }
        self.events.notify(session);
    }
}

/// Starts this part's workers.
pub fn start(core: &Arc<Core>) {
    core.tasks
        .spawn(Kind::Worker, "pruning", prune::run(core.clone()));
    core.tasks
        .spawn(Kind::Worker, "acknowledgements", acked::run(core.clone()));
    core.tasks
        .spawn(Kind::Worker, "turn readers", wake_readers(core.clone()));
}

/// Whoever settles Turns without knowing their readers pokes; every reader then looks again.
async fn wake_readers(core: Arc<Core>) {
    loop {
        core.pokes.turns.notified().await;
        core.turns.output.notify_all();
        core.turns.events.notify_all();
    }
}
