use std::collections::BTreeMap;

use oac_model::{ConnectionId, OwnerEpoch, Reference, RequestId, Time};
use oac_wire::{
    CoreFrame,
    frames::{Request, RequestBody, Response},
    shapes::Operation,
};

use super::{Action, Call, CallOutcome, Uncertain, Unsent, live::Readiness, read_answer};
use crate::{
    Moment,
    limits::{BUDGET_MILLIS, PENDING_REQUESTS},
    readiness::needs_ready_generation,
};

/// The requests of one connection that have no answer yet, those whose caller gave up included (INV-P12).
#[derive(Debug, Default)]
pub(super) struct Calls {
    sequence: i64,
    pending: BTreeMap<RequestId, Pending>,
}

#[derive(Debug)]
struct Pending {
    operation: Operation,
    reference: Reference,
    unsupported_reason: Option<&'static str>,
    /// `None` once the caller was told or gave up.
    deadline: Option<Moment>,
}

/// What sending depends on beside the call itself.
pub(super) struct Sender<'a> {
    pub(super) connection_id: ConnectionId,
    pub(super) owner_epoch: OwnerEpoch,
    pub(super) readiness: &'a Readiness,
}

impl Calls {
    /// Takes the next sequence and puts the call into a frame, or refuses it unsent.
    pub(super) fn send(&mut self, sender: &Sender<'_>, call: Call, now: Moment) -> Result<String, Unsent> {
        let operation = call.arguments.operation();
        if !sender.readiness.is_served(call.generation) {
            return Err(Unsent::Generation);
        }
        if self.pending.len() >= PENDING_REQUESTS {
            return Err(Unsent::Full);
        }
        let same = |p: &Pending| p.reference.allocation_id == call.reference.allocation_id;
        if operation.is_mutation()
            && self
                .pending
                .values()
                .any(|p| p.operation.is_mutation() && same(p))
        {
            return Err(Unsent::MutationOutstanding);
        }
        if needs_ready_generation(&call.arguments) && !sender.readiness.is_ready(call.generation) {
            return Err(Unsent::NotReady);
        }
        let budget = call.deadline.millis_since(now).min(*BUDGET_MILLIS.end());
        if !BUDGET_MILLIS.contains(&budget) {
            return Err(Unsent::NoTime);
        }
        let sequence = self.sequence + 1;
        let request = Request {
            id: call.id,
            sequence,
            connection_id: sender.connection_id,
            owner_epoch: sender.owner_epoch,
            deployment_generation: call.generation.get(),
            body: Ok(RequestBody {
                deployment_generation: call.generation,
                timeout_ms: budget as u32,
                reference: call.reference,
                arguments: call.arguments,
            }),
        };
        let text = CoreFrame::Request(Box::new(request))
            .encode()
            .map_err(Unsent::Invalid)?;
        self.sequence = sequence;
        self.pending.insert(
            call.id,
            Pending {
                operation,
                reference: call.reference,
                unsupported_reason: call.unsupported_reason,
                deadline: Some(call.deadline),
            },
        );
        Ok(text)
    }

    /// A response whose id is not pending is ignored, one whose caller is gone is dropped.
    pub(super) fn answer(&mut self, response: Response, wall: Time, actions: &mut Vec<Action>) {
        let id = response.id;
        if let Some(pending) = self.pending.remove(&id)
            && pending.deadline.is_some()
        {
            let outcome = read_answer(
                pending.operation,
                &pending.reference,
                pending.unsupported_reason,
                response,
                wall,
            );
            actions.push(Action::Resolve(id, CallOutcome::Answered(outcome)));
        }
    }

    pub(super) fn expire(&mut self, now: Moment, actions: &mut Vec<Action>) {
        for (id, pending) in &mut self.pending {
            if pending.deadline.is_some_and(|deadline| deadline <= now) {
                pending.deadline = None;
                actions.push(Action::Resolve(*id, CallOutcome::Uncertain(Uncertain::Timeout)));
            }
        }
    }

    pub(super) fn give_up(&mut self, id: RequestId) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.deadline = None;
        }
    }

    pub(super) fn disconnect(&mut self, actions: &mut Vec<Action>) {
        for (id, pending) in std::mem::take(&mut self.pending) {
            if pending.deadline.is_some() {
                actions.push(Action::Resolve(
                    id,
                    CallOutcome::Uncertain(Uncertain::Disconnected),
                ));
            }
        }
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn next_deadline(&self) -> Option<Moment> {
        self.pending.values().filter_map(|p| p.deadline).min()
    }
}
