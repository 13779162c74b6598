//! What managing nodes say and ask about generations (protocol.md sections 6 and 8, core.md section 6).
//!
//! Only the rows know which generations are kept. A pin moves to the target alone, under the deployment's shared lock,
//! so that it is still the target when the transaction commits; a retention answer judges all its entries in one
//! statement under the same lock.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use oac_model::{Digest, Generation, NodeId};
use oac_peer::core::{Facts, RecordFailure, RetentionAnswer};
use oac_store::{DeploymentLock, GenerationState, GenerationStatusRow, NodeRow, StoreError, Tx};
use oac_wire::{
    Nullable,
    frames::{self, Deployment, Health, RetentionReference},
};

use super::{COLLECT_TIMER, Failure, Subject, TRIES};
use crate::{
    Core,
    http::{ApiError, error::Chain},
};

/// Whether this report could move the node's pin, which needs the deployment's lock.
pub(super) fn may_move_pin(node: &NodeRow, health: &Health) -> bool {
    let mut reported = health.generations.iter().flatten();
    reported
        .any(|s| s.state == frames::GenerationState::Ready && node.serving_generation < Some(s.generation))
}

/// What the rows say about everything that the managing nodes of one transaction report.
#[derive(Default)]
pub(super) struct Known {
    target: Option<Generation>,
    kept: HashMap<Generation, Digest>,
    /// The nodes' earlier statuses.
    statuses: HashMap<NodeId, Vec<GenerationStatusRow>>,
}

/// What becomes of one node's statuses.
pub(super) struct Judged {
    pub(super) facts: Facts,
    /// The pin moves to it.
    pub(super) pin: Option<Generation>,
    /// To be stored: most reports repeat the one before.
    pub(super) changed: Vec<GenerationStatusRow>,
    /// All of the node's, as the transaction leaves them.
    pub(super) statuses: Vec<GenerationStatusRow>,
}

impl Known {
    pub(super) async fn read<'a>(
        tx: &Tx,
        managing: impl Iterator<Item = (NodeId, &'a Health)>,
    ) -> Result<Self, StoreError> {
        let (nodes, reported): (Vec<NodeId>, Vec<&Health>) = managing.unzip();
        if nodes.is_empty() {
            return Ok(Self::default());
        }
        let target = tx.deployment().await?.target();
        let statuses = reported
            .iter()
            .flat_map(|health| health.generations.iter().flatten());
        let named: BTreeSet<Generation> = statuses.map(|s| s.generation).chain(target).collect();
        let named: Vec<Generation> = named.into_iter().collect();
        let digests = tx.kept_digests(&named).await?;
        let kept = named.into_iter().zip(digests);
        Ok(Self {
            target,
            kept: kept.filter_map(|(g, digest)| Some((g, digest?))).collect(),
            statuses: tx.generation_statuses_of(&nodes).await?,
        })
    }

    /// What one node's report makes of its statuses and its pin.
    pub(super) fn judge(
        &self,
        subject: &Subject,
        node: &NodeRow,
        health: &Health,
        with_deployment: bool,
    ) -> Result<Judged, RecordFailure> {
        let target = self.target.ok_or(RecordFailure::NotDeployed)?;
        let specification_digest = *self.kept.get(&target).ok_or(RecordFailure::NotDeployed)?;
        let mut statuses = self.statuses.get(&node.id).cloned().unwrap_or_default();
        let (mut ignored, mut changed, mut pin) = (Vec::new(), Vec::new(), None);
        for status in health.generations.iter().flatten() {
            let generation = status.generation;
            match self.kept.get(&generation) {
                None => {
                    ignored.push(generation);
                    continue;
                }
                Some(digest) if *digest != status.specification_digest => {
                    return Err(RecordFailure::Digest);
                }
                Some(_) => {}
            }
            let row = GenerationStatusRow {
                node_id: node.id,
                generation,
                digest: status.specification_digest,
                state: match status.state {
                    frames::GenerationState::Ready => GenerationState::Ready,
                    frames::GenerationState::Preparing => GenerationState::Preparing,
                    frames::GenerationState::Failed => GenerationState::Failed,
                },
                diagnostic: status.diagnostic.as_ref().and_then(frames::Token::code),
                connection_id: subject.connection_id,
                owner_epoch: subject.ownership.epoch,
            };
            let ready = row.state == GenerationState::Ready;
            if ready && generation == target && with_deployment && node.serving_generation != Some(target) {
                pin = Some(target);
            }
            if !statuses.contains(&row) {
                statuses.retain(|s| s.generation != generation);
                statuses.push(row.clone());
                changed.push(row);
            }
        }
        let deployment = Deployment {
            generation: target,
            specification_digest,
            serving_generation: Nullable(pin.or(node.serving_generation)),
        };
        Ok(Judged {
            facts: Facts { deployment, ignored },
            pin,
            changed,
            statuses,
        })
    }
}

/// Removes the rows of generations that nothing keeps, until it is dropped: at most 32 in one transaction, so that
/// admissions wait for none of them for long (core.md section 6).
pub(super) async fn collect(core: Arc<Core>) {
    loop {
        core.hub.clock.pass(COLLECT_TIMER).await;
        core.owner.owned().await;
        if let Err(error) = collect_once(&core).await {
            tracing::warn!(error = %Chain(&error), "rows of former generations are not removed");
        }
    }
}

async fn collect_once(core: &Core) -> Result<(), ApiError> {
    loop {
        let tx = core.begin().await?;
        tx.lock_deployment(DeploymentLock::Exclusive).await?;
        let removed = tx.collect_generations().await?;
        tx.commit().await?;
        if removed.is_empty() {
            return Ok(());
        }
        tracing::info!(
            count = removed.len(),
            "rows of generations that nothing keeps were removed"
        );
    }
}

/// Answers a retention request: what is not kept, the node may collect, and its status is forgotten.
pub(crate) async fn answer_retention(
    core: &Core,
    subject: &Subject,
    asked: &[RetentionReference],
) -> RetentionAnswer {
    for _ in 0..TRIES {
        match try_answer(core, subject, asked).await {
            Ok((keep, deployment)) => return RetentionAnswer::Done { keep, deployment },
            Err(Failure::Refused(failure)) => return RetentionAnswer::Failed(failure),
            Err(Failure::Store(error)) => {
                tracing::warn!(node_id = %subject.node_id, error = %Chain(&error), "a retention request is not answered");
                if !error.is_transient() {
                    break;
                }
            }
        }
    }
    RetentionAnswer::Failed(RecordFailure::Storage)
}

async fn try_answer(
    core: &Core,
    subject: &Subject,
    asked: &[RetentionReference],
) -> Result<(Vec<bool>, Deployment), Failure> {
    let tx = core.store.begin(&subject.ownership).await?;
    tx.lock_deployment(DeploymentLock::Shared).await?;
    let node = tx
        .lock_node(subject.node_id)
        .await?
        .filter(|row| row.retired_at.is_none() && row.connection_id == Some(subject.connection_id))
        .ok_or(Failure::Refused(RecordFailure::Epoch))?;
    let target = tx
        .deployment()
        .await?
        .target()
        .ok_or(RecordFailure::NotDeployed)?;
    let mut named: Vec<_> = asked.iter().map(|r| r.generation).collect();
    named.push(target);
    let kept = tx.kept_digests(&named).await?;
    for (asked, kept) in asked.iter().zip(&kept) {
        match kept {
            Some(digest) if *digest != asked.specification_digest => {
                return Err(Failure::Refused(RecordFailure::Digest));
            }
            Some(_) => {}
            None => {
                tx.delete_generation_status(subject.node_id, asked.generation)
                    .await?;
            }
        }
    }
    let deployment = Deployment {
        generation: target,
        specification_digest: kept.last().copied().flatten().ok_or(RecordFailure::NotDeployed)?,
        serving_generation: Nullable(node.serving_generation),
    };
    tx.commit().await?;
    let keep = kept[..asked.len()].iter().map(Option::is_some).collect();
    Ok((keep, deployment))
}
