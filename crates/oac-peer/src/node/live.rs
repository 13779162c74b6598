//! A live connection: heartbeats, requests, deployment deliveries and the retention exchange.

use oac_model::{ConnectionId, OwnerEpoch};
use oac_wire::{
    CoreFrame, NodeFrame,
    frames::{
        Deployment, FrameError, Health, Heartbeat, HeartbeatAck, Request, Retention, RetentionAck,
        RetentionAckControl, RetentionControl,
    },
};

use super::{Action, Asked, Event, Node, Reason, Violation, machine::State, schedule::Place};
use crate::{
    FailureCode, Moment, Outcome,
    limits::{HEARTBEAT_MILLIS, RETENTION_MILLIS, SILENCE_MILLIS},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Live {
    /// Of the attempt, for the backoff.
    pub(super) since: Moment,
    pub(super) connection_id: ConnectionId,
    pub(super) owner_epoch: OwnerEpoch,
    /// Of the latest accepted request; 0 before the first.
    sequence: i64,
    /// Of the latest retention request; 0 before the first.
    control_sequence: i64,
    /// When a byte of a protocol frame last arrived.
    heard: Moment,
    /// When the next heartbeat is due.
    beat: Moment,
    pub(super) measuring: bool,
    /// What this connection delivered last, of what was adopted.
    delivered: Option<Deployment>,
}

/// A retention request without its answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) control: RetentionControl,
    sent: Moment,
}

impl Pending {
    pub(super) fn late(&self) -> Moment {
        self.sent.plus_millis(RETENTION_MILLIS)
    }

    /// Every member of the answer but `keep` repeats the request, entries in their order included (INV-P14).
    fn is_answered_by(&self, ack: &RetentionAckControl) -> bool {
        let RetentionControl {
            id,
            sequence,
            connection_id,
            owner_epoch,
            ref references,
        } = self.control;
        let named = ack
            .retentions
            .iter()
            .map(|r| (r.generation, r.specification_digest));
        (ack.id, ack.sequence) == (id, sequence)
            && (ack.connection_id, ack.owner_epoch) == (connection_id, owner_epoch)
            && named.eq(references.iter().map(|r| (r.generation, r.specification_digest)))
    }
}

impl Live {
    pub(super) fn new(
        since: Moment,
        connection_id: ConnectionId,
        owner_epoch: OwnerEpoch,
        now: Moment,
    ) -> Self {
        Self {
            since,
            connection_id,
            owner_epoch,
            sequence: 0,
            control_sequence: 0,
            heard: now,
            beat: now.plus_millis(HEARTBEAT_MILLIS),
            measuring: false,
            delivered: None,
        }
    }

    pub(super) fn next_wakeup(&self) -> Moment {
        let silence = self.heard.plus_millis(SILENCE_MILLIS);
        if self.measuring {
            silence
        } else {
            silence.min(self.beat)
        }
    }

    fn owns(&self, connection_id: ConnectionId, owner_epoch: OwnerEpoch) -> Result<(), Reason> {
        if connection_id != self.connection_id {
            Err(Reason::Violation(Violation::Connection))
        } else if owner_epoch != self.owner_epoch {
            Err(Reason::Violation(Violation::Epoch))
        } else {
            Ok(())
        }
    }
}

impl Node {
    pub(super) fn live(
        &mut self,
        mut live: Live,
        event: Event<'_>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) -> Result<(), Reason> {
        match event {
            Event::Tick if now.millis_since(live.heard) >= SILENCE_MILLIS => return Err(Reason::Silence),
            Event::Tick if self.exchange.as_ref().is_some_and(|e| now >= e.late()) => {
                return Err(Reason::RetentionUnanswered);
            }
            Event::Tick if now >= live.beat && !live.measuring => {
                live.beat = now.plus_millis(HEARTBEAT_MILLIS);
                live.measuring = true;
                actions.push(Action::Measure(self.attempt));
            }
            Event::Bytes(at) => live.heard = live.heard.max(at.min(now)),
            Event::Message(text) => {
                live.heard = now;
                self.message(&mut live, text, now, actions)?;
            }
            Event::Unreadable => return Err(Reason::Unreadable),
            Event::Lost => return Err(Reason::Lost),
            _ => {}
        }
        self.state = State::Live(live);
        Ok(())
    }

    fn message(
        &mut self,
        live: &mut Live,
        text: &[u8],
        now: Moment,
        actions: &mut Vec<Action>,
    ) -> Result<(), Reason> {
        match CoreFrame::decode(text).map_err(Reason::InvalidFrame)? {
            CoreFrame::HeartbeatAck(HeartbeatAck {
                connection_id,
                owner_epoch,
                deployment,
            }) => {
                live.owns(connection_id, owner_epoch)?;
                let adopted = self.deliver(live, deployment)?;
                actions.extend(adopted.map(Action::Deployment));
                Ok(())
            }
            CoreFrame::Request(request) => self.request(live, *request, now, actions),
            CoreFrame::RetentionAck(ack) => self.retained(live, &ack, actions),
            CoreFrame::Welcome(_) => Err(Reason::UnexpectedFrame),
        }
    }

    /// "Node's order", from point 3. The sequence is consumed before anything is judged that leaves the connection open.
    fn request(
        &mut self,
        live: &mut Live,
        request: Request,
        now: Moment,
        actions: &mut Vec<Action>,
    ) -> Result<(), Reason> {
        live.owns(request.connection_id, request.owner_epoch)?;
        if Some(request.sequence) != live.sequence.checked_add(1) {
            return Err(Reason::Violation(Violation::Sequence));
        }
        live.sequence = request.sequence;
        let enrolled = self.identity.deployment_generation.get();
        if self.generations.is_none() && request.deployment_generation != enrolled {
            return Err(Reason::Violation(Violation::Generation));
        }
        let body = match request.body {
            Ok(body) => body,
            Err(_) => {
                self.send_response(request.id, Some(FailureCode::Invalid.as_str()), None, actions);
                return Ok(());
            }
        };
        let asked = Asked {
            id: request.id,
            operation: body.arguments.operation(),
            reference: body.reference,
        };
        let place = Place {
            lane: body.reference.allocation_id,
            generation: body.deployment_generation,
        };
        if let Some(generations) = &self.generations
            && !generations.is_acquirable(place.generation)
        {
            self.respond(asked, Outcome::failed(FailureCode::Unconfirmed), actions);
            return Ok(());
        }
        let deadline = now.plus_millis(u64::from(body.timeout_ms));
        self.schedule
            .admit(place, deadline, asked, Box::new(body))
            .map_err(|_| Reason::QueueFull)
    }

    /// Judges the deployment of a welcome or an acknowledgement (protocol.md section 8). What is to be done is what
    /// this connection adopted first, or something new.
    pub(super) fn deliver(
        &mut self,
        live: &mut Live,
        deployment: Option<Deployment>,
    ) -> Result<Option<Deployment>, Reason> {
        let (generations, deployment) = match (&mut self.generations, deployment) {
            (None, None) => return Ok(None),
            (None, Some(_)) => return Err(Reason::SuperfluousDeployment),
            (Some(_), None) => return Err(Reason::MissingDeployment),
            (Some(generations), Some(deployment)) => (generations, deployment),
        };
        let adopted = generations.deliver(&deployment).map_err(Reason::Violation)?;
        if !adopted || live.delivered == Some(deployment) {
            return Ok(None);
        }
        live.delivered = Some(deployment);
        Ok(Some(deployment))
    }

    /// Applies an answer that repeats the pending request; anything else permits nothing and is a violation.
    fn retained(
        &mut self,
        live: &mut Live,
        ack: &RetentionAck,
        actions: &mut Vec<Action>,
    ) -> Result<(), Reason> {
        const MISMATCH: Reason = Reason::Violation(Violation::Retention);
        let pending = self.exchange.take().ok_or(MISMATCH)?;
        if !pending.is_answered_by(&ack.control) {
            return Err(MISMATCH);
        }
        let adopted = self.deliver(live, Some(ack.deployment))?;
        actions.extend(adopted.map(Action::Deployment));
        let keep: Vec<_> = ack.control.retentions.iter().map(|r| r.keep).collect();
        if let Some(generations) = &mut self.generations {
            let granted = generations.answered(&pending.control.references, &keep);
            if !granted.is_empty() {
                actions.push(Action::Granted(live.connection_id, granted));
            }
        }
        Ok(())
    }

    /// One heartbeat, then at most one retention request if none is pending.
    pub(super) fn beat(
        &mut self,
        mut live: Live,
        health: Health,
        now: Moment,
        actions: &mut Vec<Action>,
    ) -> Result<(), FrameError> {
        let heartbeat = Heartbeat {
            connection_id: live.connection_id,
            owner_epoch: live.owner_epoch,
            health,
        };
        actions.push(Action::Send(NodeFrame::Heartbeat(Box::new(heartbeat)).encode()?));
        let references = match (&self.generations, &self.exchange) {
            (Some(generations), None) => generations.references(),
            _ => Vec::new(),
        };
        if references.is_empty() {
            return Ok(());
        }
        live.control_sequence += 1;
        let control = RetentionControl {
            id: self.random.request_id(),
            sequence: live.control_sequence,
            connection_id: live.connection_id,
            owner_epoch: live.owner_epoch,
            references,
        };
        let frame = NodeFrame::Retention(Retention {
            control: control.clone(),
        });
        actions.push(Action::Send(frame.encode()?));
        self.exchange = Some(Pending { control, sent: now });
        self.state = State::Live(live);
        Ok(())
    }
}
