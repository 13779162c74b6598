//! Calling a node (`oac-core`'s `hub/call.rs`), and what must hold when a request leaves.

use oac_model::{AllocationId, ConnectionId, Generation, NodeId, Reference, RequestId};
use oac_peer::{
    Outcome,
    core::{Action, Call, CallOutcome, Unsent},
};
use oac_wire::{
    CoreFrame,
    frames::{Arguments, Request, RequestBody, ResponseResult},
    shapes::{Command, Operation},
};

use super::{
    MUTATION_RESERVE,
    connections::{Caller, Who},
};
use crate::{
    agenda::Millis,
    defect::Defect,
    ids,
    invariant::Invariant,
    network::{self, Asked, End, LinkId, Note},
    world::{Happening, World},
};

pub(crate) struct Wanted {
    pub(crate) node: NodeId,
    pub(crate) generation: Generation,
    pub(crate) reference: Reference,
    pub(crate) arguments: Arguments,
    /// Only on this connection.
    pub(crate) on: ConnectionId,
    pub(crate) wait: Millis,
    pub(crate) who: Who,
}

impl World {
    /// Sends one request; `None` when nothing was sent.
    pub(crate) fn call(&mut self, core: usize, wanted: Wanted) -> Option<RequestId> {
        let operation = wanted.arguments.operation();
        let mutates = operation.is_mutation() && !is_reconcile(&wanted.arguments);
        let id = ids::request(self.number());
        let (now, owns) = (self.moment(), self.ownership(core));
        let left = self.lease_left(core);
        let gated = !self.has(Defect::NoLeaseGate);
        let life = self.cores[core].life.as_ref()?;
        if life.live.get(&wanted.node) != Some(&wanted.on) {
            return None;
        }
        let epoch = life.connections.get(&wanted.on)?.epoch;
        let may = !operation.is_mutation() || left >= MUTATION_RESERVE;
        if gated && (owns != Some(epoch) || !may) {
            self.reach("a call was refused for want of lease");
            return None;
        }
        let call = Call {
            id,
            generation: wanted.generation,
            reference: wanted.reference,
            arguments: wanted.arguments.clone(),
            deadline: now.plus_millis(wanted.wait),
            unsupported_reason: None,
        };
        let conn = self.conn(core, wanted.on)?;
        let (sent, link) = (conn.machine.call(call, now), conn.link);
        let text = match sent {
            Ok(Action::Send(text)) => text,
            Ok(_) => return None,
            Err(unsent) => {
                self.say(|| format!("core {core}: {} is not sent: {unsent}", operation.as_str()));
                if unsent == Unsent::Full {
                    self.reach("32 requests were pending");
                    if self.has(Defect::UnboundedCalls) {
                        self.send_raw(core, &wanted, link);
                    }
                }
                return None;
            }
        };
        let caller = Caller {
            reference: wanted.reference,
            who: wanted.who,
        };
        if let Some(conn) = self.conn(core, wanted.on) {
            conn.callers.insert(id, caller);
        }
        let leaves = (wanted.reference.allocation_id, operation, mutates);
        self.request_leaves(core, link, text, id, leaves);
        self.set_connection_tick(core, wanted.on);
        if operation == Operation::Create && self.has(Defect::KillBesideCreate) {
            let kill = Wanted {
                arguments: Arguments::Kill,
                ..wanted
            };
            self.send_raw(core, &kill, link);
        }
        Some(id)
    }

    /// Planted defects: a request that the machine knows nothing of.
    pub(crate) fn send_raw(&mut self, core: usize, wanted: &Wanted, link: LinkId) {
        let id = ids::request(self.number());
        let Some(epoch) = self.conn(core, wanted.on).map(|conn| conn.epoch) else {
            return;
        };
        let Some(sequence) = self.network.links.get(&link).map(|link| link.sequence + 1) else {
            return;
        };
        let request = Request {
            id,
            sequence,
            connection_id: wanted.on,
            owner_epoch: epoch,
            deployment_generation: wanted.generation.get(),
            body: Ok(RequestBody {
                deployment_generation: wanted.generation,
                timeout_ms: 30_000,
                reference: wanted.reference,
                arguments: wanted.arguments.clone(),
            }),
        };
        if let Ok(text) = CoreFrame::Request(Box::new(request)).encode() {
            let operation = wanted.arguments.operation();
            let leaves = (wanted.reference.allocation_id, operation, operation.is_mutation());
            self.request_leaves(core, link, text, id, leaves);
        }
    }

    fn request_leaves(
        &mut self,
        core: usize,
        link: LinkId,
        mut text: String,
        id: RequestId,
        (allocation, operation, mutates): (AllocationId, Operation, bool),
    ) {
        self.say(|| {
            let number = ids::number(allocation.as_uuid());
            format!("core {core}: sends {} of allocation {number}", operation.as_str())
        });
        let Some(at) = self.network.links.get_mut(&link) else {
            return;
        };
        let mut sequence = network::number(&text, "sequence").unwrap_or(0);
        if at.shifted > 0 {
            let shifted = sequence + at.shifted;
            text = text.replacen(
                &format!("\"sequence\":{sequence}"),
                &format!("\"sequence\":{shifted}"),
                1,
            );
            sequence = shifted;
        }
        let in_order = sequence == at.sequence + 1;
        let shifted = at.shifted > 0;
        at.sequence = sequence;
        at.pending.insert(id);
        let pending = at.pending.len();
        let budget = network::number(&text, "timeout_ms").unwrap_or(0);
        let asked = Asked {
            id,
            sequence,
            allocation,
            operation,
            timeout: budget.max(0) as Millis,
        };
        let rule = if shifted { Invariant::P29 } else { Invariant::P7 };
        self.demand(in_order, rule, || {
            format!("sequence {sequence} is sent out of order")
        });
        self.demand(pending <= 32, Invariant::P12, || {
            format!("{pending} requests are pending")
        });
        self.demand((1..=120_000).contains(&budget), Invariant::P12, || {
            format!("a budget of {budget} ms")
        });
        if mutates {
            self.mutation_leaves(core, link, id, allocation, operation);
        }
        self.transmit(link, End::Node, text, Note::Request(asked));
        if mutates
            && let Some(loss) = self.cores[core].in_call.pop()
            && let Some(host) = self.network.links.get(&link).map(|link| link.host)
        {
            let run = self.cores[core].run;
            self.after(0, 40, Happening::InCall(core, run, host, loss));
        }
    }

    fn mutation_leaves(
        &mut self,
        core: usize,
        link: LinkId,
        id: RequestId,
        allocation: AllocationId,
        operation: Operation,
    ) {
        let (now, holder) = (self.now, self.holder(core));
        // Whatever the database's clock did since, on one that only moves forward.
        let until = self.history.leases.get(&holder).copied().unwrap_or(0);
        let left = until.saturating_sub(now);
        self.demand(left >= MUTATION_RESERVE, Invariant::C27, || {
            format!("{} is sent with {left} ms of lease left", operation.as_str())
        });
        let here = self.network.links.get(&link).map(|link| link.connection);
        let others = self.history.mutations.entry(link).or_default();
        let pending = self.network.links.get(&link).map(|link| &link.pending);
        others.retain(|(request, _)| pending.is_some_and(|pending| pending.contains(request)));
        let beside = others.iter().any(|(_, other)| *other == allocation);
        others.push((id, allocation));
        self.demand(!beside, Invariant::P13, || {
            format!("{} beside another mutation of the allocation", operation.as_str())
        });
        let Some(row) = self.db.allocations.get_mut(&allocation) else {
            return self.violated(Invariant::C16, || "a mutation of no allocation".to_owned());
        };
        let open = row.open();
        let again = operation == Operation::Create && std::mem::replace(&mut row.ever_sent, true);
        let stored = open.is_some_and(|op| {
            op.kind == operation
                && op.state == oac_lifecycle::allocation::OperationState::Sent
                && op.on.map(|(on, _)| on) == here
        });
        self.demand(!again, Invariant::C17, || "a second create".to_owned());
        self.demand(stored, Invariant::C16, || {
            format!("{} is sent and {open:?} is stored", operation.as_str())
        });
    }

    /// A call's end reaches its caller.
    pub(crate) fn resolved(
        &mut self,
        core: usize,
        connection: ConnectionId,
        id: RequestId,
        outcome: CallOutcome,
    ) {
        let Some(conn) = self.conn(core, connection) else {
            return;
        };
        let node = conn.node;
        if self.has(Defect::CallerForgotten)
            && matches!(
                outcome,
                CallOutcome::Uncertain(oac_peer::core::Uncertain::Disconnected)
            )
        {
            return;
        }
        let Some(caller) = self
            .conn(core, connection)
            .and_then(|conn| conn.callers.remove(&id))
        else {
            return;
        };
        if let CallOutcome::Answered(Outcome::Failed {
            receipt: Some(receipt),
            ..
        }) = &outcome
        {
            let settles = receipt.is_settled_receipt_of(&caller.reference);
            self.demand(settles, Invariant::P19, || {
                format!("beside an error: {receipt:?}")
            });
        }
        if let CallOutcome::Uncertain(_) = outcome {
            self.reach("a call ended uncertain");
        }
        match caller.who {
            Who::Step(epoch) => {
                self.step_answered(
                    core,
                    epoch,
                    caller.reference.allocation_id,
                    connection,
                    node,
                    id,
                    outcome,
                );
            }
            Who::Burst(marker) if matches!(outcome, CallOutcome::Uncertain(_)) => {
                if self.has(Defect::ReplayCommand) {
                    self.replay_command(core, node, caller.reference, marker);
                }
            }
            Who::Burst(marker) => {
                if let CallOutcome::Answered(Outcome::Success(Some(ResponseResult::Command(result)))) =
                    outcome
                {
                    let own = result.stdout.0 == marker.to_string().into_bytes();
                    self.demand(own, Invariant::P8, || "another command's answer".to_owned());
                    self.reach("a command of a burst was answered");
                }
            }
        }
    }

    /// A planted defect: the same command once more, on whatever connection there is.
    fn replay_command(&mut self, core: usize, node: NodeId, reference: Reference, marker: u64) {
        let live = self.cores[core]
            .life
            .as_ref()
            .and_then(|life| life.live.get(&node).copied());
        if let Some(on) = live {
            self.call(
                core,
                command(node, Generation::FIRST, reference, marker, on, 60_000),
            );
        }
    }

    /// Many calls at once, of several allocations: commands that take their time.
    pub(crate) fn burst(&mut self, host: usize, calls: u64, patience: Millis) {
        let node = self.hosts[host].id;
        let Some(core) = (0..self.cores.len()).find(|core| self.ownership(*core).is_some()) else {
            return;
        };
        let live = self.cores[core]
            .life
            .as_ref()
            .and_then(|life| life.live.get(&node).copied());
        let Some(on) = live else { return };
        let generation = match self.db.nodes[&node].managing {
            true => self.db.nodes[&node].pin.unwrap_or(Generation::FIRST),
            false => self.db.nodes[&node].enrolled,
        };
        for _ in 0..calls {
            let marker = self.number();
            let session = ids::session(500 + marker % 9);
            let wait = 1 + self.random.below(patience + 1);
            let reference = ids::reference(session, ids::allocation(500 + marker % 9));
            self.call(core, command(node, generation, reference, marker, on, wait));
        }
    }

    /// The worker is gone: its calls stay pending, and nobody waits for them.
    pub(crate) fn give_up_calls(&mut self, core: usize) {
        let Some(life) = self.cores[core].life.as_mut() else {
            return;
        };
        for conn in life.connections.values_mut() {
            let machine = &mut conn.machine;
            conn.callers.retain(|id, caller| {
                let of_a_step = matches!(caller.who, Who::Step(_));
                if of_a_step {
                    machine.give_up(*id);
                }
                !of_a_step
            });
        }
    }
}

/// It asks what became of an operation, and begins none.
fn is_reconcile(arguments: &Arguments) -> bool {
    match arguments {
        Arguments::Suspend(suspend) => suspend.reconcile_only,
        Arguments::Resume(resume) => resume.reconcile_only,
        _ => false,
    }
}

/// One of a burst: it prints its number.
fn command(
    node: NodeId,
    generation: Generation,
    reference: Reference,
    marker: u64,
    on: ConnectionId,
    wait: Millis,
) -> Wanted {
    Wanted {
        node,
        generation,
        reference,
        arguments: Arguments::Command(Command {
            args: vec![marker.to_string()],
            directory: String::new(),
            stdin: None,
        }),
        on,
        wait,
        who: Who::Burst(marker),
    }
}
