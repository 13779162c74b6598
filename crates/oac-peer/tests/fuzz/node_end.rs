//! The node's machine against a Core that says anything.

use std::collections::{HashMap, HashSet};

use oac_model::{ConnectionId, RequestId};
use oac_peer::{
    FailureCode, Moment, Outcome,
    node::{Action, Attempt, Event, Local, Node, Reason, Refresh, Standing, StateName, Ticket},
};
use oac_wire::{
    CoreFrame, NodeFrame,
    frames::{
        HeartbeatAck, Request, RequestBody, ResponseResult, RetentionAck, RetentionAckControl,
        RetentionAnswer, Welcome,
    },
};

use super::{Story, random::Random, values::*};

const LANES: usize = 4;

/// What the machine asked for, and what it may do.
struct World {
    node: Node,
    managing: bool,
    now: Moment,
    stored_epoch: i64,
    dialing: bool,
    storing: Option<i64>,
    refreshing: bool,
    attempts: Vec<Attempt>,
    measuring: bool,
    running: Vec<Running>,
    /// The connection whose requests count, and the sequence that is next on it.
    current: Option<(ConnectionId, i64, i64)>,
    dials: u64,
    requests: u64,
    /// Delivered with the right claims on the current connection and not answered yet.
    unanswered: HashMap<RequestId, ConnectionId>,
    /// Numbers of the requests that may be run, once each.
    runnable: HashSet<u64>,
    exited: bool,
}

struct Running {
    ticket: Ticket,
    lane: u64,
    request: Box<RequestBody>,
    answered: bool,
}

/// What one event came to.
#[derive(Default)]
struct Seen {
    closed: Option<Reason>,
    responses: Vec<(RequestId, Option<String>)>,
    sent: usize,
    runs: usize,
}

pub(crate) fn run(mut random: Random, story: &mut Story) {
    let managing = random.one_in(2);
    let mut node = Node::new(identity(), 0, 1 + random.below(4), 7, Moment(0));
    if managing {
        node = node.managing(table(&mut random));
    }
    let mut world = World {
        node,
        managing,
        now: Moment(0),
        stored_epoch: 0,
        dialing: false,
        storing: None,
        refreshing: false,
        attempts: Vec::new(),
        measuring: false,
        running: Vec::new(),
        current: None,
        dials: 0,
        requests: 0,
        unanswered: HashMap::new(),
        runnable: HashSet::new(),
        exited: false,
    };
    for _ in 0..story.events() {
        world.step(&mut random, story);
        if world.exited && random.one_in(4) {
            break;
        }
    }
}

fn table(random: &mut Random) -> Vec<Local> {
    let mut table = Vec::new();
    for n in 1..=3 {
        if n == 1 || random.one_in(2) {
            table.push(Local {
                generation: generation(n),
                specification_digest: digest(n),
                standing: *random.pick(&[
                    Standing::Ready,
                    Standing::Ready,
                    Standing::Ready,
                    Standing::Ready,
                    Standing::Ready,
                    Standing::Preparing,
                    Standing::Preparing,
                    Standing::Preparing,
                    Standing::Failed(oac_model::DiagnosticCode::HostUnsupported),
                    Standing::Removing,
                    Standing::Stalled,
                    Standing::Dropped,
                ]),
                acquirable: !random.one_in(6),
            });
        }
    }
    table
}

impl World {
    fn step(&mut self, random: &mut Random, story: &mut Story) {
        // A shell answers soon; what comes in between is the rarer case.
        let choice = if self.dialing && !random.one_in(6) {
            2
        } else if self.measuring && !random.one_in(4) {
            4
        } else if self.refreshing && !random.one_in(4) {
            6
        } else if self.storing.is_some() && !random.one_in(4) {
            7
        } else if self.node.state() == StateName::Waiting && !random.one_in(4) {
            0
        } else if self.node.state() == StateName::Greeting && !random.one_in(4) {
            12
        } else {
            random.below(24)
        };
        match choice {
            0 | 1 => {
                let wait = *random.pick(&[0, 1, 500, 5_000, 10_000]);
                self.now = if self.node.state() == StateName::Waiting || random.one_in(6) {
                    self.node.next_wakeup().unwrap_or(self.now).max(self.now)
                } else {
                    self.now.plus_millis(wait)
                };
                self.apply(Event::Tick, story);
            }
            2 | 3 if self.dialing => {
                self.dialing = false;
                self.dials += 1;
                let event = match random.below(12) {
                    0 => Event::Refused,
                    1 => Event::DialFailed,
                    _ => Event::Upgraded,
                };
                self.apply(event, story);
            }
            4 | 5 if !self.attempts.is_empty() => {
                let attempt = if random.one_in(10) {
                    *random.pick(&self.attempts)
                } else {
                    self.attempts[self.attempts.len() - 1]
                };
                self.measuring = false;
                self.apply(
                    Event::Measured(attempt, Box::new(health(!random.one_in(5)))),
                    story,
                );
            }
            6 if self.refreshing => {
                self.refreshing = false;
                let refresh = match random.below(8) {
                    0 => Refresh::Refused,
                    1 => Refresh::Failed,
                    _ => Refresh::Confirmed {
                        identity: Box::new(identity()),
                        stored_epoch: self.stored_epoch,
                    },
                };
                self.apply(Event::Refreshed(refresh), story);
            }
            7 if self.storing.is_some() => self.store(random, story),
            8 | 9 if !self.running.is_empty() => self.finish(random, story),
            10 => self.oddity(random, story),
            11 if self.managing => {
                let table = table(random);
                self.apply(Event::Generations(table), story);
            }
            12 | 13 => self.greeting(random, story),
            _ => self.request(random, story),
        }
    }

    fn store(&mut self, random: &mut Random, story: &mut Story) {
        let stored = !random.one_in(6);
        if let Some(epoch) = self.storing.take()
            && stored
        {
            self.stored_epoch = epoch;
        }
        self.apply(Event::EpochStored(stored), story);
    }

    fn finish(&mut self, random: &mut Random, story: &mut Story) {
        let index = random.below(self.running.len());
        if self.running[index].answered {
            let ticket = self.running.remove(index).ticket;
            self.apply(Event::Ended(ticket), story);
        } else {
            self.running[index].answered = true;
            let (ticket, reference) = (self.running[index].ticket, self.running[index].request.reference);
            let outcome = match random.below(4) {
                0 => Outcome::failed(*random.pick(FailureCode::ALL)),
                1 => Outcome::Success(Some(ResponseResult::Info(info(random, reference)))),
                2 => Outcome::Success(Some(ResponseResult::Command(command_result()))),
                _ => Outcome::Success(None),
            };
            self.apply(Event::Answered(ticket, outcome), story);
        }
    }

    /// What has nothing to do with what was asked.
    fn oddity(&mut self, random: &mut Random, story: &mut Story) {
        match random.below(30) {
            0 => drop(self.apply(Event::Lost, story)),
            1 => drop(self.apply(Event::Unreadable, story)),
            2 => drop(self.apply(Event::Bytes(self.now), story)),
            3 => drop(self.apply(Event::Upgraded, story)),
            // While an epoch is being stored this would be the shell's answer, and no oddity.
            4 if self.storing.is_none() => drop(self.apply(Event::EpochStored(true), story)),
            5 => drop(self.apply(Event::Refreshed(Refresh::Failed), story)),
            6 if random.one_in(6) => drop(self.apply(Event::Stop, story)),
            7 => {
                let frame = CoreFrame::Welcome(Welcome {
                    connection_id: connection(random.below(3) as u64),
                    owner_epoch: epoch(1),
                    deployment: None,
                });
                let bytes = spoiled(random, &frame.encode().unwrap());
                self.apply(Event::Message(&bytes), story);
            }
            _ => {}
        }
    }

    /// Control frames, mostly of the current connection.
    fn greeting(&mut self, random: &mut Random, story: &mut Story) {
        let (own, own_epoch) = match self.current {
            Some((id, epoch, _)) if !random.one_in(10) => (id, epoch),
            _ => (connection(self.dials), self.stored_epoch.max(1)),
        };
        let owner_epoch = epoch(if random.one_in(16) {
            own_epoch + random.below(3) as i64 - 1
        } else {
            own_epoch
        });
        let with_deployment = if random.one_in(12) {
            !self.managing
        } else {
            self.managing
        };
        let deployment_facts = with_deployment.then(|| deployment(random));
        let frame = match (self.current.is_some(), random.below(8)) {
            (false, 0..=6) | (true, 0) => CoreFrame::Welcome(Welcome {
                connection_id: own,
                owner_epoch,
                deployment: deployment_facts,
            }),
            (_, 1) => CoreFrame::RetentionAck(RetentionAck {
                control: RetentionAckControl {
                    id: request_id(random.below(5) as u64),
                    sequence: 1 + random.below(3) as i64,
                    connection_id: own,
                    owner_epoch,
                    retentions: vec![RetentionAnswer {
                        generation: generation(3),
                        specification_digest: digest(3),
                        keep: random.one_in(2),
                    }],
                },
                deployment: deployment(random),
            }),
            _ => CoreFrame::HeartbeatAck(HeartbeatAck {
                connection_id: own,
                owner_epoch,
                deployment: deployment_facts,
            }),
        };
        let text = frame.encode().unwrap();
        self.apply(Event::Message(text.as_bytes()), story);
        if self.storing.is_some() && !random.one_in(4) {
            self.store(random, story);
        }
    }

    fn request(&mut self, random: &mut Random, story: &mut Story) {
        let Some((own, own_epoch, next)) = self.current else {
            return self.greeting(random, story);
        };
        let wrong = if random.one_in(12) { 1 + random.below(4) } else { 0 };
        let (mut id, mut owner_epoch, mut sequence) = (own, own_epoch, next);
        match wrong {
            1 => id = connection(900),
            2 => owner_epoch += 1,
            3 => sequence += 1 + random.below(3) as i64,
            4 => sequence = (sequence - 1).max(1),
            _ => {}
        }
        let right = (id, owner_epoch, sequence) == (own, own_epoch, next);
        self.requests += 1;
        let number = self.requests;
        let lane = random.below(LANES) as u64;
        let reference = reference(lane, number);
        let of = if self.managing {
            1 + random.below(3) as i64
        } else {
            1
        };
        let other_generation = !self.managing && random.one_in(40);
        let asked = if other_generation { 2 } else { of };
        let request = Request {
            id: request_id(number),
            sequence,
            connection_id: id,
            owner_epoch: epoch(owner_epoch),
            deployment_generation: asked,
            body: Ok(RequestBody {
                deployment_generation: generation(asked),
                timeout_ms: *random.pick(&[1, 1_000, 30_000, 120_000]),
                reference,
                arguments: arguments(random, reference),
            }),
        };
        let mut text = CoreFrame::Request(Box::new(request)).encode().unwrap();
        let invalid = random.one_in(8);
        if invalid {
            let milliseconds = text.find("\"timeout_ms\":").unwrap();
            text.replace_range(milliseconds..milliseconds + 14, "\"timeout_ms\":0");
            // What stood behind the first digit makes the number another one that is out of bounds, or ends it.
            text = fix_number(&text, milliseconds);
        }
        story.counts().requests += 1;
        if right && !other_generation {
            self.unanswered.insert(request_id(number), own);
            self.current = Some((own, own_epoch, next + 1));
            if !invalid {
                self.runnable.insert(number);
            }
        }
        let seen = self.apply(Event::Message(text.as_bytes()), story);
        if !right || other_generation {
            story.counts().violations += 1;
            assert!(
                matches!(seen.closed, Some(Reason::Violation(_))),
                "a violation closes, and nothing else is said of it: {:?}",
                seen.closed
            );
            assert_eq!((seen.sent, seen.runs), (0, 0), "a violation has no effect");
        } else if invalid {
            assert_eq!(seen.closed, None, "an invalid request closes nothing");
            let said = (request_id(number), Some("invalid".to_owned()));
            assert!(seen.responses.contains(&said), "{:?}", seen.responses);
        } else {
            assert!(
                matches!(seen.closed, None | Some(Reason::QueueFull)),
                "a right request closes nothing but a full queue: {:?}",
                seen.closed
            );
        }
    }

    fn apply(&mut self, event: Event<'_>, story: &mut Story) -> Seen {
        story.tell(|| match &event {
            Event::Message(text) => format!(
                "{} {:?} message {}",
                self.now.0,
                self.node.state(),
                String::from_utf8_lossy(text)
            ),
            event => format!("{} {:?} {event:?}", self.now.0, self.node.state()),
        });
        let actions = self.node.apply(event, self.now);
        let mut seen = Seen::default();
        for action in actions {
            assert!(!self.exited, "something follows the exit: {action:?}");
            self.perform(action, &mut seen, story);
        }
        if self.node.state() != StateName::Live {
            self.current = None;
        }
        assert!(self.node.active_operations() <= 4, "more operations than slots");
        seen
    }

    fn perform(&mut self, action: Action, seen: &mut Seen, story: &mut Story) {
        match action {
            Action::Dial => self.dialing = true,
            Action::Measure(attempt) => {
                self.attempts.push(attempt);
                self.measuring = true;
            }
            Action::StoreEpoch(epoch) => {
                assert!(
                    epoch.get() > self.stored_epoch,
                    "the stored epoch never decreases"
                );
                self.storing = Some(epoch.get());
            }
            Action::Accepted(id, epoch) => {
                assert_eq!(
                    epoch.get(),
                    self.stored_epoch,
                    "the epoch is durable before the first request"
                );
                self.current = Some((id, epoch.get(), 1));
                story.counts().live += 1;
            }
            Action::Refresh => self.refreshing = true,
            Action::Close(reason) => {
                self.current = None;
                self.dialing = false;
                self.storing = None;
                self.unanswered.clear();
                seen.closed = Some(reason);
            }
            Action::Send(text) => {
                seen.sent += 1;
                assert_eq!(seen.closed, None, "something is sent after the close");
                let frame = NodeFrame::decode(text.as_bytes())
                    .unwrap_or_else(|e| panic!("the node sends what closes: {e}: {text}"));
                match frame {
                    NodeFrame::Response(response) => {
                        let asked_on = self.unanswered.remove(&response.id);
                        assert_eq!(
                            asked_on,
                            Some(response.connection_id),
                            "one answer, on its own connection: {text}"
                        );
                        seen.responses.push((response.id, response.error_code));
                        story.counts().answers += 1;
                    }
                    NodeFrame::Heartbeat(heartbeat) => {
                        assert_eq!(heartbeat.health.generations.is_some(), self.managing);
                    }
                    _ => {}
                }
            }
            Action::Run(job) => {
                seen.runs += 1;
                let number = number_of(job.request.reference.environment_id) - 1;
                let lane = number_of(job.request.reference.allocation_id);
                assert!(
                    self.runnable.remove(&number),
                    "request {number} is run twice or was never accepted"
                );
                assert!(
                    self.running.iter().all(|r| r.lane != lane),
                    "two operations of one allocation overlap"
                );
                self.running.push(Running {
                    ticket: job.ticket,
                    lane,
                    request: job.request,
                    answered: false,
                });
            }
            Action::Exit(_) => self.exited = true,
            Action::Deployment(_) | Action::Granted(..) => assert!(self.managing, "this node is fixed"),
        }
    }
}

/// `"timeout_ms":0` followed by the rest of another number: the rest goes.
fn fix_number(text: &str, at: usize) -> String {
    let end = at + "\"timeout_ms\":0".len();
    let rest = text[end..].trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{}{rest}", &text[..end])
}
