//! What must hold of sandboxes that can be suspended: what one transition may do, what is so on the hosts and in the store
//! at any moment, and what is left at rest.

use oac_lifecycle::{
    allocation::{self, Cause, Sighting, State},
    suspension::{Answer, Busy, Event, Held, Observation, Request, may_suspend},
};
use oac_model::{AllocationId, AllocationState, ComputePhase as P};

use crate::{
    database::{AllocationRow, Detail},
    defect::Defect,
    host::effects::Ask,
    ids,
    invariant::Invariant,
    world::World,
};

impl World {
    /// A planted mistake of Core's table.
    pub(crate) fn planted(&self, held: &Held, event: &Event) -> Option<Held> {
        let mut next = held.clone();
        let lost = *event == Event::AnswerLost;
        let resuming = held.open.is_some_and(|open| open.request == Request::Resume);
        match self.defect? {
            Defect::ReturnsWithoutKill if lost && resuming => {
                next.open = None;
                next.computes.last_mut()?.ended = true;
                next.state = State::Running { phase: P::Suspended };
            }
            Defect::ConsumesEarly if held.phase() == Some(P::Restoring) => {
                next = held.apply(event.clone()).ok()?;
                if next.phase() == Some(P::Waking) {
                    next.checkpoint.as_mut()?.consumed = true;
                }
            }
            Defect::AdmitsTheKilled if *event == Event::Linked && held.phase() == Some(P::Waking) => {
                next.state = State::Running { phase: P::Running };
                if let Some(kept) = next.checkpoint.as_mut() {
                    kept.consumed = true;
                }
            }
            Defect::ForgetsComputes if matches!(event, Event::Base(allocation::Event::KillAnswered)) => {
                next = held.apply(event.clone()).ok()?;
                next.computes.iter_mut().for_each(|compute| compute.ended = true);
            }
            Defect::CountsEveryReturn => {
                next = held.apply(event.clone()).ok()?;
                let back = held.replaceable() && next.phase() == Some(P::Suspended);
                if !back || next.restore_failures > held.restore_failures {
                    return None;
                }
                next.restore_failures += 1;
            }
            Defect::CleansUpAtOnce if matches!(event, Event::GivenUp(_)) && held.phase().is_some() => {
                let Event::GivenUp(cause) = event else { return None };
                next.open = None;
                next.state = State::CleanupPending {
                    cause: *cause,
                    create: allocation::CreateProof::Settled,
                    kill: allocation::Kill::NotYet,
                };
            }
            _ => return None,
        }
        Some(next)
    }

    /// One event, as it is committed.
    pub(crate) fn check_held(
        &mut self,
        before: &AllocationRow,
        was: &Held,
        now: &Held,
        event: &Event,
        detail: &Detail,
    ) {
        let id = before.id;
        let number = ids::number(id.as_uuid());
        let Some(row) = self.db.allocations.get(&id).cloned() else {
            return;
        };
        self.check_settled(before, &row, detail);
        let (from, to) = (was.phase(), now.phase());
        if from != to {
            self.note_phase(from, to);
        }
        if detail.early
            && may_suspend(&self.stillness(before.session, before, false)) == Err(Busy::ActiveLately)
        {
            self.reach("a sandbox was suspended early");
        }
        if from == Some(P::Restoring) && to == Some(P::Waking) {
            let verified = self.history.verified.contains(&id);
            self.demand(verified, Invariant::C34, || {
                format!("the restore of allocation {number} is verified by {event:?}")
            });
        }
        let moved_on = |held: &Held| held.checkpoint.is_some_and(|kept| kept.consumed);
        if moved_on(now) && !moved_on(was) {
            self.demand(*event == Event::Linked, Invariant::C35, || {
                format!("the checkpoint of allocation {number} is used up by {event:?}")
            });
        }
        let current = was.current().map(|compute| compute.generation);
        if *event == Event::Linked && from == Some(P::Waking) {
            self.demand(
                !current.is_some_and(|g| was.is_given_up(g)),
                Invariant::C36,
                || format!("the target of allocation {number} is admitted, and its kill is stored"),
            );
            if let Some(kept) = was.unconsumed()
                && let Some(kept) = self.kept.get_mut(&kept.operation)
            {
                // The sandbox moves on from it.
                kept.valid = false;
            }
        }
        self.check_ended(number, was, now, event);
        self.check_returned(number, was, now, event);
        if let Event::GivenUp(Cause::RetentionEnd) = event {
            let due = before.held.as_ref().map_or(0, |row| row.retention_at);
            let said = self.db.time(self.now);
            self.demand(said >= due, Invariant::C33, || {
                format!(
                    "the retention of allocation {number} ends {} ms early",
                    due - said
                )
            });
        }
        if row.state == AllocationState::CleanupPending && before.state == AllocationState::Running {
            self.demand(
                row.holds_active() == before.holds_active(),
                Invariant::C40,
                || format!("the cleanup of allocation {number} changes its slots"),
            );
        }
        match event {
            Event::LossConfirmed => {
                self.check_loss(&row);
                let state = !was.replaceable() && self.has_state(id);
                self.demand(!state, Invariant::P23, || {
                    format!("allocation {number} is declared lost, and its files are there")
                });
            }
            Event::Base(allocation::Event::Observed(sighting)) if now.state == State::Released => {
                self.check_said(id, *sighting);
                self.check_release(&row, allocation::Event::Observed(*sighting));
            }
            _ => {}
        }
    }

    fn check_said(&mut self, id: AllocationId, sighting: Sighting) {
        let said = self
            .of_owner(id)
            .and_then(|of| self.history.said.get(&of).copied());
        self.demand(said == Some(sighting), Invariant::P10, || {
            format!("{sighting:?} is recorded and {said:?} was answered")
        });
    }

    fn note_phase(&mut self, from: Option<P>, to: Option<P>) {
        match (from, to) {
            (Some(P::Suspending), Some(P::Suspended)) => self.reach("a sandbox was suspended"),
            (Some(P::Suspending), Some(P::Waking)) => self.reach("a suspend came to nothing"),
            (Some(P::Restoring | P::Waking), Some(P::Suspended)) => self.reach("a restore returned"),
            (Some(P::Waking), Some(P::Running)) => self.reach("a sandbox was woken"),
            (Some(P::Suspended), None) => self.reach("a suspended sandbox was given up"),
            _ => {}
        }
    }

    fn check_ended(&mut self, number: u64, was: &Held, now: &Held, event: &Event) {
        for compute in now.computes.iter().filter(|compute| compute.ended) {
            let newly = was.compute(compute.generation).is_some_and(|was| !was.ended);
            let by = matches!(
                event,
                Event::Answered(Answer::Done | Answer::Invalid)
                    | Event::NotSent
                    | Event::Forgotten(_)
                    | Event::Observed {
                        of: Observation::Resume,
                        answer: Answer::Invalid,
                        ..
                    }
            );
            self.demand(by || !newly, Invariant::C39, || {
                format!(
                    "compute {} of allocation {number} has ended by {event:?}",
                    compute.generation
                )
            });
        }
    }

    fn check_returned(&mut self, number: u64, was: &Held, now: &Held, event: &Event) {
        let returns =
            matches!(was.phase(), Some(P::Restoring | P::Waking)) && now.phase() == Some(P::Suspended);
        if !returns || now.restore_failures <= was.restore_failures {
            return;
        }
        let invalid = matches!(
            event,
            Event::Answered(Answer::Invalid)
                | Event::Observed {
                    answer: Answer::Invalid,
                    ..
                }
        );
        let seen = now.current().is_some_and(|compute| compute.seen);
        let counts = *event == Event::LossConfirmed || seen || invalid;
        self.demand(counts && !was.leave, Invariant::C41, || {
            format!("a return of allocation {number} by {event:?} counts as a failure")
        });
    }

    /// There is a state of the sandbox somewhere.
    pub(crate) fn has_state(&self, id: AllocationId) -> bool {
        let live = self
            .hosts
            .iter()
            .any(|host| host.machine_state.of(id).any(|(_, vm)| vm.is_live()));
        let kept = self
            .kept
            .values()
            .any(|kept| kept.allocation == id && kept.good && kept.valid);
        live || kept
    }

    /// The last of it is gone by what a node was asked to do.
    pub(crate) fn check_destroyed(&mut self, id: AllocationId) {
        let Some(row) = self.db.allocations.get(&id) else {
            return;
        };
        let sanctioned = row.state == AllocationState::CleanupPending
            && !matches!(
                row.cause,
                Some(Cause::ComputeLost | Cause::CreateUnresolved | Cause::NeverLinked)
            )
            || row.is_released()
            || !row.initialized;
        let number = ids::number(id.as_uuid());
        self.demand(sanctioned, Invariant::C37, || {
            format!("the last state of allocation {number} is destroyed")
        });
    }

    /// After every event.
    pub(crate) fn check_vms(&mut self) {
        let mut broken = None;
        for row in self.db.allocations.values() {
            let id = row.id;
            let number = ids::number(id.as_uuid());
            let hosts = || self.hosts.iter().filter(|host| !host.over);
            let live = hosts()
                .flat_map(|host| host.machine_state.of(id))
                .filter(|(_, vm)| vm.is_live())
                .count();
            let resumes = hosts()
                .flat_map(|host| host.machine_state.helpers.values())
                .any(|helper| helper.allocation == id && matches!(helper.ask, Ask::Resume(_, _)));
            if live > 1 {
                broken = Some((
                    Invariant::C21,
                    format!("allocation {number} has {live} live computes"),
                ));
            }
            if row.held.is_some() && !row.is_released() && !row.holds_active() && (live > 0 || resumes) {
                broken = Some((
                    Invariant::C20,
                    format!(
                        "allocation {number} holds no active slot, and {live} computes live, resuming {resumes}"
                    ),
                ));
            }
            if row.is_released() && row.ever_sent && row.held.is_some() {
                let left = hosts().any(|host| host.machine_state.of(id).next().is_some());
                let kept = self.kept.values().any(|kept| kept.allocation == id);
                if left || kept {
                    broken = Some((
                        Invariant::C28,
                        format!(
                            "allocation {number} is released; computes left: {left}, checkpoint left: {kept}"
                        ),
                    ));
                }
            }
            let Some(held) = row.held.as_ref().map(|row| &row.held) else {
                continue;
            };
            if let Some(kept) = held.unconsumed()
                && held.phase().is_some()
                && held.deferred.is_none()
                && !self.kept.contains_key(&kept.operation)
            {
                broken = Some((
                    Invariant::C35,
                    format!("the checkpoint of allocation {number} is deleted before it is used up"),
                ));
            }
        }
        for host in self.hosts.iter().filter(|host| !host.over) {
            let all = host.machine_state.vms.iter().filter(|(_, vm)| vm.is_live());
            let (live, room) = (all.count(), self.db.nodes[&host.id].highest as usize);
            if live > room {
                broken = Some((Invariant::C10, format!("{live} computes on a host for {room}")));
            }
        }
        if let Some((invariant, what)) = broken {
            self.violated(invariant, || what);
        }
    }

    /// Why one that can be suspended does not rest.
    pub(crate) fn restless_held(&self, row: &AllocationRow) -> Option<String> {
        let held = &row.held.as_ref()?.held;
        let number = ids::number(row.id.as_uuid());
        let session = &self.db.sessions[&row.session];
        let quiet = held.former().next().is_none() && held.open.is_none() && held.unobserved.is_empty();
        let vm = self
            .hosts
            .iter()
            .find(|host| host.id == held.node)
            .and_then(|host| host.machine_state.vms.get(&(row.id, held.current()?.generation)));
        let rests = match held.phase() {
            Some(P::Running) => {
                vm.is_some_and(|vm| vm.is_awake())
                    && held.checkpoint.is_none()
                    && session.asked == session.ended
            }
            Some(P::Suspended) => {
                // After three failures it waits for a new input or its end.
                session.asked == session.ended || held.restore_failures > 0
            }
            _ => false,
        };
        (!rests || !quiet || session.archived).then(|| {
            format!(
                "allocation {number} is {:?}, {held:?}, Turns {}/{}, {vm:?}",
                held.state, session.ended, session.asked
            )
        })
    }
}
