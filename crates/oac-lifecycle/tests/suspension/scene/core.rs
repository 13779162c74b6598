//! Core's side: what the planner says, done as the executor does it, one transaction or frame at a time.

use oac_lifecycle::{
    Millis,
    allocation::{self, Cause, CreateProof, Kill, Sighting, State},
    suspension::{Action, Answer, Event, Next, Observation, Progress, Request, plan},
};
use oac_model::{ComputePhase as P, NodeId};

use super::{Defect, Flight, Scene, What, node, operation};
use crate::host::{Ask, Connection, Say};

impl Scene {
    /// Core looks at the allocation. True when it did something.
    pub fn core(&mut self) -> bool {
        if self.flight.is_some() {
            return self.go_on();
        }
        let is_away = |id: NodeId| self.hosts[self.index(id)].connection != Connection::Current;
        if self.has(Defect::WaitsForTheAway) && self.held.former().any(|c| is_away(c.node)) {
            return false;
        }
        let snapshot = self.snapshot();
        let mut watch = self.watch.clone();
        watch.tick(&self.held, &snapshot.base, &snapshot.connected, self.now);
        let next = plan(&snapshot, &watch, self.now);
        self.watch = watch;
        let action = match next {
            Next::Act(action) => action,
            Next::Wait { .. } => return false,
        };
        tell!(
            self,
            "Core: {action:?} in {:?} computes {:?}",
            self.held.state,
            self.held.computes.len()
        );
        self.act(action);
        true
    }

    /// When Core would look again by itself.
    pub fn due(&mut self) -> Option<Millis> {
        let snapshot = self.snapshot();
        let mut watch = self.watch.clone();
        watch.tick(&self.held, &snapshot.base, &snapshot.connected, self.now);
        match plan(&snapshot, &watch, self.now) {
            Next::Act(_) => Some(self.now),
            Next::Wait { until } => until,
        }
    }

    pub(super) fn k(&self) -> usize {
        let id = self.held.checkpoint.map(|c| c.operation).or(self.held.suspend);
        (0..100).find(|k| Some(operation(*k)) == id).unwrap_or(99)
    }

    fn act(&mut self, action: Action) {
        let current = self.held.current().map_or(0, |c| c.generation);
        match action {
            Action::Name => {
                self.store(Event::Named);
            }
            Action::Show(diagnostic) => self.shown = Some(diagnostic),
            Action::DropIntent => {
                self.store(Event::NotSent);
            }
            Action::GiveUpAnswer => {
                let node = self.held.open.map_or(self.held.node, |open| open.node);
                self.store(Event::AnswerLost);
                self.watch.answer_lost(node, self.now);
            }
            Action::Suspend => {
                self.suspends_left -= 1;
                let k = self.next_operation;
                self.next_operation += 1;
                let id = operation(k);
                if !self.store(Event::QuiescingBegun(id)) {
                    return;
                }
                self.linked = false;
                match self.random.below(8) {
                    0 => {
                        self.store(Event::QuiesceRefused);
                        self.linked = true;
                    }
                    // It is perhaps parked, and this process ends or gives up.
                    1 => self.park(current),
                    _ => {
                        self.park(current);
                        if self.store(Event::Quiesced) {
                            let at = self.index(self.held.node);
                            let what = What::Request(Request::Suspend(id));
                            self.flight = Some(Flight::Intended(Ask::Suspend(current, k), at, what));
                        }
                    }
                }
            }
            Action::Restore => self.restore(),
            Action::KillCompute(g) => self.intend(Request::KillCompute(g), Ask::KillCompute(g)),
            Action::ResumeCompute => self.intend(Request::ResumeCompute, Ask::Thaw(current)),
            Action::Wake => self.intend(Request::Wake, Ask::Wake(current)),
            Action::DeleteRetained => self.intend(Request::DeleteRetained, Ask::Delete(self.k())),
            Action::Look(id, of) => {
                let k = self.k();
                let of = match of {
                    Observation::Resume if self.has(Defect::ComputeVerifies) => Observation::Compute(current),
                    of => of,
                };
                let ask = match of {
                    Observation::Info => Ask::Info,
                    Observation::Compute(g) => Ask::Compute(g),
                    Observation::Suspend => Ask::ReconcileSuspend(current, k),
                    Observation::Resume => Ask::ReconcileResume(current, k),
                };
                self.send(ask, self.index(id), What::Look(of));
            }
            Action::Base(base) => self.base(base),
        }
    }

    fn park(&mut self, generation: i64) {
        let at = self.index(self.held.node);
        self.hosts[at].woken.insert(generation, false);
    }

    fn base(&mut self, action: allocation::Action) {
        match action {
            allocation::Action::Look => {
                self.send(Ask::Info, self.index(self.held.node), What::BaseLook);
            }
            allocation::Action::Kill => {
                if self.store(Event::Base(allocation::Event::KillIntended)) {
                    let at = self.index(self.held.node);
                    self.flight = Some(Flight::Intended(Ask::Kill, at, What::Kill));
                }
            }
            allocation::Action::DropIntent => {
                self.store(Event::NotSent);
            }
            allocation::Action::GiveUpAnswer => {
                self.store(Event::AnswerLost);
                self.watch.base.answer_lost(self.now);
            }
            allocation::Action::GiveUp(cause) => {
                if cause == Cause::RetentionEnd && self.retention_at.is_some_and(|at| self.now < at) {
                    self.violated("INV-C33 retention ended early");
                }
                self.give_up(cause);
            }
            allocation::Action::Create => self.violated("INV-C17 a second create"),
        }
    }

    pub fn give_up(&mut self, cause: Cause) {
        self.given_up = self.given_up.or(Some(cause));
        if self.has(Defect::CleansUpWithoutReconciling) && self.held.phase().is_some() {
            self.held.state = State::CleanupPending {
                cause,
                create: CreateProof::Settled,
                kill: Kill::NotYet,
            };
            self.held.open = self.held.open.filter(|open| open.progress == Progress::Sent);
            return;
        }
        self.store(Event::GivenUp(cause));
    }

    fn restore(&mut self) {
        let haunted = self.held.haunted();
        let failed = self.held.failed_at();
        let mut candidates: Vec<usize> = (0..2)
            .filter(|n| self.hosts[*n].connection == Connection::Current && !haunted.contains(&node(*n)))
            .filter(|n| !(self.held.leave && node(*n) == self.held.node))
            .collect();
        candidates.sort_by_key(|n| (failed.contains(&node(*n)), node(*n) != self.held.node));
        // Room is there or not.
        if self.random.once_in(4) {
            candidates.reverse();
        }
        let Some(at) = candidates
            .first()
            .copied()
            .filter(|_| self.held.computes.len() < 12)
        else {
            self.watch.no_target(self.now);
            return;
        };
        let k = self.k();
        if self.held.unconsumed().is_none() {
            self.violated("INV-C21 a consumed checkpoint is restored");
        }
        if self.store(Event::RestoreIntended(node(at))) {
            self.held.leave = false;
            let target = self.held.current().unwrap().generation;
            self.flight = Some(Flight::Intended(
                Ask::Resume(target, k),
                at,
                What::Request(Request::Resume),
            ));
        }
    }

    fn intend(&mut self, request: Request, ask: Ask) {
        let Some(at) = self.held.node_of(request).map(|id| self.index(id)) else {
            return;
        };
        self.watch.began();
        if self.store(Event::Intended(request)) {
            self.flight = Some(Flight::Intended(ask, at, What::Request(request)));
        }
    }

    fn send(&mut self, ask: Ask, at: usize, what: What) -> bool {
        let host = &mut self.hosts[at];
        if host.connection != Connection::Current || host.queue.len() >= 2 {
            return false;
        }
        host.queue.push_back((ask, true));
        self.flight = Some(Flight::Waits(ask, at, what));
        true
    }

    /// The step that is under way does its next transaction.
    fn go_on(&mut self) -> bool {
        match self.flight {
            Some(Flight::Intended(ask, at, what)) => {
                self.flight = None;
                if self.hosts[at].connection != Connection::Current || self.hosts[at].queue.len() >= 2 {
                    self.never_left(what);
                    match what {
                        What::Kill => self.watch.base.not_sent(self.now),
                        _ => self.watch.not_sent(node(at), self.now),
                    }
                    return true;
                }
                if !self.store(Event::MarkedSent) {
                    return true;
                }
                if let Ask::KillCompute(g) = ask
                    && self.held.replaceable()
                    && self.held.current().is_some_and(|c| c.generation == g)
                {
                    self.killed_sent.insert(g);
                }
                if let Ask::Resume(g, _) = ask {
                    self.resumed.insert(g);
                }
                self.send(ask, at, what);
                true
            }
            Some(Flight::Waits(_, at, what)) => {
                let Some(say) = self.hosts[at].answer.take() else {
                    return false;
                };
                self.flight = None;
                tell!(self, "Core: node {at} answered {say:?} to {what:?}");
                self.answered(at, what, say);
                true
            }
            None => false,
        }
    }

    fn never_left(&mut self, what: What) {
        if self.has(Defect::UnsentRestoreStays) && what == What::Request(Request::Resume) {
            self.held.open = None;
        } else {
            self.store(Event::NotSent);
        }
    }

    fn answered(&mut self, at: usize, what: What, say: Say) {
        let answer = match say {
            Say::Failed | Say::Invalid if self.has(Defect::FailureSettlesNothing) => Answer::Unknown,
            say => answer_of(say),
        };
        match what {
            What::Request(request) => {
                if request == Request::Resume
                    && say == Say::Exists
                    && !self
                        .held
                        .computes
                        .iter()
                        .rev()
                        .skip(1)
                        .any(|c| !c.ended && c.node == node(at))
                {
                    self.violated("a resume was refused with no kill_compute owed at that node");
                }
                if answer == Answer::Unknown {
                    self.store(Event::AnswerLost);
                    self.watch.answer_lost(node(at), self.now);
                    return;
                }
                self.store(Event::Answered(answer));
                if self.held.unobserved.contains(&node(at)) {
                    self.watch.answer_lost(node(at), self.now);
                } else if request == Request::Wake {
                    self.watch.woke(self.now);
                } else {
                    self.watch.settled(node(at), answer);
                }
            }
            What::Kill if say == Say::Done => {
                self.store(Event::Base(allocation::Event::KillAnswered));
                self.watch.base.kill_answered();
                if self.has(Defect::ReleasesWithComputesLeft) {
                    self.held.state = State::Released;
                }
            }
            What::Kill => self.lost(at, what),
            What::Look(of) => {
                self.watch.observed(&self.held, node(at), of, answer, self.now);
                let event = Event::Observed {
                    node: node(at),
                    of,
                    answer,
                };
                let compute_verifies = self.has(Defect::ComputeVerifies)
                    && matches!(of, Observation::Compute(_))
                    && answer == Answer::Running
                    && self.held.phase() == Some(P::Restoring);
                if compute_verifies {
                    let was = self.held.clone();
                    self.held.state = State::Running { phase: P::Waking };
                    self.transition(&was, &event);
                } else {
                    self.store(event);
                }
            }
            What::BaseLook => self.base_looked(at, say),
        }
        let early = self.has(Defect::ReturnsWithoutKill)
            && self.held.phase() == Some(P::Restoring)
            && answer == Answer::Unknown;
        if early {
            self.held.state = State::Running { phase: P::Suspended };
            self.held.open = None;
            self.held.computes.last_mut().unwrap().ended = true;
        }
    }

    fn base_looked(&mut self, at: usize, say: Say) {
        let sighting = match say {
            Say::Running => Sighting::Running,
            Say::Absent { lost } => Sighting::Absent { lost },
            Say::NotFound => Sighting::NotFound,
            Say::Unconfirmed => Sighting::Unconfirmed,
            _ => Sighting::Present,
        };
        let Some(connection) = self.connections[at] else {
            return;
        };
        let noted = self
            .watch
            .base
            .looked(self.held.state, connection, sighting, self.now);
        self.store(Event::Base(allocation::Event::Observed(sighting)));
        if noted == allocation::Noted::Loss {
            let bound = self.held.replaceable();
            if self.store(Event::LossConfirmed) {
                self.reached.insert("loss");
                if !bound && self.has_state() {
                    self.violated("INV-P23 a loss was confirmed while there is a state");
                }
            }
        }
    }
}

fn answer_of(say: Say) -> Answer {
    match say {
        Say::Done => Answer::Done,
        Say::Unconfirmed => Answer::Unknown,
        Say::Invalid => Answer::Invalid,
        Say::Exists => Answer::Refused,
        Say::NotFound => Answer::NotFound,
        Say::Running => Answer::Running,
        Say::Paused => Answer::Paused,
        Say::Failed => Answer::Failed,
        Say::Ended => Answer::Ended,
        Say::Suspended => Answer::Suspended,
        Say::Present => Answer::Present,
        Say::Absent { .. } => Answer::NotFound,
    }
}
