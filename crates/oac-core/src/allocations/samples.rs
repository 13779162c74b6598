//! What sandboxes use: read from their nodes, and stored in transactions that samples share.
//!
//! A hundred thousand sandboxes give three thousand samples a second, and a database makes each transaction durable on its
//! own. A sample that is not stored is no loss: its sandbox is observed again.

use std::{sync::Arc, time::Duration};

use oac_model::{AllocationId, InstallationId};
use oac_peer::FailureCode;
use oac_store::{AllocationRow, ObservationStatus, Ownership, Seen, StoreError};
use oac_wire::{
    Nullable,
    frames::{Arguments, ResponseResult},
    shapes::{Compute, Observation, ObservationMode, ObservedInstance},
};
use tokio::sync::OnceCell;

use super::{
    limits,
    steps::{Done, request},
};
use crate::{
    Core,
    gathering::{self, Gathering, Left, Shared, Waiting},
    http::error::Chain,
    hub::CallOutcome,
};

/// What one observation gave, on its way into a transaction.
pub(super) struct Sample {
    ownership: Ownership,
    seen: Seen,
}

/// The samples that wait for a transaction.
#[derive(Default)]
pub struct Samples {
    waiting: Gathering<Sample>,
    /// Names the installation to nodes; it never changes.
    installation: OnceCell<InstallationId>,
}

impl Samples {
    /// Samples that are not stored yet.
    pub fn unanswered(&self) -> usize {
        self.waiting.unanswered()
    }
}

impl Shared for Sample {
    type Answer = ();
    type Scope = Ownership;
    type Key = AllocationId;

    const NAME: &'static str = "samples";
    const MOST: usize = oac_store::limits::ROWS_PER_STATEMENT;
    const WAITING: usize = limits::SAMPLES_WAITING;
    const PACE: Duration = Duration::from_millis(50);

    fn gathering(core: &Core) -> &Gathering<Self> {
        &core.samples.waiting
    }

    fn scope(&self) -> Ownership {
        self.ownership
    }

    fn key(&self) -> Option<AllocationId> {
        Some(self.seen.allocation_id)
    }

    async fn store(core: &Core, samples: Vec<Waiting<Self>>) -> Left<Self> {
        let seen: Vec<Seen> = samples.iter().map(|w| w.request.seen.clone()).collect();
        if let Some(first) = samples.first()
            && let Err(error) = stored(core, &first.request.ownership, &seen).await
        {
            tracing::debug!(samples = seen.len(), error = %Chain(&error), "samples are not stored");
        }
        for waiting in samples {
            waiting.answer(());
        }
        Left::default()
    }
}

async fn stored(core: &Core, ownership: &Ownership, seen: &[Seen]) -> Result<(), StoreError> {
    let tx = core.store.begin(ownership).await?;
    tx.save_observations(seen).await?;
    tx.commit().await
}

/// Reads what the sandbox uses, of one that can be suspended its present compute; failing to is no event, and is shown
/// instead.
pub(super) async fn sample(core: &Arc<Core>, row: &AllocationRow, compute: Option<Box<Compute>>) -> Done {
    match observed(core, row, compute).await {
        Ok(Some(sample)) => {
            // Too many wait: this one is read again.
            let _ = gathering::answered(core, sample).await;
        }
        Ok(None) => {}
        Err(error) => {
            tracing::debug!(allocation_id = %row.id, error = %Chain(&error), "a sandbox is not observed");
        }
    }
    Done::Stored
}

/// What an observation gives that is to be stored.
async fn observed(
    core: &Core,
    row: &AllocationRow,
    compute: Option<Box<Compute>>,
) -> Result<Option<Sample>, StoreError> {
    let read = core.store.single();
    let installation = &core.samples.installation;
    let installation = installation.get_or_try_init(async || {
        let deployment = read.deployment().await;
        deployment.map(|deployment| deployment.installation_id)
    });
    let observation = Observation {
        mode: ObservationMode::Managed,
        session_id: row.session_id,
        instance: ObservedInstance {
            provider_key: *installation.await?,
            compute_phase: row.compute_phase,
            compute: Nullable(compute.map(|compute| *compute)),
        },
    };
    let arguments = Arguments::Observe(Box::new(observation));
    let Some(request) = request(core, row, arguments, limits::OBSERVE) else {
        return Ok(None);
    };
    let sample = match core.hub.call(&core.owner, request).await {
        CallOutcome::Ok(Some(ResponseResult::Sample(sample))) => {
            let Ok(sample) = serde_json::to_value(&sample) else {
                return Ok(None);
            };
            Ok(sample)
        }
        outcome => Err(missed(&outcome)),
    };
    // Told already.
    if sample.is_err() && sample.as_ref().err() == row.observation.as_ref() {
        return Ok(None);
    }
    let seen = Seen {
        allocation_id: row.id,
        sample,
    };
    Ok(core.owner.ownership().map(|ownership| Sample { ownership, seen }))
}

/// Why an observation gave no sample, as it is shown.
fn missed(outcome: &CallOutcome) -> ObservationStatus {
    match outcome {
        CallOutcome::Unsupported => ObservationStatus::Unsupported,
        CallOutcome::Refused { code, .. } => match code {
            FailureCode::RuntimeNotRunning | FailureCode::NotFound => ObservationStatus::RuntimeNotRunning,
            FailureCode::Ownership => ObservationStatus::Ownership,
            _ => ObservationStatus::Unavailable,
        },
        // Another result is none of `observe`; the other three are no answer.
        CallOutcome::Ok(_) | CallOutcome::Unconfirmed | CallOutcome::Uncertain | CallOutcome::Unavailable => {
            ObservationStatus::Unavailable
        }
    }
}
