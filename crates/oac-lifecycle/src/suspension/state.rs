//! What is stored of an allocation that can be suspended, and the one function that changes it.

use std::collections::BTreeSet;

use oac_model::{ComputePhase, NodeId, OperationId};

use super::{
    Answer, Event, Observation, Refused,
    recorded::{Checkpoint, Compute, Open, Progress, Request},
};
use crate::allocation::{self, Cause, CreateProof, Kill, State};

/// The stored state of an allocation whose provider keeps checkpoints, from its first start on.
///
/// *Current* is the newest compute. *Unconsumed* is a bound checkpoint that no linked target used up.
///
/// | phase | event | next | with it |
/// |---|---|---|---|
/// | running | QuiescingBegun | quiescing | no checkpoint undeleted, nothing open; suspend in intent: its id is what the runtime is quiesced and woken with |
/// | quiescing | QuiesceRefused | running | the intent is dropped |
/// | quiescing | Quiesced | suspending | |
/// | quiescing, suspending | NotSent | waking | perhaps parked: demand, no answer, a new owner |
/// | suspending | `suspended` to suspend or reconcile | suspended | checkpoint bound, failures 0, active slot free |
/// | suspending | `running`, `paused`, settled without checkpoint | waking | |
/// | suspending | anything else | suspending | definite `ended`, `not_found` let a cleanup begin |
/// | suspended | RestoreIntended(node), not haunted | restoring | target recorded there, slots moved, resume in intent |
/// | restoring | `running` to resume or reconcile, target not given up, node not to be left | waking | |
/// | restoring | `running` otherwise, `paused`, `failed`, `ended`, not_found, to whichever | restoring | lets a cleanup begin |
/// | restoring | NotSent | suspended | target ended, uncounted |
/// | restoring | `invalid` to resume or reconcile | suspended | target ended, counted |
/// | restoring, waking with it unconsumed | current's kill_compute confirmed | suspended | target ended; counted if it was seen and the node is not to be left |
/// | restoring, waking with it unconsumed | LossConfirmed | suspended | counted; the target's kill_compute is still owed |
/// | waking | Linked, current not given up | running | checkpoint consumed, failures 0 |
/// | running, suspending, waking without | LossConfirmed | cleanup | cause compute_lost |
/// | any without an unconsumed checkpoint | GivenUp(retention_end) | refused: whoever linked meanwhile used it up |
/// | suspending, restoring | GivenUp | the same, then cleanup | once the open operation is answered definitely |
/// | every other | GivenUp | cleanup | an intent is dropped, a sent mutation stays open |
/// | any | kill_compute confirmed | the same | that compute ended |
/// | any, consumed or in cleanup | delete_retained confirmed | the same | no checkpoint |
/// | any | a mutation without a usable answer | the same | its node is unobserved |
/// | any | a definite observation at an unobserved node | the same | the node is observed |
/// | any | Forgotten(nodes) | the same | former computes there ended, their kill_compute owed |
/// | any, released too | a kill_compute that is owed, intended to confirmed | the same | it is owed no more |
/// | cleanup | a settled absence after a confirmed kill | released | only without a checkpoint and with every compute ended |
///
/// Every other pair is refused and changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Running in one of the phases but `disabled`, cleanup pending, or released.
    pub state: State,
    /// It is given up, and cleaned up as soon as the open suspend or resume is answered definitely.
    pub deferred: Option<Cause>,
    /// The allocation's node: where its slots are.
    pub node: NodeId,
    /// A drain that terminates passed its deadline there: what was not restored yet returns to suspended.
    pub leave: bool,
    /// Oldest first.
    pub computes: Vec<Compute>,
    pub checkpoint: Option<Checkpoint>,
    /// The latest suspend: what phase suspending waits for.
    pub suspend: Option<OperationId>,
    pub open: Option<Open>,
    /// Nodes where a mutation has an unknown outcome and nothing was observed since.
    pub unobserved: BTreeSet<NodeId>,
    pub restore_failures: u32,
}

impl Held {
    /// The phase; `None` in cleanup and after.
    pub fn phase(&self) -> Option<ComputePhase> {
        match self.state {
            State::Running { phase } => Some(phase),
            _ => None,
        }
    }

    pub fn cleaning(&self) -> bool {
        matches!(self.state, State::CleanupPending { .. })
    }

    /// The newest compute: the source of a suspend, the target of a restore, what runs otherwise.
    pub fn current(&self) -> Option<&Compute> {
        self.computes.last()
    }

    pub fn compute(&self, generation: i64) -> Option<&Compute> {
        self.computes.iter().find(|c| c.generation == generation)
    }

    fn compute_mut(&mut self, generation: i64) -> Option<&mut Compute> {
        self.computes.iter_mut().find(|c| c.generation == generation)
    }

    /// The bound checkpoint that is not used up.
    pub fn unconsumed(&self) -> Option<Checkpoint> {
        self.checkpoint.filter(|c| !c.consumed)
    }

    /// The compute is never admitted: it ended, or its kill is stored and was not dropped unsent (INV-C36).
    pub fn is_given_up(&self, generation: i64) -> bool {
        let killing = self
            .open
            .is_some_and(|open| open.request == Request::KillCompute(generation));
        killing
            || self
                .compute(generation)
                .is_some_and(|compute| compute.ended || compute.kill_sent)
    }

    /// The current compute is a target whose checkpoint can still be restored elsewhere.
    pub fn replaceable(&self) -> bool {
        matches!(self.phase(), Some(ComputePhase::Restoring | ComputePhase::Waking))
            && self.unconsumed().is_some()
    }

    /// Computes without `ended` that are not the one that runs, wakes or is kept for its checkpoint: their
    /// `kill_compute` is owed (core.md section 12).
    pub fn former(&self) -> impl Iterator<Item = &Compute> {
        let current = self.current().map(|c| c.generation);
        let unconsumed = self.unconsumed();
        let in_use = unconsumed.is_none() || self.replaceable();
        self.computes.iter().filter(move |c| {
            !c.ended
                && (!in_use || Some(c.generation) != current)
                && unconsumed.is_none_or(|kept| kept.source != c.generation)
        })
    }

    /// Computes that an operator discarded and whose node did not confirm their end since (core.md section 4).
    pub fn owed(&self) -> impl Iterator<Item = &Compute> {
        self.computes.iter().filter(|c| c.kill_owed)
    }

    /// Computes that an operator may discard once their nodes are offline. What is not at the allocation's node was stopped
    /// when its checkpoint was bound, or its loss was confirmed: a restore moves to another node only then.
    pub fn elsewhere(&self) -> impl Iterator<Item = &Compute> {
        self.computes.iter().filter(|c| !c.ended && c.node != self.node)
    }

    /// A cleanup with everything done but that computes elsewhere were not confirmed to have ended.
    pub fn waits_only_elsewhere(&self) -> bool {
        let killed = matches!(
            self.state,
            State::CleanupPending {
                kill: Kill::Confirmed,
                ..
            }
        );
        let elsewhere = self.elsewhere().count();
        let left = self.computes.iter().filter(|c| !c.ended).count();
        killed && self.checkpoint.is_none() && elsewhere > 0 && elsewhere == left
    }

    /// Nodes where a target of the bound checkpoint may still be, a discarded compute, or a mutation of unknown outcome that
    /// nothing was observed of since: none of them is a target for it now.
    pub fn haunted(&self) -> BTreeSet<NodeId> {
        self.of_checkpoint()
            .filter(|c| !c.ended)
            .chain(self.owed())
            .map(|c| c.node)
            .chain(self.unobserved.iter().copied())
            .collect()
    }

    /// Nodes that refused or failed the bound checkpoint.
    pub fn failed_at(&self) -> BTreeSet<NodeId> {
        self.of_checkpoint()
            .filter(|c| c.failed)
            .map(|c| c.node)
            .collect()
    }

    fn of_checkpoint(&self) -> impl Iterator<Item = &Compute> {
        let operation = self.checkpoint.map(|c| c.operation);
        self.computes
            .iter()
            .filter(move |c| operation.is_some() && c.restored_from == operation)
    }

    /// Whether it takes one of its node's active slots (core.md section 8). Cleanup keeps what it found.
    pub fn holds_active(&self, phase: ComputePhase) -> bool {
        self.state != State::Released && phase != ComputePhase::Suspended
    }

    /// A mutation is in intent or sent (INV-C16).
    pub fn has_open(&self) -> bool {
        self.open.is_some() || self.state.open().is_some()
    }

    /// The only function that changes it.
    pub fn apply(&self, event: Event) -> Result<Held, Refused> {
        let mut next = self.clone();
        match next.change(&event) {
            Some(()) => {
                next.begin_deferred_cleanup();
                Ok(next)
            }
            None => Err(Refused {
                held: Box::new(self.clone()),
                event,
            }),
        }
    }

    fn change(&mut self, event: &Event) -> Option<()> {
        use ComputePhase as P;
        match (event, self.phase()) {
            (Event::Named, Some(P::Running)) if self.computes.is_empty() => {
                self.computes.push(Compute::new(0, self.node, None));
            }
            (Event::QuiescingBegun(operation), Some(P::Running))
                if self.checkpoint.is_none()
                    && self.current()?.seen
                    && !self.unobserved.contains(&self.node) =>
            {
                self.intend(Request::Suspend(*operation))?;
                self.suspend = Some(*operation);
                self.enter(P::Quiescing);
            }
            (Event::QuiesceRefused, Some(P::Quiescing)) => {
                self.open = None;
                self.enter(P::Running);
            }
            (Event::Quiesced, Some(P::Quiescing)) => self.enter(P::Suspending),
            // It leaves only once the runtime is parked.
            (Event::MarkedSent, Some(P::Quiescing)) => return None,
            (Event::RestoreIntended(node), Some(P::Suspended)) => {
                let kept = self.unconsumed()?;
                if self.haunted().contains(node) || self.has_open() {
                    return None;
                }
                let generation = self.current()?.generation + 1;
                self.node = *node;
                self.computes
                    .push(Compute::new(generation, *node, Some(kept.operation)));
                self.intend(Request::Resume)?;
                self.enter(P::Restoring);
            }
            (Event::Intended(request), _) => {
                if !self.may_intend(*request) {
                    return None;
                }
                self.intend(*request)?;
            }
            (Event::MarkedSent, _) if self.open.is_some() => {
                let open = self.open.as_mut().filter(|o| o.progress == Progress::Intent)?;
                open.progress = Progress::Sent;
            }
            (Event::NotSent, _) if self.open.is_some() => {
                let open = self.open.take()?;
                self.never_left(open);
            }
            (Event::AnswerLost, _) if self.open.is_some() => {
                let open = self.open.filter(|o| o.progress == Progress::Sent)?;
                self.closed(open, Answer::Unknown);
            }
            (Event::Answered(answer), _) => {
                let open = self.open.filter(|o| o.progress == Progress::Sent)?;
                self.closed(open, *answer);
            }
            (Event::Observed { node, of, answer }, _) if self.open.is_none() => {
                if self.state == State::Released && self.owed().next().is_none() {
                    return None;
                }
                if answer.is_definite() {
                    self.unobserved.remove(node);
                }
                self.observed(*node, *of, *answer);
            }
            (Event::Linked, Some(P::Waking)) => {
                let current = self.current()?;
                if self.is_given_up(current.generation) {
                    return None;
                }
                let restored_from = current.restored_from;
                if let Some(kept) = self.checkpoint.as_mut()
                    && restored_from == Some(kept.operation)
                {
                    kept.consumed = true;
                }
                self.restore_failures = 0;
                self.enter(P::Running);
            }
            (Event::LossConfirmed, Some(phase)) if !self.has_open() => match phase {
                P::Restoring | P::Waking if self.unconsumed().is_some() => self.back(true),
                P::Disabled | P::Quiescing | P::Suspended => return None,
                P::Running | P::Suspending | P::Restoring | P::Waking => self.clean_up(Cause::ComputeLost),
            },
            (Event::GivenUp(Cause::RetentionEnd), Some(_)) if self.unconsumed().is_none() => return None,
            (Event::GivenUp(cause), Some(P::Suspending | P::Restoring)) => {
                self.deferred = self.deferred.or(Some(*cause));
            }
            (Event::GivenUp(cause), Some(_)) => self.clean_up(*cause),
            (Event::GivenUp(_), None) => {}
            (Event::Forgotten(nodes), _) if self.state != State::Released => {
                let forgotten = self.elsewhere().filter(|c| nodes.contains(&c.node));
                for generation in forgotten.map(|c| c.generation).collect::<Vec<_>>() {
                    let compute = self.compute_mut(generation)?;
                    (compute.ended, compute.kill_owed) = (true, true);
                }
            }
            // The mutation that is open belongs to the base.
            (Event::MarkedSent, None) => self.base(allocation::Event::MarkedSent)?,
            (Event::NotSent, None) => self.base(allocation::Event::NotSent)?,
            (Event::AnswerLost, None) => self.base(allocation::Event::AnswerLost)?,
            (Event::Base(event), None) => self.base(*event)?,
            (Event::Base(allocation::Event::Observed(sighting)), Some(_)) => {
                if sighting.is_definite() && self.open.is_none() {
                    self.unobserved.remove(&self.node);
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// What the base knows of cleanup, kept from releasing while anything of this allocation may be left (INV-C28).
    fn base(&mut self, event: allocation::Event) -> Option<()> {
        if event == allocation::Event::KillIntended && self.open.is_some() {
            return None;
        }
        let next = self.state.apply(event).ok()?;
        if let allocation::Event::Observed(sighting) = event
            && sighting.is_definite()
            && self.open.is_none()
        {
            self.unobserved.remove(&self.node);
        }
        let left = self.checkpoint.is_some() || self.computes.iter().any(|c| !c.ended) || self.open.is_some();
        if next != State::Released || !left {
            self.state = next;
        }
        Some(())
    }

    fn may_intend(&self, request: Request) -> bool {
        let settled = !self.has_open();
        let node = self.node_of(request);
        let observed = node.is_some_and(|node| !self.unobserved.contains(&node));
        let current = self.current().map(|c| c.generation);
        let allowed = match request {
            Request::Suspend(_) | Request::Resume => false,
            Request::KillCompute(generation) => {
                let target = self.replaceable() && Some(generation) == current;
                self.compute(generation).is_some_and(|c| {
                    let owed = self.cleaning() || target || self.former().any(|c| c.generation == generation);
                    c.kill_owed || !c.ended && owed
                })
            }
            Request::ResumeCompute => {
                matches!(self.phase(), Some(ComputePhase::Restoring | ComputePhase::Waking))
            }
            Request::Wake => {
                self.phase() == Some(ComputePhase::Waking) && current.is_some_and(|c| !self.is_given_up(c))
            }
            Request::DeleteRetained => self.checkpoint.is_some_and(|kept| {
                self.cleaning() || kept.consumed && self.phase() != Some(ComputePhase::Suspended)
            }),
        };
        settled && observed && allowed
    }

    /// Where a request goes.
    pub fn node_of(&self, request: Request) -> Option<NodeId> {
        match request {
            Request::KillCompute(generation) => self.compute(generation).map(|c| c.node),
            _ => Some(self.node),
        }
    }

    fn intend(&mut self, request: Request) -> Option<()> {
        if self.has_open() {
            return None;
        }
        self.open = Some(Open {
            request,
            node: self.node_of(request)?,
            progress: Progress::Intent,
        });
        Some(())
    }

    fn enter(&mut self, phase: ComputePhase) {
        self.state = State::Running { phase };
    }

    fn never_left(&mut self, open: Open) {
        match (open.request, self.phase()) {
            (Request::Suspend(_), Some(ComputePhase::Quiescing | ComputePhase::Suspending)) => {
                self.enter(ComputePhase::Waking);
            }
            (Request::Resume, Some(ComputePhase::Restoring)) => {
                if let Some(target) = self.computes.last_mut() {
                    target.ended = true;
                }
                self.back(false);
            }
            _ => {}
        }
    }

    /// The open mutation has its answer, or will have none.
    fn closed(&mut self, open: Open, answer: Answer) {
        self.open = None;
        let settles = match open.request {
            Request::Suspend(operation) => self.suspend_answered(operation, answer),
            Request::Resume => {
                self.resume_answered(answer);
                answer.shows() || answer == Answer::Invalid
            }
            Request::KillCompute(generation) => {
                self.compute_killed(generation, answer == Answer::Done);
                answer == Answer::Done
            }
            Request::ResumeCompute => answer.shows() || answer == Answer::NotFound,
            Request::Wake => answer == Answer::Done,
            Request::DeleteRetained => {
                if answer == Answer::Done {
                    self.checkpoint = None;
                }
                answer == Answer::Done
            }
        };
        if !settles {
            self.unobserved.insert(open.node);
        }
    }

    fn observed(&mut self, node: NodeId, of: Observation, answer: Answer) {
        match of {
            Observation::Compute(generation) => {
                if let Some(compute) = self.compute_mut(generation).filter(|c| c.node == node) {
                    compute.seen |= answer.shows();
                }
                let current = self.current().map(|c| c.generation);
                if self.phase() == Some(ComputePhase::Restoring) && current == Some(generation) {
                    // It verifies nothing and says what became of the resume (INV-C34).
                    self.may_clean_up(answer.is_definite());
                }
            }
            Observation::Suspend => {
                if let Some(operation) = self.suspend {
                    self.suspend_answered(operation, answer);
                }
            }
            Observation::Resume => self.resume_answered(answer),
            Observation::Info => {}
        }
    }

    /// Whether the answer settles the operation; the rest is observed.
    fn suspend_answered(&mut self, operation: OperationId, answer: Answer) -> bool {
        if self.phase() != Some(ComputePhase::Suspending) {
            return true;
        }
        match answer {
            Answer::Suspended => {
                self.checkpoint = Some(Checkpoint {
                    operation,
                    source: self.current().map_or(0, |c| c.generation),
                    consumed: false,
                });
                self.restore_failures = 0;
                self.enter(ComputePhase::Suspended);
                true
            }
            Answer::Running | Answer::Paused => {
                self.enter(ComputePhase::Waking);
                true
            }
            Answer::Ended | Answer::NotFound => {
                self.may_clean_up(true);
                false
            }
            _ => false,
        }
    }

    fn resume_answered(&mut self, answer: Answer) {
        if self.phase() != Some(ComputePhase::Restoring) {
            return;
        }
        let Some(target) = self.computes.last_mut() else {
            return;
        };
        target.seen |= answer.shows();
        let generation = target.generation;
        match answer {
            Answer::Invalid => {
                target.ended = true;
                self.back(true);
            }
            Answer::Running if !self.is_given_up(generation) && !self.leave && self.deferred.is_none() => {
                self.enter(ComputePhase::Waking);
            }
            Answer::Refused | Answer::Unknown | Answer::Done => {}
            _ => self.may_clean_up(true),
        }
    }

    fn compute_killed(&mut self, generation: i64, confirmed: bool) {
        let current = self.current().map(|c| c.generation);
        let is_target = self.replaceable() && current == Some(generation);
        let Some(compute) = self.compute_mut(generation) else {
            return;
        };
        compute.kill_sent = true;
        if confirmed {
            (compute.ended, compute.kill_owed) = (true, false);
            let seen = compute.seen;
            if is_target {
                self.back(seen);
            }
        }
    }

    /// Returns to suspended with the checkpoint as it is; a node that is to be left is not to blame.
    fn back(&mut self, counted: bool) {
        if counted && !self.leave {
            self.restore_failures += 1;
            if let Some(target) = self.computes.last_mut() {
                target.failed = true;
            }
        }
        self.enter(ComputePhase::Suspended);
    }

    /// The open suspend or resume was answered definitely: what waits for that may begin.
    fn may_clean_up(&mut self, definite: bool) {
        if let Some(cause) = self.deferred.filter(|_| definite) {
            self.clean_up(cause);
        }
    }

    fn begin_deferred_cleanup(&mut self) {
        let waits = matches!(
            self.phase(),
            Some(ComputePhase::Suspending | ComputePhase::Restoring)
        );
        if let Some(cause) = self.deferred.filter(|_| !waits && self.phase().is_some()) {
            self.clean_up(cause);
        }
    }

    fn clean_up(&mut self, cause: Cause) {
        self.deferred = None;
        self.open = self.open.filter(|open| open.progress == Progress::Sent);
        self.state = State::CleanupPending {
            cause,
            create: CreateProof::Settled,
            kill: Kill::NotYet,
        };
    }
}
