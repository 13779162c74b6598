use oac_model::{ConnectionId, OwnerEpoch, RequestId};
use oac_wire::{
    CoreFrame, NodeFrame,
    frames::{
        Arguments, Health, Heartbeat, HeartbeatAck, Hello, Identity, Request, RequestBody, Response,
        ResponseResult, Welcome,
    },
};

use super::{
    Action, Asked, Attempt, Event, Exit, Job, Reason, Refresh, Violation, backoff::Backoff,
    schedule::Schedule,
};
use crate::{
    FailureCode, Moment, Outcome,
    limits::{DIAL_MILLIS, HEARTBEAT_MILLIS, SILENCE_MILLIS, WELCOME_MILLIS},
    outcome::is_success_of,
};

/// The node's end of its one connection (protocol.md section 5).
///
/// | state | event | next | actions |
/// |---|---|---|---|
/// | Waiting | backoff elapsed | Dialing | Dial |
/// | Dialing | Upgraded | Greeting | Measure, then Send hello |
/// | Dialing | Refused (401) | Refreshing | Close, Refresh: GET identity confirms it first |
/// | Dialing | DialFailed, 10 s | Waiting | Close |
/// | Greeting | welcome, epoch known | Live | Accepted |
/// | Greeting | welcome, higher epoch | Greeting | StoreEpoch |
/// | Greeting | EpochStored(true) | Live | Accepted |
/// | Greeting | EpochStored(false), 15 s after hello, invalid or other frame, Lost | Waiting | Close |
/// | Greeting, Live | ownership violation | Refreshing | Close, Refresh |
/// | Live | Bytes, Message | Live | restarts the 35 s silence |
/// | Live | 10 s since the last beat | Live | Measure, then Send heartbeat |
/// | Live | request | Live | Run, or Send the answer |
/// | Live | invalid frame, silence, Lost, full queue | Waiting | Close; what waits is discarded |
/// | Refreshing | Refreshed(Confirmed or Failed) | Waiting | |
/// | Refreshing | Refreshed(Refused) | Stopped | Exit(Unauthorized) |
/// | any but Stopped | Stop | Stopped | Close, Exit(Stopped) |
///
/// `Answered` and `Ended` move no state: they end operations, whose answers leave only on the connection that asked.
/// Every other pair is ignored.
#[derive(Debug)]
pub struct Node {
    state: State,
    identity: Identity,
    /// Never decreases; 0 before the first welcome.
    stored_epoch: i64,
    /// Whether the latest probe of this process succeeded.
    ready: bool,
    attempt: Attempt,
    backoff: Backoff,
    schedule: Schedule<Asked, Box<RequestBody>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting { until: Moment },
    Dialing { since: Moment },
    Greeting { since: Moment, greeting: Greeting },
    Live(Live),
    Refreshing { since: Moment },
    Stopped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Greeting {
    /// The first health report is being made.
    Measuring,
    /// Hello was sent then.
    Hello { sent: Moment },
    /// The welcome's higher epoch is being made durable.
    Storing {
        connection_id: ConnectionId,
        owner_epoch: OwnerEpoch,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Live {
    /// Of the attempt, for the backoff.
    since: Moment,
    connection_id: ConnectionId,
    owner_epoch: OwnerEpoch,
    /// Of the latest accepted request; 0 before the first.
    sequence: i64,
    /// When a byte of a protocol frame last arrived.
    heard: Moment,
    /// When the next heartbeat is due.
    beat: Moment,
    measuring: bool,
}

/// The name of a state, for logs and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateName {
    Waiting,
    Dialing,
    Greeting,
    Live,
    Refreshing,
    Stopped,
}

impl Node {
    /// A node that dials at the first tick. `operations` is the number of concurrent slots, 1..32; `seed` spreads the
    /// backoff of many nodes.
    pub fn new(identity: Identity, stored_epoch: i64, operations: usize, seed: u64, now: Moment) -> Self {
        Self {
            state: State::Waiting { until: now },
            identity,
            stored_epoch,
            ready: false,
            attempt: Attempt(0),
            backoff: Backoff::new(seed),
            schedule: Schedule::new(operations),
        }
    }

    pub fn state(&self) -> StateName {
        match self.state {
            State::Waiting { .. } => StateName::Waiting,
            State::Dialing { .. } => StateName::Dialing,
            State::Greeting { .. } => StateName::Greeting,
            State::Live(_) => StateName::Live,
            State::Refreshing { .. } => StateName::Refreshing,
            State::Stopped => StateName::Stopped,
        }
    }

    /// Operations whose native work has not ended.
    pub fn active_operations(&self) -> usize {
        self.schedule.active()
    }

    /// When `Tick` is due at the latest.
    pub fn next_wakeup(&self) -> Option<Moment> {
        let of_state = match &self.state {
            State::Waiting { until } => Some(*until),
            State::Dialing { since } => Some(since.plus_millis(DIAL_MILLIS)),
            State::Greeting {
                greeting: Greeting::Hello { sent },
                ..
            } => Some(sent.plus_millis(WELCOME_MILLIS)),
            State::Greeting { .. } | State::Refreshing { .. } | State::Stopped => None,
            State::Live(live) => {
                let silence = live.heard.plus_millis(SILENCE_MILLIS);
                Some(if live.measuring {
                    silence
                } else {
                    silence.min(live.beat)
                })
            }
        };
        of_state.into_iter().chain(self.schedule.next_deadline()).min()
    }

    /// Takes one event. `now` never runs backward.
    pub fn apply(&mut self, event: Event<'_>, now: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        self.expire(now, &mut actions);
        match (self.state, event) {
            (State::Stopped, Event::Ended(ticket)) => self.schedule.end(ticket),
            (State::Stopped, _) => {}
            (_, Event::Stop) => {
                self.schedule.disconnect();
                self.state = State::Stopped;
                actions.extend([Action::Close(Reason::Stopping), Action::Exit(Exit::Stopped)]);
            }
            (_, Event::Answered(ticket, outcome)) => {
                if let Some(asked) = self.schedule.answer(ticket) {
                    self.respond(asked, outcome, &mut actions);
                }
            }
            (_, Event::Ended(ticket)) => {
                if let Some(asked) = self.schedule.answer(ticket) {
                    // Work that ended without an answer has an unknown outcome.
                    let code = FailureCode::unconfirmed(asked.operation);
                    self.respond(asked, Outcome::failed(code), &mut actions);
                }
                self.schedule.end(ticket);
            }
            (_, Event::Measured(attempt, health)) => self.measured(attempt, *health, now, &mut actions),
            (State::Waiting { until }, Event::Tick) if now >= until => {
                self.attempt.0 += 1;
                self.state = State::Dialing { since: now };
                actions.push(Action::Dial);
            }
            (State::Dialing { since }, Event::Tick) if now.millis_since(since) >= DIAL_MILLIS => {
                self.back_off(Reason::DialLate, now, &mut actions);
            }
            (State::Dialing { .. }, Event::DialFailed) => {
                self.back_off(Reason::DialFailed, now, &mut actions);
            }
            (State::Dialing { since }, Event::Refused) => self.refresh(Reason::Refused, since, &mut actions),
            (State::Dialing { since }, Event::Upgraded) => {
                self.state = State::Greeting {
                    since,
                    greeting: Greeting::Measuring,
                };
                actions.push(Action::Measure(self.attempt));
            }
            (State::Greeting { since, greeting }, event) => {
                self.greet(since, greeting, event, now, &mut actions);
            }
            (State::Live(live), event) => self.live(live, event, now, &mut actions),
            (State::Refreshing { since }, Event::Refreshed(refresh)) => {
                self.refreshed(since, refresh, now, &mut actions);
            }
            (State::Waiting { .. } | State::Dialing { .. } | State::Refreshing { .. }, _) => {}
        }
        self.start(&mut actions);
        actions
    }

    fn greet(
        &mut self,
        since: Moment,
        greeting: Greeting,
        event: Event<'_>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        let reason = match (greeting, event) {
            (Greeting::Hello { sent }, Event::Tick) if now.millis_since(sent) >= WELCOME_MILLIS => {
                Reason::WelcomeLate
            }
            (Greeting::Hello { .. }, Event::Message(text)) => match CoreFrame::decode(text) {
                Ok(CoreFrame::Welcome(welcome)) => return self.welcomed(since, &welcome, now, actions),
                Ok(_) => Reason::UnexpectedFrame,
                Err(error) => Reason::InvalidFrame(error),
            },
            // Core says nothing before hello, and nothing is read while the epoch is being stored.
            (Greeting::Measuring | Greeting::Storing { .. }, Event::Message(_)) => Reason::UnexpectedFrame,
            (
                Greeting::Storing {
                    connection_id,
                    owner_epoch,
                },
                Event::EpochStored(true),
            ) => {
                self.stored_epoch = owner_epoch.get();
                return self.accept(since, connection_id, owner_epoch, now, actions);
            }
            (Greeting::Storing { .. }, Event::EpochStored(false)) => Reason::EpochNotStored,
            (_, Event::Unreadable) => Reason::Unreadable,
            (_, Event::Lost) => Reason::Lost,
            _ => return,
        };
        self.back_off(reason, now, actions);
    }

    fn welcomed(&mut self, since: Moment, welcome: &Welcome, now: Moment, actions: &mut Vec<Action>) {
        let Welcome {
            connection_id,
            owner_epoch,
            ref deployment,
        } = *welcome;
        if owner_epoch.get() < self.stored_epoch {
            self.refresh(Reason::Violation(Violation::EpochLower), since, actions);
        } else if deployment.is_some() {
            self.back_off(Reason::SuperfluousDeployment, now, actions);
        } else if owner_epoch.get() > self.stored_epoch {
            self.state = State::Greeting {
                since,
                greeting: Greeting::Storing {
                    connection_id,
                    owner_epoch,
                },
            };
            actions.push(Action::StoreEpoch(owner_epoch));
        } else {
            self.accept(since, connection_id, owner_epoch, now, actions);
        }
    }

    fn accept(
        &mut self,
        since: Moment,
        connection_id: ConnectionId,
        owner_epoch: OwnerEpoch,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        self.state = State::Live(Live {
            since,
            connection_id,
            owner_epoch,
            sequence: 0,
            heard: now,
            beat: now.plus_millis(HEARTBEAT_MILLIS),
            measuring: false,
        });
        actions.push(Action::Accepted(connection_id, owner_epoch));
    }

    fn live(&mut self, mut live: Live, event: Event<'_>, now: Moment, actions: &mut Vec<Action>) {
        let reason = match event {
            Event::Tick if now.millis_since(live.heard) >= SILENCE_MILLIS => Reason::Silence,
            Event::Tick if now >= live.beat && !live.measuring => {
                live.beat = now.plus_millis(HEARTBEAT_MILLIS);
                live.measuring = true;
                self.state = State::Live(live);
                actions.push(Action::Measure(self.attempt));
                return;
            }
            Event::Bytes(at) => {
                live.heard = live.heard.max(at.min(now));
                self.state = State::Live(live);
                return;
            }
            Event::Message(text) => {
                live.heard = now;
                self.state = State::Live(live);
                match self.message(live, text, now, actions) {
                    Ok(()) => return,
                    Err(reason) => reason,
                }
            }
            Event::Unreadable => Reason::Unreadable,
            Event::Lost => Reason::Lost,
            _ => return,
        };
        match reason {
            Reason::Violation(_) => self.refresh(reason, live.since, actions),
            reason => self.back_off(reason, now, actions),
        }
    }

    fn message(
        &mut self,
        live: Live,
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
                owned(&live, connection_id, owner_epoch)?;
                match deployment {
                    None => Ok(()),
                    Some(_) => Err(Reason::SuperfluousDeployment),
                }
            }
            CoreFrame::Request(request) => self.request(live, *request, now, actions),
            CoreFrame::RetentionAck(_) => Err(Reason::Violation(Violation::Retention)),
            CoreFrame::Welcome(_) => Err(Reason::UnexpectedFrame),
        }
    }

    /// "Node's order", from point 3.
    fn request(
        &mut self,
        mut live: Live,
        request: Request,
        now: Moment,
        actions: &mut Vec<Action>,
    ) -> Result<(), Reason> {
        owned(&live, request.connection_id, request.owner_epoch)?;
        if Some(request.sequence) != live.sequence.checked_add(1) {
            return Err(Reason::Violation(Violation::Sequence));
        }
        live.sequence = request.sequence;
        self.state = State::Live(live);
        if request.deployment_generation != self.identity.deployment_generation.get() {
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
        let deadline = now.plus_millis(u64::from(body.timeout_ms));
        self.schedule
            .admit(body.reference.allocation_id, deadline, asked, Box::new(body))
            .map_err(|_| Reason::QueueFull)
    }

    /// Starts what may start. What needs a ready provider and has none is answered without native work.
    fn start(&mut self, actions: &mut Vec<Action>) {
        while let Some((asked, started)) = self.schedule.start_next() {
            if needs_readiness(&started.job.arguments) && !self.ready {
                self.schedule.answer(started.ticket);
                self.schedule.end(started.ticket);
                self.respond(asked, Outcome::failed(FailureCode::Unconfirmed), actions);
                continue;
            }
            actions.push(Action::Run(Job {
                ticket: started.ticket,
                deadline: started.deadline,
                request: started.job,
            }));
        }
    }

    /// Budgets end here, waiting or running; native work of what runs goes on.
    fn expire(&mut self, now: Moment, actions: &mut Vec<Action>) {
        for asked in self.schedule.expire_waiting(now) {
            self.respond(asked, Outcome::failed(FailureCode::Unconfirmed), actions);
        }
        for asked in self.schedule.expire_running(now) {
            let code = match FailureCode::unconfirmed(asked.operation) {
                FailureCode::CommandUnconfirmed => FailureCode::CommandUnconfirmed,
                _ => FailureCode::Unconfirmed,
            };
            self.respond(asked, Outcome::failed(code), actions);
        }
    }

    fn measured(&mut self, attempt: Attempt, mut health: Health, now: Moment, actions: &mut Vec<Action>) {
        self.ready = health.provider_ready;
        if attempt != self.attempt {
            return;
        }
        health.active_operations = self.schedule.active() as i64;
        let frame = match &mut self.state {
            State::Greeting { greeting, .. } if *greeting == Greeting::Measuring => {
                *greeting = Greeting::Hello { sent: now };
                NodeFrame::Hello(Box::new(Hello {
                    identity: self.identity.clone(),
                    health,
                    generation_management: None,
                }))
            }
            State::Live(live) if live.measuring => {
                live.measuring = false;
                NodeFrame::Heartbeat(Box::new(Heartbeat {
                    connection_id: live.connection_id,
                    owner_epoch: live.owner_epoch,
                    health,
                }))
            }
            _ => return,
        };
        match frame.encode() {
            Ok(text) => actions.push(Action::Send(text)),
            Err(error) => self.back_off(Reason::OwnFrame(error), now, actions),
        }
    }

    /// Answers on the connection that asked; after a disconnect there is no `asked` left to answer.
    fn respond(&self, asked: Asked, outcome: Outcome, actions: &mut Vec<Action>) {
        let unconfirmed = FailureCode::unconfirmed(asked.operation).as_str();
        let (code, result) = match outcome {
            Outcome::Success(result) => {
                match is_success_of(asked.operation, &asked.reference, result.as_ref()) {
                    true => (None, result),
                    false => (Some(unconfirmed), None),
                }
            }
            Outcome::Failed { code, receipt } => {
                let receipt = receipt.filter(|info| info.is_settled_receipt_of(&asked.reference));
                (Some(code.as_str()), receipt.map(ResponseResult::Info))
            }
            Outcome::Unsupported(evidence) => {
                (Some("unsupported"), Some(ResponseResult::Unsupported(evidence)))
            }
        };
        let failed = code.unwrap_or(unconfirmed);
        if !self.try_response(asked.id, code, result, actions) {
            // A provider's answer out of bounds; a receipt may be the reason, the class still stands.
            self.send_response(asked.id, Some(failed), None, actions);
        }
    }

    fn send_response(
        &self,
        id: RequestId,
        code: Option<&str>,
        result: Option<ResponseResult>,
        actions: &mut Vec<Action>,
    ) {
        let sent = self.try_response(id, code, result, actions);
        debug_assert!(sent, "a response without result is always within bounds");
    }

    fn try_response(
        &self,
        id: RequestId,
        code: Option<&str>,
        result: Option<ResponseResult>,
        actions: &mut Vec<Action>,
    ) -> bool {
        let State::Live(live) = &self.state else {
            return true;
        };
        let response = Response {
            id,
            connection_id: live.connection_id,
            error_code: code.map(str::to_owned),
            result: Ok(result),
        };
        match NodeFrame::Response(Box::new(response)).encode() {
            Ok(text) => {
                actions.push(Action::Send(text));
                true
            }
            Err(_) => false,
        }
    }

    fn refreshed(&mut self, since: Moment, refresh: Refresh, now: Moment, actions: &mut Vec<Action>) {
        match refresh {
            Refresh::Refused => {
                self.state = State::Stopped;
                actions.push(Action::Exit(Exit::Unauthorized));
                return;
            }
            Refresh::Confirmed {
                identity,
                stored_epoch,
            } => {
                self.identity = *identity;
                self.stored_epoch = self.stored_epoch.max(stored_epoch);
            }
            Refresh::Failed => {}
        }
        self.wait(since, now);
    }

    fn back_off(&mut self, reason: Reason, now: Moment, actions: &mut Vec<Action>) {
        let since = self.attempt_since(now);
        self.schedule.disconnect();
        self.wait(since, now);
        actions.push(Action::Close(reason));
    }

    fn refresh(&mut self, reason: Reason, since: Moment, actions: &mut Vec<Action>) {
        self.schedule.disconnect();
        self.state = State::Refreshing { since };
        actions.extend([Action::Close(reason), Action::Refresh]);
    }

    fn wait(&mut self, since: Moment, now: Moment) {
        let delay = self.backoff.delay_millis(now.millis_since(since));
        self.state = State::Waiting {
            until: now.plus_millis(delay),
        };
    }

    fn attempt_since(&self, now: Moment) -> Moment {
        match self.state {
            State::Dialing { since } | State::Greeting { since, .. } | State::Refreshing { since } => since,
            State::Live(live) => live.since,
            State::Waiting { .. } | State::Stopped => now,
        }
    }
}

fn owned(live: &Live, connection_id: ConnectionId, owner_epoch: OwnerEpoch) -> Result<(), Reason> {
    if connection_id != live.connection_id {
        Err(Reason::Violation(Violation::Connection))
    } else if owner_epoch != live.owner_epoch {
        Err(Reason::Violation(Violation::Epoch))
    } else {
        Ok(())
    }
}

/// create and non-reconcile resume start no native work on a generation that is not ready (INV-P11).
fn needs_readiness(arguments: &Arguments) -> bool {
    match arguments {
        Arguments::Create(_) => true,
        Arguments::Resume(resume) => !resume.reconcile_only,
        _ => false,
    }
}
