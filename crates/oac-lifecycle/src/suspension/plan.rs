//! What to do next about one allocation that can be suspended.

use std::collections::BTreeMap;

use oac_model::{ComputePhase, ConnectionId, NodeId};

use super::{
    Held, Observation, Progress, Request, Watch,
    watch::{Seen, backoff},
};
use crate::{
    Millis,
    allocation::{self, Cause, Diagnostic, Kill, Presence, State},
    limits,
};

/// Who wants the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    None,
    /// A Turn waits or an access is open.
    Waits,
    /// A Turn was queued since the allocation was last suspended.
    New,
}

/// Everything one decision looks at, besides the [`Watch`]. Spans are by the database's clock.
#[derive(Debug, Clone)]
pub struct Snapshot<'a> {
    pub held: &'a Held,
    /// What the base looks at, `state` as in `held`.
    pub base: allocation::Snapshot,
    /// The connected ones of the nodes that hold the allocation or one of its computes.
    pub connected: BTreeMap<NodeId, ConnectionId>,
    pub demand: Demand,
    /// When the Session may be suspended, if nothing happens before; `None` while something keeps it from that.
    pub quiet_in: Option<Millis>,
    /// How long the phase has lasted.
    pub phase_for: Millis,
    /// When the bound checkpoint's retention ends.
    pub retention_in: Option<Millis>,
    pub shown: Option<Diagnostic>,
}

/// The next step. Each is one transaction, or one operation with its transactions around the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// As for any allocation: an `info`, a `kill`, or the end of a base mutation; and giving it up.
    Base(allocation::Action),
    /// Ask the node for the name of generation 0 and record it.
    Name,
    Look(NodeId, Observation),
    /// The open mutation's frame never left.
    DropIntent,
    /// The open mutation was sent and nobody waits for its answer.
    GiveUpAnswer,
    /// Admit, quiesce the runtime, and suspend.
    Suspend,
    /// Choose a target, record it with the intent, and resume.
    Restore,
    KillCompute(i64),
    ResumeCompute,
    Wake,
    DeleteRetained,
    /// Store what operators are shown.
    Show(Diagnostic),
}

impl Action {
    /// The node that its frame goes to. None for what sends nothing, and for what first has to learn whether and where:
    /// a suspend waits for its runtime, a restore chooses its target.
    pub fn sends_to(self, held: &Held) -> Option<NodeId> {
        match self {
            Self::Base(allocation::Action::Create | allocation::Action::Kill | allocation::Action::Look)
            | Self::Name => Some(held.node),
            Self::Look(node, _) => Some(node),
            Self::KillCompute(generation) => held.node_of(Request::KillCompute(generation)),
            Self::ResumeCompute => held.node_of(Request::ResumeCompute),
            Self::Wake => held.node_of(Request::Wake),
            Self::DeleteRetained => held.node_of(Request::DeleteRetained),
            Self::Base(
                allocation::Action::DropIntent
                | allocation::Action::GiveUpAnswer
                | allocation::Action::GiveUp(_),
            )
            | Self::DropIntent
            | Self::GiveUpAnswer
            | Self::Suspend
            | Self::Restore
            | Self::Show(_) => None,
        }
    }

    /// It begins a mutation: what was answered before confirms no loss after it.
    pub fn mutates(self) -> bool {
        match self {
            Self::Suspend
            | Self::Restore
            | Self::KillCompute(_)
            | Self::ResumeCompute
            | Self::Wake
            | Self::DeleteRetained => true,
            Self::Base(_)
            | Self::Name
            | Self::Look(..)
            | Self::DropIntent
            | Self::GiveUpAnswer
            | Self::Show(_) => false,
        }
    }
}

/// What `plan` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Act(Action),
    /// Nothing to do before `until`; without it, before something changes.
    Wait {
        until: Option<Millis>,
    },
}

const REST: Next = Next::Wait { until: None };

impl From<allocation::Next> for Next {
    fn from(next: allocation::Next) -> Self {
        match next {
            allocation::Next::Act(action) => Self::Act(Action::Base(action)),
            allocation::Next::Wait { until } => Self::Wait { until },
        }
    }
}

fn at(due: Millis, now: Millis, action: Action) -> Next {
    if now >= due {
        Next::Act(action)
    } else {
        Next::Wait { until: Some(due) }
    }
}

/// The first plan that acts, else the earlier time.
fn first(plans: impl IntoIterator<Item = Next>) -> Next {
    plans.into_iter().fold(REST, |a, b| match (a, b) {
        (Next::Act(_), _) => a,
        (_, Next::Act(_)) => b,
        (Next::Wait { until: a }, Next::Wait { until: b }) => Next::Wait {
            until: [a, b].into_iter().flatten().min(),
        },
    })
}

/// Decides the one next step. Needs `watch.tick` for the same snapshot and `now` before it.
pub fn plan(s: &Snapshot<'_>, watch: &Watch, now: Millis) -> Next {
    if s.base.in_flight {
        return REST;
    }
    if let Some(open) = s.held.open {
        return Next::Act(match open.progress {
            Progress::Intent => Action::DropIntent,
            Progress::Sent => Action::GiveUpAnswer,
        });
    }
    let planner = Planner { s, watch, now };
    match s.held.state {
        State::Running { phase } => planner.running(phase),
        State::CleanupPending { kill, .. } => planner.cleanup(kill),
        State::Released => planner.owed(),
        _ => planner.base(),
    }
}

/// How long a planner that waits need not look again, unless it is told or the connection of one of its nodes or its link
/// changes: what it waits for by the clock is in its answer. Running and idle, suspended and not wanted, or being removed,
/// nothing happens to it that nobody tells.
pub fn rests_for(s: &Snapshot<'_>) -> Millis {
    let rests = match s.held.phase() {
        Some(ComputePhase::Running) => s.held.checkpoint.is_none() && !s.held.computes.is_empty(),
        Some(ComputePhase::Suspended) => s.demand == Demand::None,
        Some(_) => false,
        None => true,
    };
    if rests && !s.held.has_open() {
        limits::LOOK_RESTING
    } else {
        limits::LOOK_WAITING
    }
}

struct Planner<'a> {
    s: &'a Snapshot<'a>,
    watch: &'a Watch,
    now: Millis,
}

impl Planner<'_> {
    fn base(&self) -> Next {
        allocation::plan(&self.s.base, &self.watch.base, self.now).into()
    }

    fn is_connected(&self, node: NodeId) -> bool {
        self.s.connected.contains_key(&node)
    }

    fn look(&self, node: NodeId, of: Observation) -> Next {
        if !self.is_connected(node) {
            return REST;
        }
        at(
            self.watch.look_at(node, self.now),
            self.now,
            Action::Look(node, of),
        )
    }

    /// A mutation, once what came before it at its node is observed there.
    fn act(&self, node: NodeId, action: Action, otherwise: Observation) -> Next {
        if !self.is_connected(node) {
            REST
        } else if self.s.held.unobserved.contains(&node) {
            self.look(node, otherwise)
        } else {
            at(self.watch.act_at(node, self.now), self.now, action)
        }
    }

    fn give_up_at(&self, after: Option<Millis>, cause: Cause) -> Next {
        let give_up = Action::Base(allocation::Action::GiveUp(cause));
        after.map_or(REST, |after| at(self.now + after, self.now, give_up))
    }

    fn show(&self, diagnostic: Diagnostic) -> Next {
        if self.s.shown == Some(diagnostic) {
            REST
        } else {
            Next::Act(Action::Show(diagnostic))
        }
    }

    fn running(&self, phase: ComputePhase) -> Next {
        let held = self.s.held;
        let retention = match held.unconsumed().filter(|_| held.deferred.is_none()) {
            Some(_) => self.give_up_at(self.s.retention_in, Cause::RetentionEnd),
            None => REST,
        };
        let own = match phase {
            ComputePhase::Disabled => REST,
            ComputePhase::Running => self.awake(),
            // Its intent is open, and is dropped by whoever finds it at rest.
            ComputePhase::Quiescing => REST,
            ComputePhase::Suspending => self.look(held.node, Observation::Suspend),
            ComputePhase::Suspended => self.suspended(),
            ComputePhase::Restoring => self.restoring(),
            ComputePhase::Waking => self.waking(),
        };
        // What lies about is tidied when nothing else is to do, and not while a loss is being confirmed.
        let tidy = if self.watch.base.suspects() {
            REST
        } else {
            let former = held.former().map(|c| self.kill(c.generation, c.node));
            first(former.chain([self.owed()]))
        };
        first([retention, own, tidy, self.base()])
    }

    fn kill(&self, generation: i64, node: NodeId) -> Next {
        self.act(
            node,
            Action::KillCompute(generation),
            Observation::Compute(generation),
        )
    }

    /// What an operator discarded is killed all the same, should its node be there again; nothing waits for that.
    fn owed(&self) -> Next {
        first(self.s.held.owed().map(|c| self.kill(c.generation, c.node)))
    }

    fn awake(&self) -> Next {
        let held = self.s.held;
        let Some(current) = held.current() else {
            return self.act(held.node, Action::Name, Observation::Info);
        };
        let look = Observation::Compute(current.generation);
        if held.checkpoint.is_some() {
            return self.act(held.node, Action::DeleteRetained, look);
        }
        let Some(quiet_in) = self.s.quiet_in.filter(|_| self.s.base.linked) else {
            return REST;
        };
        if !current.seen || held.unobserved.contains(&held.node) {
            // Its native id is needed to name it as a source.
            return self.look(held.node, look);
        }
        if !self.is_connected(held.node) {
            return REST;
        }
        let due = (self.now + quiet_in)
            .max(self.watch.act_at(held.node, self.now))
            .max(self.watch.suspend_at);
        at(due, self.now, Action::Suspend)
    }

    fn suspended(&self) -> Next {
        let held = self.s.held;
        let failures = held.restore_failures;
        let wanted = match self.s.demand {
            Demand::None => false,
            Demand::Waits => failures < limits::RESTORE_ATTEMPTS,
            Demand::New => true,
        };
        let wait = if failures >= limits::RESTORE_ATTEMPTS {
            limits::WAKE_FAILED
        } else if failures > 0 {
            backoff(failures - 1)
        } else if held.current().map(|c| c.generation) != held.checkpoint.map(|c| c.source) {
            // A restore was tried and is not to blame.
            backoff(0)
        } else {
            0
        };
        let restore = if wanted && held.deferred.is_none() {
            let lasted = self.watch.lasted(self.s.phase_for, self.now);
            let due = (self.now + wait - lasted).max(self.watch.restore_at);
            at(due, self.now, Action::Restore)
        } else {
            REST
        };
        let shown = if failures >= limits::RESTORE_ATTEMPTS {
            self.show(Diagnostic::ComputeUnconfirmed)
        } else {
            REST
        };
        first([restore, shown])
    }

    fn restoring(&self) -> Next {
        let held = self.s.held;
        let Some(target) = held.current() else { return REST };
        let dead = match self.watch.seen {
            Some(Seen::Dead) => true,
            // It runs, and is not wanted where it is.
            Some(Seen::Running) => held.leave,
            Some(Seen::Paused) => held.leave,
            None => false,
        };
        if dead || held.is_given_up(target.generation) {
            return self.kill(target.generation, target.node);
        }
        if self.watch.seen == Some(Seen::Paused) {
            return self.act(held.node, Action::ResumeCompute, Observation::Resume);
        }
        self.look(held.node, Observation::Resume)
    }

    fn waking(&self) -> Next {
        let held = self.s.held;
        let Some(current) = held.current() else {
            return REST;
        };
        let look = Observation::Compute(current.generation);
        let dead = self.watch.seen == Some(Seen::Dead);
        let given_up = held.is_given_up(current.generation);
        let replaceable = held.replaceable();
        if replaceable && (dead || given_up || held.leave || self.watch.waited_long()) {
            return self.kill(current.generation, current.node);
        }
        let shown = if !replaceable && self.watch.waited_long() {
            self.show(Diagnostic::ComputeUnconfirmed)
        } else {
            Next::Wait {
                until: Some(self.watch.waited_long_at(self.now)),
            }
        };
        let own = match (self.watch.woken, self.watch.seen) {
            (Some(at), _) if self.now < at + limits::WAKE_LINK => Next::Wait {
                until: Some(at + limits::WAKE_LINK),
            },
            (_, Some(Seen::Running)) => self.act(held.node, Action::Wake, look),
            (_, Some(Seen::Paused)) => self.act(held.node, Action::ResumeCompute, look),
            (_, Some(Seen::Dead) | None) => self.look(held.node, look),
        };
        first([shown, own])
    }

    fn cleanup(&self, kill: Kill) -> Next {
        if self.s.base.state.open().is_some() {
            return self.base();
        }
        first([self.remove(kill), self.owed()])
    }

    fn remove(&self, kill: Kill) -> Next {
        let held = self.s.held;
        let left: Vec<_> = held.computes.iter().rev().filter(|c| !c.ended).collect();
        if let Some(compute) = left.iter().find(|c| self.is_connected(c.node)) {
            return self.kill(compute.generation, compute.node);
        }
        let here = matches!(self.s.base.node, Presence::Online { .. });
        if held.unobserved.contains(&held.node) && here {
            return at(
                self.watch.look_at(held.node, self.now),
                self.now,
                Action::Base(allocation::Action::Look),
            );
        }
        if held.checkpoint.is_some() {
            return self.act(held.node, Action::DeleteRetained, Observation::Info);
        }
        if kill == Kill::Confirmed && !left.is_empty() {
            return REST;
        }
        self.base()
    }
}
