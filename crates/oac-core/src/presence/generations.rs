//! What managing nodes say and ask about generations (protocol.md sections 6 and 8, core.md section 6).
//!
//! Only the rows know which generations are kept. A pin moves to the target alone, under the deployment's shared lock,
//! so that it is still the target when the transaction commits; a retention answer judges all its entries in one
//! statement under the same lock.

use oac_model::Generation;
use oac_peer::core::{Facts, RecordFailure, RetentionAnswer};
use oac_store::{DeploymentLock, GenerationState, GenerationStatusRow, NodeRow, Read, Tx};
use oac_wire::{
    Nullable,
    frames::{self, Deployment, Health, RetentionReference},
};

use super::{Failure, Subject, TRIES};
use crate::{Core, http::error::Chain};

/// Whether this report could move the node's pin, which needs the deployment's lock.
pub(super) fn may_move_pin(node: &NodeRow, health: &Health) -> bool {
    let mut reported = health.generations.iter().flatten();
    reported
        .any(|s| s.state == frames::GenerationState::Ready && node.serving_generation < Some(s.generation))
}

/// Stores each status of a kept generation in place of the earlier one, and moves the pin to a target that is ready.
pub(super) async fn record(
    tx: &Tx,
    subject: &Subject,
    node: &NodeRow,
    health: &Health,
    with_deployment: bool,
) -> Result<Facts, Failure> {
    let target = target(tx).await?;
    let reported: Vec<_> = health.generations.iter().flatten().collect();
    let mut named: Vec<_> = reported.iter().map(|s| s.generation).collect();
    named.push(target);
    let kept = tx.kept_digests(&named).await?;
    let stored = tx.generation_statuses(node.id).await?;
    let (mut ignored, mut pin) = (Vec::new(), node.serving_generation);
    for (status, kept) in reported.iter().zip(&kept) {
        let generation = status.generation;
        match kept {
            None => {
                ignored.push(generation);
                continue;
            }
            Some(digest) if *digest != status.specification_digest => {
                return Err(Failure::Refused(RecordFailure::Digest));
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
        if row.state == GenerationState::Ready
            && generation == target
            && with_deployment
            && pin != Some(target)
        {
            tx.set_serving_generation(node.id, target).await?;
            pin = Some(target);
        }
        // Most reports repeat the one before.
        if !stored.contains(&row) {
            tx.save_generation_status(&row).await?;
        }
    }
    Ok(Facts {
        deployment: deployment(target, &kept, pin)?,
        ignored,
    })
}

/// What a managing node is told; `kept` ends with the target's digest.
fn deployment(
    target: Generation,
    kept: &[Option<oac_model::Digest>],
    pin: Option<Generation>,
) -> Result<Deployment, Failure> {
    let specification_digest = kept.last().copied().flatten().ok_or(NOT_DEPLOYED)?;
    Ok(Deployment {
        generation: target,
        specification_digest,
        serving_generation: Nullable(pin),
    })
}

const NOT_DEPLOYED: Failure = Failure::Refused(RecordFailure::NotDeployed);

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
    let target = target(&tx).await?;
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
    let deployment = deployment(target, &kept, node.serving_generation)?;
    tx.commit().await?;
    let keep = kept[..asked.len()].iter().map(Option::is_some).collect();
    Ok((keep, deployment))
}

async fn target(read: &Read) -> Result<Generation, Failure> {
    read.deployment().await?.target().ok_or(NOT_DEPLOYED)
}
