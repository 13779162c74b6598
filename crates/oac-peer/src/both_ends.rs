//! Both machines against each other over a pipe that delivers late and breaks, with invariants after each step.

use std::collections::{HashMap, HashSet, VecDeque};

use oac_model::RequestId;
use oac_wire::{
    B64,
    frames::{Arguments, ResponseResult},
    shapes::{Command, CommandResult},
};
use proptest::prelude::*;

use crate::{
    Moment, Outcome, core,
    core::{Call, CallOutcome, Connection, Recorded, Registered, Uncertain},
    fixtures::*,
    node,
    node::{Node, StateName, Ticket},
};

const LANES: u64 = 3;

/// Everything between and around the two machines. Each call is a command whose argument is its number, and whose
/// output repeats it, so that every answer can be traced to the run it came from.
struct World {
    now: Moment,
    node: Node,
    /// Core's end of the current dial.
    core: Option<Connection>,
    connections: u64,
    to_core: VecDeque<String>,
    to_node: VecDeque<String>,
    stored_epoch: i64,
    owner_epoch: i64,
    dialing: bool,
    refreshing: bool,
    measuring: VecDeque<node::Attempt>,
    recording_presence: bool,
    recording_health: bool,
    /// Started operations: ticket, lane, call, and whether the call returned.
    open: Vec<(Ticket, u64, u64, bool)>,
    ran: HashSet<u64>,
    /// Calls whose caller waits.
    waiting: HashMap<RequestId, u64>,
    answered: usize,
    calls: u64,
}

/// The node's row as Core found it at the dial.
pub(crate) fn registered(managing: bool) -> Registered {
    let i = identity();
    Registered {
        node_id: i.node_id,
        installation_id: i.installation_id,
        provider: i.provider,
        backend_fingerprint: i.backend_fingerprint,
        deployment_generation: i.deployment_generation,
        specification_digest: i.specification_digest,
        managing,
    }
}

impl World {
    fn new() -> Self {
        Self {
            now: Moment(0),
            node: Node::new(identity(), 0, 2, 3, Moment(0)),
            core: None,
            connections: 0,
            to_core: VecDeque::new(),
            to_node: VecDeque::new(),
            stored_epoch: 0,
            owner_epoch: 1,
            dialing: false,
            refreshing: false,
            measuring: VecDeque::new(),
            recording_presence: false,
            recording_health: false,
            open: Vec::new(),
            ran: HashSet::new(),
            waiting: HashMap::new(),
            answered: 0,
            calls: 0,
        }
    }

    fn node_takes(&mut self, event: node::Event<'_>) {
        let mut actions = VecDeque::from(self.node.apply(event, self.now));
        while let Some(action) = actions.pop_front() {
            match action {
                node::Action::Dial => self.dialing = true,
                node::Action::Measure(attempt) => self.measuring.push_back(attempt),
                node::Action::Send(text) => self.to_core.push_back(text),
                node::Action::StoreEpoch(epoch) => {
                    assert!(
                        epoch.get() > self.stored_epoch,
                        "the stored epoch never decreases"
                    );
                    self.stored_epoch = epoch.get();
                    actions.extend(self.node.apply(node::Event::EpochStored(true), self.now));
                }
                node::Action::Accepted(_, epoch) => {
                    assert_eq!(
                        epoch.get(),
                        self.stored_epoch,
                        "durable before the connection is current"
                    );
                }
                node::Action::Close(_) => self.cut_at_core(),
                node::Action::Refresh => self.refreshing = true,
                node::Action::Run(job) => {
                    let Arguments::Command(command) = &job.request.arguments else {
                        panic!("only commands are called");
                    };
                    let call: u64 = command.args[0].parse().unwrap();
                    let lane = call % LANES;
                    assert_eq!(job.request.reference, reference(lane));
                    assert!(self.open.iter().all(|o| o.1 != lane), "one allocation overlaps");
                    assert!(self.ran.insert(call), "call {call} ran twice");
                    self.open.push((job.ticket, lane, call, false));
                }
                node::Action::Exit(exit) => panic!("nothing ends this node: {exit:?}"),
                node::Action::Deployment(_) | node::Action::Granted(..) => panic!("this node is fixed"),
            }
        }
    }

    fn core_takes(&mut self, event: core::Event<'_>) {
        let Some(mut connection) = self.core.take() else {
            return;
        };
        let actions = connection.apply(event, self.now);
        self.core = Some(connection);
        let mut cut = false;
        for action in actions {
            match action {
                core::Action::RecordPresence(_) => self.recording_presence = true,
                core::Action::RecordHealth(_) => self.recording_health = true,
                core::Action::Send(text) => self.to_node.push_back(text),
                core::Action::Resolve(id, outcome) => self.told(id, outcome),
                core::Action::Close(_) => cut = true,
                core::Action::Free => self.core = None,
                core::Action::Live | core::Action::RemovePresence(_) => {}
                core::Action::AnswerRetention(_) => panic!("this node is fixed"),
            }
        }
        if cut {
            self.to_core.clear();
            self.node_takes(node::Event::Lost);
        }
    }

    fn told(&mut self, id: RequestId, outcome: CallOutcome) {
        let call = self.waiting.remove(&id).expect("a caller is told once");
        if let CallOutcome::Answered(Outcome::Success(Some(ResponseResult::Command(result)))) = outcome {
            assert_eq!(
                result.stdout.0,
                call.to_string().into_bytes(),
                "another call's answer"
            );
            assert!(self.ran.contains(&call));
            self.answered += 1;
        }
    }

    /// The socket is gone as Core sees it.
    fn cut_at_core(&mut self) {
        self.dialing = false;
        self.to_node.clear();
        self.core_takes(core::Event::Lost);
    }

    fn call(&mut self, patience_millis: u64) {
        let Some(connection) = &mut self.core else { return };
        self.calls += 1;
        let number = self.calls;
        let command = Command {
            args: vec![number.to_string()],
            directory: String::new(),
            stdin: None,
        };
        let call = Call {
            id: request_id(number),
            generation: generation(1),
            reference: reference(number % LANES),
            arguments: Arguments::Command(command),
            deadline: self.now.plus_millis(patience_millis),
            unsupported_reason: None,
        };
        // What is refused unsent never reaches the node: `ran` would show it.
        if let Ok(core::Action::Send(text)) = connection.call(call, self.now) {
            self.waiting.insert(request_id(number), number);
            self.to_node.push_back(text);
        }
    }

    fn dial(&mut self) {
        if !std::mem::take(&mut self.dialing) {
            return;
        }
        if self.core.is_some() {
            // 409: the identity is not free.
            return self.node_takes(node::Event::DialFailed);
        }
        self.connections += 1;
        (self.recording_presence, self.recording_health) = (false, false);
        self.to_core.clear();
        let id = connection(self.connections);
        self.core = Some(Connection::open(
            registered(false),
            id,
            epoch(self.owner_epoch),
            self.now,
        ));
        self.node_takes(node::Event::Upgraded);
    }

    fn step(&mut self, step: u8, amount: u64) {
        match step {
            0 => self.dial(),
            1 => {
                if let Some(attempt) = self.measuring.pop_front() {
                    self.node_takes(node::Event::Measured(attempt, Box::new(health(true))));
                }
            }
            2 | 3 => {
                if let Some(text) = self.to_core.pop_front() {
                    self.core_takes(core::Event::Message(text.as_bytes(), wall()));
                }
            }
            4 | 5 => {
                if let Some(text) = self.to_node.pop_front() {
                    self.node_takes(node::Event::Message(text.as_bytes()));
                }
            }
            6 => {
                if std::mem::take(&mut self.recording_presence) {
                    self.core_takes(core::Event::PresenceRecorded(Recorded::Done(None)));
                }
                if std::mem::take(&mut self.recording_health) {
                    self.core_takes(core::Event::HealthRecorded(Recorded::Done(None)));
                }
            }
            7 | 8 => self.call(amount % 20_000),
            9 => {
                let returned = self.open.iter_mut().find(|o| !o.3).map(|open| {
                    open.3 = true;
                    (open.0, open.2)
                });
                if let Some((ticket, call)) = returned {
                    let result = CommandResult {
                        stdout: B64(call.to_string().into_bytes()),
                        ..command_result()
                    };
                    let outcome = Outcome::Success(Some(ResponseResult::Command(result)));
                    self.node_takes(node::Event::Answered(ticket, outcome));
                }
            }
            10 if !self.open.is_empty() => {
                let (ticket, ..) = self.open.remove(amount as usize % self.open.len());
                self.node_takes(node::Event::Ended(ticket));
            }
            11 => {
                self.now = self.now.plus_millis(amount % 8_000);
                self.node_takes(node::Event::Tick);
                self.core_takes(core::Event::Tick);
                // Whoever was woken has done what was due: a shell that sleeps until the next wakeup never spins.
                let node = self.node.next_wakeup();
                assert!(node.is_none_or(|due| due > self.now), "{:?}", self.node.state());
                let core = self.core.as_ref().and_then(Connection::next_wakeup);
                assert!(core.is_none_or(|due| due > self.now), "{:?}", self.core);
            }
            12 if self.is_closing() => self.core_takes(core::Event::PresenceRemoved),
            13 if self.refreshing => {
                self.refreshing = false;
                self.node_takes(node::Event::Refreshed(node::Refresh::Failed));
            }
            // Rarely: the wire breaks, or another Core takes over.
            14 | 15 if amount.is_multiple_of(5) => {
                self.to_core.clear();
                self.cut_at_core();
                self.node_takes(node::Event::Lost);
            }
            14 | 15 if amount.is_multiple_of(7) => {
                self.owner_epoch += 1;
                self.core_takes(core::Event::EpochLost);
            }
            _ => {}
        }
    }

    fn is_closing(&self) -> bool {
        let state = self.core.as_ref().map(Connection::state);
        state == Some(core::StateName::Closing)
    }

    /// Everyone does their part, in order, and nothing breaks.
    fn calm(&mut self) {
        for round in 0..400 {
            for step in 0..14 {
                if !matches!(step, 7 | 8 | 10) {
                    self.step(step, 500);
                }
            }
            self.step(10, round);
        }
    }
}

proptest! {
    // req: P-057, P-068
    // inv: INV-P6, INV-P7, INV-P8, INV-P12, INV-N24, INV-N27
    #[test]
    fn no_call_runs_twice_each_caller_is_told_once_and_the_two_always_find_each_other_again(
        steps in prop::collection::vec((0u8..16, any::<u64>()), 1..400),
    ) {
        let mut world = World::new();
        world.calm();
        for (step, amount) in steps {
            world.step(step, amount);
            prop_assert!(world.node.active_operations() == world.open.len());
        }
        world.calm();
        prop_assert_eq!(world.node.state(), StateName::Live);
        prop_assert_eq!(world.core.as_ref().map(Connection::state), Some(core::StateName::Live));
        prop_assert!(world.waiting.is_empty(), "a caller was forgotten: {:?}", world.waiting);
        let before = world.answered;
        world.call(60_000);
        world.calm();
        prop_assert_eq!(world.answered, before + 1, "a calm world answers");
    }
}

#[test]
fn a_cut_wire_leaves_a_sent_command_uncertain_and_it_is_never_sent_again() {
    let mut world = World::new();
    world.calm();
    world.call(60_000);
    world.step(4, 0);
    assert_eq!(world.ran.len(), 1);
    let mut connection = world.core.take().unwrap();
    let told = connection.apply(core::Event::Lost, world.now);
    assert!(told.contains(&core::Action::Resolve(
        request_id(1),
        CallOutcome::Uncertain(Uncertain::Disconnected)
    )));
    world.waiting.clear();
    world.node_takes(node::Event::Lost);
    world.calm();
    assert_eq!(world.ran.len(), 1);
    assert_eq!(world.answered, 0);
}
