//! A live connection: heartbeats, answers and the retention exchange, and which generations the node serves.

use std::collections::BTreeSet;

use oac_model::{Generation, Time};
use oac_wire::{
    CoreFrame, NodeFrame,
    frames::{
        Deployment, GenerationState, Health, Heartbeat, HeartbeatAck, Retention, RetentionAck,
        RetentionAckControl, RetentionAnswer as Answered, RetentionControl,
    },
};

use super::{Action, CloseReason, Connection, RecordFailure, Recorded, RetentionAnswer, connection::State};
use crate::{Moment, limits::HEARTBEATS_OWED};

#[derive(Debug)]
pub(super) struct Live {
    pub(super) heard: Moment,
    pub(super) readiness: Readiness,
    recording: Option<Recording>,
    /// The newest report that arrived meanwhile, and how many it stands for.
    next: Option<(Box<Health>, usize)>,
    /// Of the latest retention request; 0 before the first.
    control_sequence: i64,
    /// The one whose answer is being found.
    control: Option<RetentionControl>,
}

#[derive(Debug)]
struct Recording {
    report: Report,
    /// Heartbeats that share it.
    owed: usize,
}

/// What a report says about generations.
#[derive(Debug, Default)]
pub(super) struct Report {
    provider_ready: bool,
    /// Each with whether it is ready.
    generations: Vec<(Generation, bool)>,
}

impl Report {
    pub(super) fn of(health: &Health) -> Self {
        let statuses = health.generations.iter().flatten();
        Self {
            provider_ready: health.provider_ready,
            generations: statuses
                .map(|s| (s.generation, s.state == GenerationState::Ready))
                .collect(),
        }
    }
}

/// A managing node speaks of its generations, never of one provider (protocol.md section 3).
pub(super) fn claims_readiness(health: &Health) -> bool {
    health.provider_ready || health.diagnostic.as_ref().is_some_and(|d| !d.0.is_empty())
}

/// What the node can run, as last recorded on this connection. Omission changes nothing (INV-P15).
#[derive(Debug)]
pub(super) enum Readiness {
    Fixed { enrolled: Generation, ready: bool },
    Managing(BTreeSet<Generation>),
}

impl Readiness {
    /// A managing node answers by itself for what it does not have.
    pub(super) fn is_served(&self, generation: Generation) -> bool {
        match self {
            Self::Fixed { enrolled, .. } => *enrolled == generation,
            Self::Managing(_) => true,
        }
    }

    pub(super) fn is_ready(&self, generation: Generation) -> bool {
        match self {
            Self::Fixed { enrolled, ready } => *enrolled == generation && *ready,
            Self::Managing(ready) => ready.contains(&generation),
        }
    }
}

impl Live {
    pub(super) fn new(managing: bool, enrolled: Generation, now: Moment) -> Self {
        Self {
            heard: now,
            readiness: match managing {
                true => Readiness::Managing(BTreeSet::new()),
                false => Readiness::Fixed {
                    enrolled,
                    ready: false,
                },
            },
            recording: None,
            next: None,
            control_sequence: 0,
            control: None,
        }
    }

    /// Takes over what was recorded, and gives the deployment a managing node is told.
    pub(super) fn note(
        &mut self,
        report: &Report,
        recorded: Recorded,
    ) -> Result<Option<Deployment>, RecordFailure> {
        let facts = match recorded {
            Recorded::Done(facts) => facts,
            Recorded::Failed(failure) => return Err(failure),
        };
        match &mut self.readiness {
            Readiness::Fixed { ready, .. } => {
                *ready = report.provider_ready;
                Ok(None)
            }
            Readiness::Managing(ready) => {
                let facts = facts.ok_or(RecordFailure::NotDeployed)?;
                for (generation, is_ready) in &report.generations {
                    if *is_ready && !facts.ignored.contains(generation) {
                        ready.insert(*generation);
                    } else {
                        ready.remove(generation);
                    }
                }
                Ok(Some(facts.deployment))
            }
        }
    }

    fn is_managing(&self) -> bool {
        matches!(self.readiness, Readiness::Managing(_))
    }
}

impl Connection {
    pub(super) fn message(
        &mut self,
        text: &[u8],
        wall: Time,
        actions: &mut Vec<Action>,
    ) -> Result<(), CloseReason> {
        match NodeFrame::decode(text).map_err(CloseReason::InvalidFrame)? {
            NodeFrame::Heartbeat(heartbeat) => self.heartbeat(*heartbeat, actions),
            NodeFrame::Response(response) if response.connection_id != self.connection_id => {
                Err(CloseReason::ConnectionId)
            }
            NodeFrame::Response(response) => {
                self.calls.answer(*response, wall, actions);
                Ok(())
            }
            NodeFrame::Retention(retention) => self.retention(retention, actions),
            NodeFrame::Hello(_) => Err(CloseReason::UnexpectedFrame),
        }
    }

    fn heartbeat(&mut self, heartbeat: Heartbeat, actions: &mut Vec<Action>) -> Result<(), CloseReason> {
        let Heartbeat {
            connection_id,
            owner_epoch,
            health,
        } = heartbeat;
        if connection_id != self.connection_id {
            return Err(CloseReason::ConnectionId);
        }
        if owner_epoch != self.owner_epoch {
            return Err(CloseReason::OwnerEpoch);
        }
        let State::Live(live) = &mut self.state else {
            return Ok(());
        };
        if !live.is_managing() && health.generations.is_some() {
            return Err(CloseReason::Generations);
        }
        if live.is_managing() && claims_readiness(&health) {
            return Err(CloseReason::ManagedReadiness);
        }
        if live.recording.is_some() {
            let waiting = live.next.as_ref().map_or(0, |(_, owed)| *owed);
            live.next = Some((Box::new(health), (waiting + 1).min(HEARTBEATS_OWED)));
        } else {
            live.recording = Some(Recording {
                report: Report::of(&health),
                owed: 1,
            });
            actions.push(Action::RecordHealth(Box::new(health)));
        }
        Ok(())
    }

    pub(super) fn health_recorded(
        &mut self,
        recorded: Recorded,
        actions: &mut Vec<Action>,
    ) -> Result<(), CloseReason> {
        let State::Live(live) = &mut self.state else {
            return Ok(());
        };
        let Some(Recording { report, owed }) = live.recording.take() else {
            return Ok(());
        };
        let deployment = live.note(&report, recorded).map_err(CloseReason::Health)?;
        if let Some((health, owed)) = live.next.take() {
            live.recording = Some(Recording {
                report: Report::of(&health),
                owed,
            });
            actions.push(Action::RecordHealth(health));
        }
        let ack = CoreFrame::HeartbeatAck(HeartbeatAck {
            connection_id: self.connection_id,
            owner_epoch: self.owner_epoch,
            deployment,
        });
        let text = ack.encode().map_err(CloseReason::OwnFrame)?;
        actions.extend(std::iter::repeat_n(text, owed).map(Action::Send));
        Ok(())
    }

    fn retention(&mut self, retention: Retention, actions: &mut Vec<Action>) -> Result<(), CloseReason> {
        let control = retention.control;
        let State::Live(live) = &mut self.state else {
            return Ok(());
        };
        if !live.is_managing() {
            return Err(CloseReason::Retention);
        }
        if control.connection_id != self.connection_id {
            return Err(CloseReason::ConnectionId);
        }
        if control.owner_epoch != self.owner_epoch {
            return Err(CloseReason::OwnerEpoch);
        }
        if Some(control.sequence) != live.control_sequence.checked_add(1) {
            return Err(CloseReason::RetentionSequence);
        }
        if live.control.is_some() {
            return Err(CloseReason::RetentionPending);
        }
        live.control_sequence = control.sequence;
        actions.push(Action::AnswerRetention(control.references.clone()));
        live.control = Some(control);
        Ok(())
    }

    pub(super) fn retention_answered(
        &mut self,
        answer: RetentionAnswer,
        actions: &mut Vec<Action>,
    ) -> Result<(), CloseReason> {
        let State::Live(live) = &mut self.state else {
            return Ok(());
        };
        let Some(control) = live.control.take() else {
            return Ok(());
        };
        let (keep, deployment) = match answer {
            RetentionAnswer::Done { keep, deployment } if keep.len() == control.references.len() => {
                (keep, deployment)
            }
            RetentionAnswer::Done { .. } => {
                return Err(CloseReason::RetentionAnswer(RecordFailure::Storage));
            }
            RetentionAnswer::Failed(failure) => return Err(CloseReason::RetentionAnswer(failure)),
        };
        let retentions: Vec<_> = control
            .references
            .iter()
            .zip(keep)
            .map(|(asked, keep)| Answered {
                generation: asked.generation,
                specification_digest: asked.specification_digest,
                keep,
            })
            .collect();
        if let Readiness::Managing(ready) = &mut live.readiness {
            let gone = retentions.iter().filter(|r| !r.keep);
            gone.for_each(|r| {
                ready.remove(&r.generation);
            });
        }
        let ack = CoreFrame::RetentionAck(RetentionAck {
            control: RetentionAckControl {
                id: control.id,
                sequence: control.sequence,
                connection_id: control.connection_id,
                owner_epoch: control.owner_epoch,
                retentions,
            },
            deployment,
        });
        actions.push(Action::Send(ack.encode().map_err(CloseReason::OwnFrame)?));
        Ok(())
    }
}
