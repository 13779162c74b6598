//! Reports on their way into shared transactions.
//!
//! A lone report waits for nobody; under load a transaction begins every [`Report::PACE`], or without a pause while more
//! than one transaction's worth waits.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use oac_model::NodeId;
use oac_peer::core::RecordFailure;
use oac_store::{Ownership, StoreError};

use super::{Answer, Report, Said, Subject, TRIES, record};
use crate::{
    Core,
    gathering::{self, Gathering, Left, Shared, Waiting},
    http::error::Chain,
    limits::HELD_LONGEST,
};

/// Reports that wait to be stored. A connection has one of each kind at most.
pub(crate) type Reports = Gathering<Report>;

impl Shared for Report {
    type Answer = Answer;
    type Scope = Ownership;
    /// What a node says next is about what the transaction makes of what it said before.
    type Key = NodeId;

    const NAME: &'static str = "node reports";
    /// What a statement of the store names at once.
    const MOST: usize = oac_store::limits::ROWS_PER_STATEMENT;
    /// One of each kind of as many nodes as are ever connected.
    const WAITING: usize = 65_536;
    const PACE: Duration = Duration::from_millis(50);

    fn gathering(core: &Core) -> &Reports {
        core.hub.reports()
    }

    fn scope(&self) -> Ownership {
        self.subject.ownership
    }

    fn key(&self) -> Option<NodeId> {
        Some(self.subject.node_id)
    }

    async fn store(core: &Core, reports: Vec<Waiting<Self>>) -> Left<Self> {
        store(core, reports).await
    }
}

/// Has a report stored, and answers what became of it.
pub(super) async fn stored(core: &Arc<Core>, subject: &Subject, said: Said) -> Answer {
    let report = Report {
        subject: subject.clone(),
        said,
        held: None,
    };
    let answer = gathering::answered(core, report).await;
    answer.unwrap_or(Err(RecordFailure::Storage))
}

/// Stores reports and answers each; those whose node's row is held come again.
async fn store(core: &Core, waiting: Vec<Waiting<Report>>) -> Left<Report> {
    let reports: Vec<&Report> = waiting.iter().map(|w| &w.request).collect();
    let answers = match tried(core, &reports).await {
        Ok(answers) => answers,
        // One that the database refuses for what it says must not fail the others.
        Err(error) if !error.is_transient() && reports.len() > 1 => {
            let mut answers = Vec::new();
            for report in &reports {
                let alone = tried(core, &[*report]).await;
                answers.extend(alone.unwrap_or_else(|_| vec![Some(Err(RecordFailure::Storage))]));
            }
            answers
        }
        Err(_) => {
            let failed = |_| Some(Err(RecordFailure::Storage));
            reports.iter().map(failed).collect()
        }
    };
    let mut left = Left::default();
    for (mut waiting, answer) in waiting.into_iter().zip(answers) {
        match answer {
            Some(answer) => waiting.answer(answer),
            None => {
                let since = *waiting.request.held.get_or_insert_with(Instant::now);
                if since.elapsed() < HELD_LONGEST * TRIES {
                    left.held.push(waiting);
                } else {
                    waiting.answer(Err(RecordFailure::Storage));
                }
            }
        }
    }
    left
}

async fn tried(core: &Core, reports: &[&Report]) -> Result<Vec<Option<Answer>>, StoreError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match record::record(core, reports).await {
            Err(StoreError::NotOwner { .. }) => {
                let failed = |_| Some(Err(RecordFailure::Epoch));
                return Ok(reports.iter().map(failed).collect());
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
