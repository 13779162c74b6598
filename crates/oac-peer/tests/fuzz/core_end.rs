//! Core's machine against a node that says anything.

use std::collections::{HashMap, HashSet};

use oac_model::{AllocationId, Reference, RequestId};
use oac_peer::{
    Moment, Outcome,
    core::{
        Action, Call, CallOutcome, CloseReason, Connection, Event, Facts, RecordFailure, Recorded,
        Registered, RetentionAnswer, StateName, Unsent,
    },
};
use oac_wire::{
    CoreFrame, NodeFrame,
    frames::{
        GenerationState, GenerationStatus, Heartbeat, Hello, Response, ResponseResult, Retention,
        RetentionControl, RetentionReference,
    },
    limits,
    shapes::{Operation, Unsupported},
};

use super::{Story, random::Random, values::*};

const REASON: &str = "not_here";

struct World {
    connection: Connection,
    managing: bool,
    now: Moment,
    recording_presence: bool,
    presence_recorded: bool,
    recording_health: bool,
    answering: Option<usize>,
    removing: bool,
    sequence: i64,
    retentions: i64,
    calls: u64,
    /// Sent and not answered, with what they asked.
    pending: HashMap<RequestId, Asked>,
    /// Callers that wait.
    waiting: HashSet<RequestId>,
    closed: bool,
    freed: bool,
}

#[derive(Clone, Copy)]
struct Asked {
    operation: Operation,
    reference: Reference,
    unsupported: bool,
}

pub(crate) fn run(mut random: Random, story: &mut Story) {
    let mut dial = 0;
    let mut events = 0;
    while events < story.events() {
        events += one_connection(&mut random, story, dial);
        dial += 1;
    }
}

/// How many events the connection took.
fn one_connection(random: &mut Random, story: &mut Story, dial: u64) -> usize {
    let i = identity();
    let managing = random.one_in(2);
    let registered = Registered {
        node_id: i.node_id,
        installation_id: i.installation_id,
        provider: i.provider,
        backend_fingerprint: i.backend_fingerprint,
        deployment_generation: i.deployment_generation,
        specification_digest: i.specification_digest,
        managing: managing && random.one_in(2),
    };
    let mut world = World {
        connection: Connection::open(registered, connection(dial), epoch(1), Moment(0)),
        managing,
        now: Moment(0),
        recording_presence: false,
        presence_recorded: false,
        recording_health: false,
        answering: None,
        removing: false,
        sequence: 0,
        retentions: 0,
        calls: 0,
        pending: HashMap::new(),
        waiting: HashSet::new(),
        closed: false,
        freed: false,
    };
    for events in 1.. {
        world.step(random, story);
        if events >= story.events() || (world.closed && random.one_in(6)) {
            return events;
        }
    }
    0
}

impl World {
    fn step(&mut self, random: &mut Random, story: &mut Story) {
        // A shell answers soon; what comes in between is the rarer case.
        let choice = if self.recording_presence && !random.one_in(8) {
            1
        } else if self.recording_health && !random.one_in(3) {
            4
        } else if self.connection.state() == StateName::Opening && !random.one_in(8) {
            21
        } else {
            random.below(22)
        };
        match choice {
            0 => {
                let wait = *random.pick(&[0, 1, 1_000, 5_000, 10_000, 34_999]);
                self.now = if random.one_in(6) {
                    self.connection.next_wakeup().unwrap_or(self.now).max(self.now)
                } else {
                    self.now.plus_millis(wait)
                };
                self.apply(Event::Tick, story);
            }
            1..=3 if self.recording_presence => {
                self.recording_presence = false;
                let recorded = recorded(random, self.managing);
                self.presence_recorded = matches!(recorded, Recorded::Done(_));
                self.apply(Event::PresenceRecorded(recorded), story);
            }
            4 | 5 if self.recording_health => {
                self.recording_health = false;
                let recorded = recorded(random, self.managing);
                self.apply(Event::HealthRecorded(recorded), story);
            }
            6 if self.answering.is_some() => {
                let entries = self.answering.take().unwrap_or_default();
                let answer = if random.one_in(40) {
                    RetentionAnswer::Failed(RecordFailure::Storage)
                } else {
                    RetentionAnswer::Done {
                        keep: (0..entries).map(|_| random.one_in(2)).collect(),
                        deployment: deployment(random),
                    }
                };
                self.apply(Event::RetentionAnswered(answer), story);
            }
            7 if self.removing && random.one_in(2) => {
                self.removing = false;
                self.apply(Event::PresenceRemoved, story);
            }
            8..=12 => {
                // Now and then more than a connection takes.
                for _ in 0..if random.one_in(12) { 40 } else { 1 } {
                    self.call(random, story);
                }
            }
            13..=16 if !self.pending.is_empty() => self.response(random, story),
            17 => self.oddity(random, story),
            18 if !self.waiting.is_empty() => {
                let mut ids: Vec<RequestId> = self.waiting.iter().copied().collect();
                ids.sort_unstable_by_key(|id| id.to_string());
                let id = *random.pick(&ids);
                self.waiting.remove(&id);
                self.connection.give_up(id);
            }
            _ => self.control(random, story),
        }
    }

    fn oddity(&mut self, random: &mut Random, story: &mut Story) {
        match random.below(120) {
            0 => self.apply(Event::Unreadable, story),
            1 => self.apply(Event::Lost, story),
            2 => self.apply(Event::EpochLost, story),
            3 => self.apply(Event::Stop, story),
            4 => self.apply(Event::PresenceRemoved, story),
            5 => self.apply(Event::HealthRecorded(Recorded::Done(None)), story),
            6 | 7 => self.apply(Event::Bytes(self.now), story),
            8 => {
                let text = heartbeat(random, self.connection.connection_id(), 1, self.managing);
                let bytes = spoiled(random, &text);
                self.apply(Event::Message(&bytes, wall()), story);
            }
            _ => {}
        }
    }

    fn control(&mut self, random: &mut Random, story: &mut Story) {
        let opening = self.connection.state() == StateName::Opening;
        let own = if random.one_in(150) {
            connection(900)
        } else {
            self.connection.connection_id()
        };
        let owner_epoch = if random.one_in(150) { 2 } else { 1 };
        let text = if opening && !random.one_in(12) {
            let mut identity = identity();
            if random.one_in(20) {
                identity.deployment_generation = generation(2);
            }
            let frame = Hello {
                identity,
                health: managed(random, self.managing),
                generation_management: self.managing.then_some(true),
            };
            NodeFrame::Hello(Box::new(frame)).encode().unwrap()
        } else if self.managing && random.one_in(3) && (self.answering.is_none() || random.one_in(20)) {
            self.retentions += 1;
            if random.one_in(30) {
                self.retentions += 1;
            }
            let references = (1..=1 + random.below(3) as i64)
                .map(|n| RetentionReference {
                    generation: generation(n),
                    specification_digest: digest(n),
                })
                .collect();
            let control = RetentionControl {
                id: request_id(self.retentions as u64),
                sequence: self.retentions,
                connection_id: own,
                owner_epoch: epoch(owner_epoch),
                references,
            };
            NodeFrame::Retention(Retention { control }).encode().unwrap()
        } else {
            heartbeat(random, own, owner_epoch, self.managing)
        };
        self.apply(Event::Message(text.as_bytes(), wall()), story);
    }

    fn call(&mut self, random: &mut Random, story: &mut Story) {
        self.calls += 1;
        let id = request_id(self.calls);
        let reference = reference(random.below(3) as u64, random.below(2) as u64);
        let arguments = arguments(random, reference);
        let asked = Asked {
            operation: arguments.operation(),
            reference,
            unsupported: random.one_in(4),
        };
        let call = Call {
            id,
            generation: generation(if random.one_in(10) { 2 } else { 1 }),
            reference,
            arguments,
            deadline: self
                .now
                .plus_millis(*random.pick(&[0, 1, 100, 30_000, 120_000, 500_000])),
            unsupported_reason: asked.unsupported.then_some(REASON),
        };
        let no_time = call.deadline <= self.now;
        let outstanding = |world: &Self, allocation: AllocationId| {
            let mut asked = world.pending.values();
            asked.any(|a| a.operation.is_mutation() && a.reference.allocation_id == allocation)
        };
        let blocked = asked.operation.is_mutation() && outstanding(self, reference.allocation_id);
        story.tell(|| format!("{} {:?} call {call:?}", self.now.0, self.connection.state()));
        match self.connection.call(call, self.now) {
            Ok(Action::Send(text)) => {
                story.counts().requests += 1;
                assert!(
                    self.presence_recorded && !self.closed,
                    "sent on no live connection"
                );
                assert!(!no_time, "sent without time left");
                assert!(
                    !blocked,
                    "a second lifecycle mutation of one allocation is outstanding"
                );
                let frame = CoreFrame::decode(text.as_bytes())
                    .unwrap_or_else(|e| panic!("Core sends what closes: {e}: {text}"));
                let CoreFrame::Request(request) = frame else {
                    panic!("a call sends no request: {text}");
                };
                self.sequence += 1;
                assert_eq!(request.sequence, self.sequence, "sequences are 1, 2, 3 and so on");
                let body = request
                    .body
                    .unwrap_or_else(|e| panic!("Core sends what is invalid: {e}: {text}"));
                assert!((1..=120_000).contains(&body.timeout_ms), "{}", body.timeout_ms);
                self.pending.insert(id, asked);
                self.waiting.insert(id);
                assert!(
                    self.pending.len() <= limits::OPERATIONS,
                    "more than 32 are pending"
                );
            }
            Ok(other) => panic!("a call does something else: {other:?}"),
            Err(Unsent::Full) => assert_eq!(self.pending.len(), limits::OPERATIONS),
            Err(Unsent::MutationOutstanding) => assert!(blocked, "nothing is outstanding"),
            Err(_) => {}
        }
    }

    fn response(&mut self, random: &mut Random, story: &mut Story) {
        let mut ids: Vec<RequestId> = self.pending.keys().copied().collect();
        ids.sort_unstable_by_key(|id| id.to_string());
        let id = if random.one_in(10) {
            request_id(9_999)
        } else {
            *random.pick(&ids)
        };
        let foreign = random.one_in(150);
        let known = self.pending.get(&id).copied();
        let about = known.map_or_else(|| reference(0, 0), |asked| asked.reference);
        let about = if random.one_in(8) { reference(7, 7) } else { about };
        let result = match random.below(6) {
            0 => Some(ResponseResult::Info(info(random, about))),
            1 => Some(ResponseResult::Command(command_result())),
            2 => Some(ResponseResult::Unsupported(Unsupported {
                operation: known.map_or("Kill", |a| a.operation.method()).to_owned(),
                reason: random.pick(&[REASON, "another"]).to_string(),
            })),
            _ => known
                .filter(|a| matches!(a.operation, Operation::Create | Operation::Info))
                .map(|_| ResponseResult::Info(info(random, about))),
        };
        let error_code = random.pick(&[
            None,
            None,
            Some("invalid"),
            Some("not_found"),
            Some("unsupported"),
            Some("unconfirmed"),
            Some("who_knows"),
        ]);
        let response = Response {
            id,
            connection_id: if foreign {
                connection(900)
            } else {
                self.connection.connection_id()
            },
            error_code: error_code.map(str::to_owned),
            result: Ok(result),
        };
        let mut text = NodeFrame::Response(Box::new(response)).encode().unwrap();
        if random.one_in(10) {
            text = text.replace(r#""exit_code":0"#, r#""exit_code":256"#);
        }
        let live = self.connection.state() == StateName::Live;
        self.apply(Event::Message(text.as_bytes(), wall()), story);
        if foreign && live {
            story.counts().violations += 1;
            assert!(self.closed, "a response with another connection_id closes");
        } else if live && !self.closed && self.pending.remove(&id).is_some() {
            story.counts().answers += 1;
        }
    }

    fn apply(&mut self, event: Event<'_>, story: &mut Story) {
        story.tell(|| match &event {
            Event::Message(text, _) => {
                format!(
                    "{} {:?} message {}",
                    self.now.0,
                    self.connection.state(),
                    String::from_utf8_lossy(text)
                )
            }
            event => format!("{} {:?} {event:?}", self.now.0, self.connection.state()),
        });
        for action in self.connection.apply(event, self.now) {
            self.perform(action, story);
        }
        if self.closed {
            assert!(self.waiting.is_empty(), "a caller waits on a closed connection");
        }
        assert!(
            self.connection.pending() <= limits::OPERATIONS,
            "more than 32 are pending"
        );
    }

    fn perform(&mut self, action: Action, story: &mut Story) {
        match action {
            Action::RecordPresence(presence) => {
                assert_eq!(presence.identity, identity(), "another node is recorded");
                self.recording_presence = true;
            }
            Action::RecordHealth(_) => {
                assert!(
                    self.presence_recorded && !self.closed,
                    "health of no live connection is recorded"
                );
                self.recording_health = true;
            }
            Action::AnswerRetention(entries) => {
                assert!(self.managing && !self.closed);
                self.answering = Some(entries.len());
            }
            Action::Send(text) => {
                assert!(
                    self.presence_recorded,
                    "something is sent before presence is recorded"
                );
                assert!(!self.closed, "something is sent after the close");
                CoreFrame::decode(text.as_bytes())
                    .unwrap_or_else(|e| panic!("Core sends what closes: {e}: {text}"));
            }
            Action::Live => story.counts().live += 1,
            Action::Resolve(id, outcome) => {
                assert!(self.waiting.remove(&id), "a caller is told twice, or gave up");
                if let (CallOutcome::Answered(outcome), Some(asked)) = (outcome, self.pending.get(&id)) {
                    told(&outcome, asked);
                }
            }
            Action::Close(reason) => {
                assert!(!self.closed, "closed twice");
                if matches!(reason, CloseReason::ConnectionId | CloseReason::OwnerEpoch) {
                    story.counts().violations += 1;
                }
                self.closed = true;
            }
            Action::RemovePresence(id) => {
                assert_eq!(
                    id,
                    self.connection.connection_id(),
                    "another connection's presence is removed"
                );
                self.removing = true;
            }
            Action::Free => {
                assert!(self.closed && !self.freed, "freed twice or while open");
                self.freed = true;
            }
        }
    }
}

/// What a caller is told is what the protocol lets an answer say.
fn told(outcome: &Outcome, asked: &Asked) {
    match outcome {
        Outcome::Success(Some(ResponseResult::Info(info))) => {
            assert_eq!(info.reference, asked.reference, "a success about something else");
            assert!(!info.provider_id.is_empty() || info.is_settled_receipt_of(&asked.reference));
        }
        Outcome::Failed {
            receipt: Some(info), ..
        } => assert!(
            info.is_settled_receipt_of(&asked.reference),
            "a failure with a result that is no receipt"
        ),
        Outcome::Unsupported(evidence) => {
            assert!(
                asked.unsupported && evidence.reason == REASON,
                "evidence that Core does not declare"
            );
            assert_eq!(evidence.operation, asked.operation.method());
        }
        _ => {}
    }
}

fn recorded(random: &mut Random, managing: bool) -> Recorded {
    match random.below(150) {
        0 => Recorded::Failed(RecordFailure::Storage),
        1 => Recorded::Failed(RecordFailure::Credential),
        _ => Recorded::Done(managing.then(|| Facts {
            deployment: deployment(random),
            ignored: Vec::new(),
        })),
    }
}

fn managed(random: &mut Random, managing: bool) -> oac_wire::frames::Health {
    let mut health = health(!managing && !random.one_in(6));
    if managing {
        let status = |n| GenerationStatus {
            generation: generation(n),
            specification_digest: digest(n),
            state: GenerationState::Ready,
            diagnostic: None,
        };
        health.generations = Some((1..=2).map(status).collect());
    }
    health
}

fn heartbeat(
    random: &mut Random,
    connection_id: oac_model::ConnectionId,
    owner_epoch: i64,
    managing: bool,
) -> String {
    let frame = Heartbeat {
        connection_id,
        owner_epoch: epoch(owner_epoch),
        health: managed(random, managing),
    };
    NodeFrame::Heartbeat(Box::new(frame)).encode().unwrap()
}
