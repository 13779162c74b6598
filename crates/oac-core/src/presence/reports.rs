//! Reports on their way into shared transactions.
//!
//! One task at a time stores what waits. It begins at once when nothing was stored for a while, so that a lone report
//! waits for nobody; under load it begins one transaction every [`PACE`], or without a pause while more than one
//! transaction's worth waits.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use oac_peer::core::RecordFailure;
use oac_store::StoreError;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use super::{Answer, Report, Said, Subject, TRIES, record};
use crate::{Core, http::error::Chain, task::Kind};

/// From the begin of one transaction to that of the next, unless many reports wait.
const PACE: Duration = Duration::from_millis(50);
/// Reports of one transaction: what a statement of the store names at once.
const SHARING: usize = oac_store::limits::ROWS_PER_STATEMENT;

/// Reports that wait to be stored. A connection has one of each kind at most.
#[derive(Default)]
pub struct Reports {
    inner: Mutex<Inner>,
    /// A whole transaction's worth waits.
    full: Notify,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Waiting>,
    /// A task is storing.
    storing: bool,
    began: Option<Instant>,
}

struct Waiting {
    report: Report,
    answer: oneshot::Sender<Answer>,
}

/// Has a report stored, and answers what became of it.
pub(super) async fn stored(core: &Arc<Core>, subject: &Subject, said: Said) -> Answer {
    let (answer, answered) = oneshot::channel();
    let report = Report {
        subject: subject.clone(),
        said,
    };
    let reports = core.hub.reports();
    let idle = {
        let mut inner = reports.inner.lock();
        inner.waiting.push_back(Waiting { report, answer });
        if inner.waiting.len() == SHARING {
            reports.full.notify_one();
        }
        !std::mem::replace(&mut inner.storing, true)
    };
    if idle {
        let core_ = core.clone();
        core.tasks.spawn(Kind::Finish, "node reports", async move {
            let storing = Storing(core_.hub.reports());
            while let Some(batch) = storing.0.next().await {
                store(&core_, batch).await;
            }
            // The queue was found empty and given up under its lock.
            std::mem::forget(storing);
        });
    }
    // Whoever would have answered is gone only when Core is.
    answered.await.unwrap_or(Err(RecordFailure::Storage))
}

/// Lets another task store when this one panicked.
struct Storing<'a>(&'a Reports);

impl Drop for Storing<'_> {
    fn drop(&mut self) {
        self.0.inner.lock().storing = false;
    }
}

impl Reports {
    pub(crate) fn waiting(&self) -> usize {
        self.inner.lock().waiting.len()
    }

    /// The reports of the next transaction; `None` when nothing waits, and then storing is over.
    async fn next(&self) -> Option<Vec<Waiting>> {
        let due = {
            let mut inner = self.inner.lock();
            if inner.waiting.is_empty() {
                inner.storing = false;
                return None;
            }
            let full = inner.waiting.len() >= SHARING;
            inner.began.filter(|_| !full).map(|began| began + PACE)
        };
        if let Some(due) = due {
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                () = self.full.notified() => {}
            }
        }
        let mut inner = self.inner.lock();
        inner.began = Some(Instant::now());
        Some(inner.take())
    }
}

impl Inner {
    /// Reports in the order they came, of one owner epoch, and one of a node: what a node says next is about what this
    /// transaction makes of it.
    fn take(&mut self) -> Vec<Waiting> {
        let mut taken: Vec<Waiting> = Vec::new();
        let mut nodes = HashSet::new();
        let mut left = Vec::new();
        while taken.len() < SHARING
            && let Some(next) = self.waiting.pop_front()
        {
            let subject = &next.report.subject;
            let shares = taken
                .first()
                .is_none_or(|first| first.report.subject.ownership == subject.ownership);
            // A node's later report waits behind its earlier one, whatever that waits for.
            if nodes.insert(subject.node_id) && shares {
                taken.push(next);
            } else {
                left.push(next);
            }
        }
        for waiting in left.into_iter().rev() {
            self.waiting.push_front(waiting);
        }
        taken
    }
}

/// Stores reports and answers each.
async fn store(core: &Core, batch: Vec<Waiting>) {
    let (reports, waiting): (Vec<_>, Vec<_>) = batch.into_iter().map(|w| (w.report, w.answer)).unzip();
    let answers = match tried(core, &reports).await {
        Ok(answers) => answers,
        // One that the database refuses for what it says must not fail the others.
        Err(error) if !error.is_transient() && reports.len() > 1 => {
            let mut answers = Vec::new();
            for report in &reports {
                let alone = tried(core, std::slice::from_ref(report)).await;
                answers.extend(alone.unwrap_or_else(|_| vec![Err(RecordFailure::Storage)]));
            }
            answers
        }
        Err(_) => reports.iter().map(|_| Err(RecordFailure::Storage)).collect(),
    };
    for (waiting, answer) in waiting.into_iter().zip(answers) {
        // A connection that is gone needs no answer.
        let _ = waiting.send(answer);
    }
}

async fn tried(core: &Core, reports: &[Report]) -> Result<Vec<Answer>, StoreError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match record::record(core, reports).await {
            Err(StoreError::NotOwner { .. }) => {
                return Ok(reports.iter().map(|_| Err(RecordFailure::Epoch)).collect());
            }
            Err(error) => {
                tracing::warn!(event = "reports_not_stored", reports = reports.len(), error = %Chain(&error), "node reports are not stored");
                if tries == TRIES || !error.is_transient() {
                    return Err(error);
                }
            }
            stored => return stored,
        }
    }
}

#[cfg(test)]
mod tests {
    use oac_model::{ConnectionId, Digest, NodeId, OwnerEpoch};
    use oac_store::{Holder, Ownership};

    use super::*;

    fn waiting(node: u8, ownership: Ownership, connection_id: ConnectionId) -> Waiting {
        let subject = Subject {
            node_id: format!("00000000-0000-4000-8000-0000000000{node:02x}")
                .parse::<NodeId>()
                .unwrap(),
            connection_id,
            ownership,
            credential: Digest::of("credential"),
        };
        let report = Report {
            subject,
            said: Said::Goodbye,
        };
        Waiting {
            report,
            answer: oneshot::channel().0,
        }
    }

    #[test]
    fn a_transaction_is_of_one_epoch_and_has_one_report_of_a_node_in_the_order_they_came() {
        let of = |epoch: i64| Ownership {
            holder: Holder::random(),
            epoch: OwnerEpoch::try_from(epoch).unwrap(),
        };
        let (old, new) = (of(1), of(2));
        let connections: Vec<_> = (0..6).map(|_| ConnectionId::random()).collect();
        let mut inner = Inner::default();
        let said = [(1, old), (1, old), (2, new), (3, old), (2, old), (1, old)];
        for ((node, ownership), connection) in said.into_iter().zip(&connections) {
            inner.waiting.push_back(waiting(node, ownership, *connection));
        }
        let mut taken = || -> Vec<usize> {
            let taken = inner.take();
            let at = |w: &Waiting| {
                connections
                    .iter()
                    .position(|c| *c == w.report.subject.connection_id)
            };
            taken.iter().filter_map(at).collect()
        };
        assert_eq!(taken(), [0, 3]);
        assert_eq!(taken(), [1]);
        assert_eq!(taken(), [2]);
        assert_eq!(taken(), [4, 5]);
        assert!(taken().is_empty());
    }

    #[test]
    fn a_transaction_takes_no_more_than_its_share() {
        let ownership = Ownership {
            holder: Holder::random(),
            epoch: OwnerEpoch::try_from(1).unwrap(),
        };
        let mut inner = Inner::default();
        for _ in 0..SHARING + 1 {
            let mut waiting = waiting(0, ownership, ConnectionId::random());
            waiting.report.subject.node_id = NodeId::random();
            inner.waiting.push_back(waiting);
        }
        assert_eq!((inner.take().len(), inner.take().len()), (SHARING, 1));
    }
}
