use oac_model::{ConnectionId, Generation, OwnerEpoch};
use oac_wire::{
    CoreFrame, NodeFrame,
    frames::{Deployment, Health, Hello, Identity, RequestBody, RetentionReference, Welcome},
};

use super::{
    Action, Asked, Attempt, Event, Exit, Job, Local, Reason, Refresh, Violation,
    backoff::Backoff,
    generations::Generations,
    live::{Live, Pending},
    schedule::Schedule,
};
use crate::{
    FailureCode, Moment, Outcome,
    limits::{DIAL_MILLIS, WELCOME_MILLIS},
    random::Random,
    readiness::needs_ready_generation,
};

/// The node's end of its one connection (protocol.md section 5).
///
/// | state | event | next | actions |
/// |---|---|---|---|
/// | Waiting | backoff elapsed | Dialing | Dial |
/// | Dialing | Upgraded | Greeting | Measure, then Send hello |
/// | Dialing | Refused (401) | Refreshing | Close, Refresh: GET identity confirms it first |
/// | Dialing | DialFailed, 10 s | Waiting | Close |
/// | Greeting | welcome, epoch known | Live | Accepted, Deployment |
/// | Greeting | welcome, higher epoch | Greeting | StoreEpoch |
/// | Greeting | EpochStored(true) | Live | Accepted, Deployment |
/// | Greeting | EpochStored(false), 15 s without report or welcome, invalid or other frame, Lost, a deployment missing or superfluous | Waiting | Close |
/// | Greeting, Live | ownership violation | Refreshing | Close, Refresh |
/// | Live | Bytes, Message | Live | restarts the 35 s silence |
/// | Live | 10 s since the last beat | Live | Measure, then Send heartbeat, then Send retention |
/// | Live | request | Live | Run, or Send the answer |
/// | Live | retention_ack of the pending request | Live | Deployment, Granted |
/// | Live | invalid frame, silence, Lost, full queue, 35 s without retention_ack, a deployment missing or superfluous | Waiting | Close; what waits is discarded |
/// | Refreshing | Refreshed(Confirmed or Failed) | Waiting | |
/// | Refreshing | Refreshed(Refused) | Stopped | Exit(Unauthorized) |
/// | any but Stopped | Stop | Stopped | Close, Exit(Stopped) |
///
/// `Answered` and `Ended` move no state: they end operations, whose answers leave only on the connection that asked.
/// `Generations` replaces the table of a managing node. Every other pair is ignored.
#[derive(Debug)]
pub struct Node {
    pub(super) state: State,
    pub(super) identity: Identity,
    /// Never decreases; 0 before the first welcome.
    stored_epoch: i64,
    /// Whether the latest probe of this process succeeded; a fixed node's.
    ready: bool,
    /// A managing node's.
    pub(super) generations: Option<Generations>,
    pub(super) attempt: Attempt,
    backoff: Backoff,
    pub(super) random: Random,
    pub(super) schedule: Schedule<Asked, Box<RequestBody>>,
    /// The retention exchange under way, on the current connection.
    pub(super) exchange: Option<Pending>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Waiting { until: Moment },
    Dialing { since: Moment },
    Greeting { since: Moment, greeting: Greeting },
    Live(Live),
    Refreshing { lasted_millis: u64 },
    Stopped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Greeting {
    /// The first health report is being made since then.
    Measuring { since: Moment },
    /// Hello was sent then.
    Hello { sent: Moment },
    /// The welcome's higher epoch is being made durable.
    Storing {
        connection_id: ConnectionId,
        owner_epoch: OwnerEpoch,
        deployment: Option<Deployment>,
    },
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
    /// A fixed node that dials at the first tick. `operations` is the number of concurrent slots, 1..32; `seed` spreads
    /// the backoff of many nodes.
    pub fn new(identity: Identity, stored_epoch: i64, operations: usize, seed: u64, now: Moment) -> Self {
        Self {
            state: State::Waiting { until: now },
            identity,
            stored_epoch,
            ready: false,
            generations: None,
            attempt: Attempt(0),
            backoff: Backoff::new(),
            random: Random::new(seed),
            schedule: Schedule::new(operations),
            exchange: None,
        }
    }

    /// The node manages generations, of which its host holds `local` now.
    #[must_use]
    pub fn managing(mut self, local: impl IntoIterator<Item = Local>) -> Self {
        let enrolled = (
            self.identity.deployment_generation,
            self.identity.specification_digest,
        );
        self.generations = Some(Generations::new(enrolled, local));
        self
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

    /// A waiting or running operation, target or serving pin still needs this generation: it is not collected now.
    pub fn is_referenced(&self, generation: Generation) -> bool {
        let named = self.deployment().is_some_and(|known| {
            known.generation == generation || known.serving_generation.0 == Some(generation)
        });
        named || self.works_on(generation)
    }

    /// A waiting or running operation needs this generation: it is neither repaired nor collected now.
    pub fn works_on(&self, generation: Generation) -> bool {
        self.schedule.is_referenced(generation)
    }

    /// The newest deployment this process adopted; `None` for a fixed node.
    pub fn deployment(&self) -> Option<Deployment> {
        self.generations.as_ref().and_then(Generations::known)
    }

    /// What the pending retention request names.
    pub fn asked(&self) -> &[RetentionReference] {
        self.exchange
            .as_ref()
            .map_or(&[], |pending| &pending.control.references)
    }

    /// When `Tick` is due at the latest.
    pub fn next_wakeup(&self) -> Option<Moment> {
        let of_state = match &self.state {
            State::Waiting { until } => Some(*until),
            State::Dialing { since } => Some(since.plus_millis(DIAL_MILLIS)),
            State::Greeting {
                greeting: Greeting::Hello { sent: since } | Greeting::Measuring { since },
                ..
            } => Some(since.plus_millis(WELCOME_MILLIS)),
            State::Greeting { .. } | State::Refreshing { .. } | State::Stopped => None,
            State::Live(live) => Some(live.next_wakeup()),
        };
        let exchange = self.exchange.as_ref().map(Pending::late);
        of_state
            .into_iter()
            .chain(exchange)
            .chain(self.schedule.next_deadline())
            .min()
    }

    /// Takes one event. `now` never runs backward.
    pub fn apply(&mut self, event: Event<'_>, now: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        self.expire(now, &mut actions);
        match (self.state, event) {
            (State::Stopped, Event::Ended(ticket)) => self.schedule.end(ticket),
            (State::Stopped, _) => {}
            (_, Event::Stop) => {
                self.disconnected();
                self.state = State::Stopped;
                actions.extend([Action::Close(Reason::Stopping), Action::Exit(Exit::Stopped)]);
            }
            (_, Event::Generations(local)) => {
                if let Some(generations) = &mut self.generations {
                    generations.set(local);
                }
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
                self.end_attempt(Reason::DialLate, now, &mut actions);
            }
            (State::Dialing { .. }, Event::DialFailed) => {
                self.end_attempt(Reason::DialFailed, now, &mut actions);
            }
            (State::Dialing { .. }, Event::Refused) => self.end_attempt(Reason::Refused, now, &mut actions),
            (State::Dialing { since }, Event::Upgraded) => {
                self.state = State::Greeting {
                    since,
                    greeting: Greeting::Measuring { since: now },
                };
                actions.push(Action::Measure(self.attempt));
            }
            (State::Greeting { since, greeting }, event) => {
                if let Err(reason) = self.greet(since, greeting, event, now, &mut actions) {
                    self.end_attempt(reason, now, &mut actions);
                }
            }
            (State::Live(live), event) => {
                if let Err(reason) = self.live(live, event, now, &mut actions) {
                    self.end_attempt(reason, now, &mut actions);
                }
            }
            (State::Refreshing { lasted_millis }, Event::Refreshed(refresh)) => {
                self.refreshed(lasted_millis, refresh, now, &mut actions);
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
    ) -> Result<(), Reason> {
        match (greeting, event) {
            (Greeting::Measuring { since }, Event::Tick) if now.millis_since(since) >= WELCOME_MILLIS => {
                Err(Reason::ReportLate)
            }
            (Greeting::Hello { sent }, Event::Tick) if now.millis_since(sent) >= WELCOME_MILLIS => {
                Err(Reason::WelcomeLate)
            }
            (Greeting::Hello { .. }, Event::Message(text)) => match CoreFrame::decode(text) {
                Ok(CoreFrame::Welcome(welcome)) => self.welcomed(since, &welcome, now, actions),
                Ok(_) => Err(Reason::UnexpectedFrame),
                Err(error) => Err(Reason::InvalidFrame(error)),
            },
            // Core says nothing before hello, and nothing is read while the epoch is being stored.
            (Greeting::Measuring { .. } | Greeting::Storing { .. }, Event::Message(_)) => {
                Err(Reason::UnexpectedFrame)
            }
            (
                Greeting::Storing {
                    connection_id,
                    owner_epoch,
                    deployment,
                },
                Event::EpochStored(true),
            ) => {
                self.stored_epoch = owner_epoch.get();
                let live = Live::new(since, connection_id, owner_epoch, now);
                self.accept(live, deployment, actions)
            }
            (Greeting::Storing { .. }, Event::EpochStored(false)) => Err(Reason::EpochNotStored),
            (_, Event::Unreadable) => Err(Reason::Unreadable),
            (_, Event::Lost) => Err(Reason::Lost),
            _ => Ok(()),
        }
    }

    /// The checks of protocol.md section 4, in its order: a higher epoch is durable before anything else is judged.
    fn welcomed(
        &mut self,
        since: Moment,
        welcome: &Welcome,
        now: Moment,
        actions: &mut Vec<Action>,
    ) -> Result<(), Reason> {
        let Welcome {
            connection_id,
            owner_epoch,
            deployment,
        } = *welcome;
        if owner_epoch.get() < self.stored_epoch {
            return Err(Reason::Violation(Violation::EpochLower));
        }
        if owner_epoch.get() == self.stored_epoch {
            let live = Live::new(since, connection_id, owner_epoch, now);
            return self.accept(live, deployment, actions);
        }
        self.state = State::Greeting {
            since,
            greeting: Greeting::Storing {
                connection_id,
                owner_epoch,
                deployment,
            },
        };
        actions.push(Action::StoreEpoch(owner_epoch));
        Ok(())
    }

    fn accept(
        &mut self,
        mut live: Live,
        deployment: Option<Deployment>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Reason> {
        let adopted = self.deliver(&mut live, deployment)?;
        self.state = State::Live(live);
        actions.push(Action::Accepted(live.connection_id, live.owner_epoch));
        actions.extend(adopted.map(Action::Deployment));
        Ok(())
    }

    /// Starts what may start. What needs a ready generation, or a provider that is gone, and has none is answered
    /// without native work.
    fn start(&mut self, actions: &mut Vec<Action>) {
        while let Some((asked, started)) = self.schedule.start_next() {
            let generation = started.job.deployment_generation;
            let (acquirable, ready) = match &self.generations {
                Some(generations) => (
                    generations.is_acquirable(generation),
                    generations.is_ready(generation),
                ),
                None => (true, self.ready),
            };
            if !acquirable || (needs_ready_generation(&started.job.arguments) && !ready) {
                self.schedule.answer(started.ticket);
                self.schedule.end(started.ticket);
                self.respond(asked, Outcome::failed(FailureCode::Unconfirmed), actions);
                continue;
            }
            actions.push(Action::Run(Job {
                ticket: started.ticket,
                id: asked.id,
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
        let made = match &mut self.state {
            State::Greeting { greeting, .. } if matches!(greeting, Greeting::Measuring { .. }) => {
                *greeting = Greeting::Hello { sent: now };
                self.report(&mut health);
                let hello = Hello {
                    identity: self.identity.clone(),
                    health,
                    generation_management: self.generations.is_some().then_some(true),
                };
                NodeFrame::Hello(Box::new(hello))
                    .encode()
                    .map(|text| actions.push(Action::Send(text)))
            }
            State::Live(live) if live.measuring => {
                live.measuring = false;
                let live = *live;
                self.report(&mut health);
                self.beat(live, health, now, actions)
            }
            _ => return,
        };
        if let Err(error) = made {
            self.end_attempt(Reason::OwnFrame(error), now, actions);
        }
    }

    /// Completes a report with what this machine knows.
    fn report(&mut self, health: &mut Health) {
        health.active_operations = self.schedule.active() as i64;
        if let Some(generations) = &mut self.generations {
            health.provider_ready = false;
            health.diagnostic = None;
            health.generations = Some(generations.statuses());
        }
    }

    fn refreshed(&mut self, lasted_millis: u64, refresh: Refresh, now: Moment, actions: &mut Vec<Action>) {
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
        self.wait(lasted_millis, now);
    }

    /// A violation and an unconfirmed 401 are followed by a look at the identity, everything else by the next dial.
    fn end_attempt(&mut self, reason: Reason, now: Moment, actions: &mut Vec<Action>) {
        let lasted_millis = match self.state {
            State::Dialing { since } | State::Greeting { since, .. } => now.millis_since(since),
            State::Live(live) => now.millis_since(live.since),
            State::Waiting { .. } | State::Refreshing { .. } | State::Stopped => 0,
        };
        self.disconnected();
        let doubtful = matches!(reason, Reason::Violation(_) | Reason::Refused);
        actions.push(Action::Close(reason));
        if doubtful {
            self.state = State::Refreshing { lasted_millis };
            actions.push(Action::Refresh);
        } else {
            self.wait(lasted_millis, now);
        }
    }

    /// What belongs to the connection goes with it.
    fn disconnected(&mut self) {
        self.schedule.disconnect();
        self.exchange = None;
    }

    fn wait(&mut self, lasted_millis: u64, now: Moment) {
        let delay = self.backoff.delay_millis(lasted_millis, &mut self.random);
        self.state = State::Waiting {
            until: now.plus_millis(delay),
        };
    }
}
