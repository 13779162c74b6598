//! Operations that have started: one after the other for each allocation, whatever their callers wait for.

use oac_model::{AllocationId, Generation, Reference};
use oac_peer::{
    FailureCode, Moment, Outcome,
    node::{Event, Job, Ticket},
};
use oac_wire::{frames::Arguments, shapes::Operation};

use super::provider::Script;
use crate::{
    agenda::Millis,
    defect::Defect,
    ids,
    invariant::Invariant,
    network::Delivered,
    world::{Happening, World},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkId(pub(crate) u64);

pub(crate) struct Work {
    pub(crate) reference: Reference,
    /// `None` for the sweep.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) generation: Generation,
    pub(crate) deadline: Millis,
    pub(crate) asked: Arguments,
    pub(crate) script: Script,
    /// The caller has an answer, or none is owed.
    pub(crate) answered: bool,
}

impl World {
    /// The machine says that an operation's turn has come.
    pub(crate) fn run_job(&mut self, host: usize, job: Job) {
        let Job {
            ticket,
            deadline: Moment(deadline),
            request,
            ..
        } = job;
        let operation = request.arguments.operation();
        let allocation = request.reference.allocation_id;
        let generation = request.deployment_generation;
        self.say(|| {
            let number = ids::number(allocation.as_uuid());
            format!(
                "host {host}: starts {} of allocation {number}",
                operation.as_str()
            )
        });
        self.check_start(host, allocation, operation, generation, deadline);
        let script = Script::new(&request.arguments, self);
        let generation = match self.has(Defect::RunOnServing) {
            true => self.db.target,
            false => generation,
        };
        let here = &self.hosts[host];
        let mine = !here.managing || here.generations.contains_key(&generation);
        self.demand(
            mine && generation == request.deployment_generation,
            Invariant::N20,
            || format!("generation {generation} for {}", request.deployment_generation),
        );
        let id = WorkId(self.number());
        let run = here_run(self, host);
        if let Some(process) = self.hosts[host].process.as_mut() {
            process.unfinished.insert(ticket);
            process.work.insert(
                id,
                Work {
                    reference: request.reference,
                    ticket: Some(ticket),
                    generation,
                    deadline,
                    asked: request.arguments,
                    script,
                    answered: false,
                },
            );
        }
        self.agenda
            .at(deadline.max(self.now), Happening::WorkLate(host, run, id));
        self.enter_lane(host, allocation, id);
    }

    /// What must hold when native work may begin.
    fn check_start(
        &mut self,
        host: usize,
        allocation: AllocationId,
        operation: Operation,
        generation: Generation,
        deadline: Millis,
    ) {
        let now = self.now;
        self.demand(now < deadline, Invariant::N25, || {
            format!("{} starts {} ms too late", operation.as_str(), now - deadline)
        });
        let Some(process) = self.hosts[host].process.as_ref() else {
            return;
        };
        // Of exactly one request of the connection there is now.
        let link = process.link;
        let delivered = link
            .and_then(|link| self.network.links.get_mut(&link))
            .map(|link| {
                let fits = |d: &&mut Delivered| {
                    !d.started
                        && (d.asked.allocation, d.asked.operation, d.deadline)
                            == (allocation, operation, deadline)
                };
                let earlier = |sequence: i64, all: &[Delivered]| {
                    all.iter().any(|d| {
                        d.asked.sequence < sequence && d.asked.allocation == allocation && !d.started
                    })
                };
                let violated = link.violated;
                let found = link.delivered.iter_mut().find(fits).map(|d| {
                    d.started = true;
                    d.asked.sequence
                });
                found.map(|sequence| (violated, earlier(sequence, &link.delivered)))
            });
        match delivered.flatten() {
            None => self.violated(Invariant::N27, || {
                format!(
                    "{} runs that no request of this connection asked for",
                    operation.as_str()
                )
            }),
            Some((violated, overtakes)) => {
                self.demand(!violated, Invariant::P28, || {
                    "a request after a violation".to_owned()
                });
                self.demand(!overtakes, Invariant::N24, || {
                    format!("{} overtakes an earlier one", operation.as_str())
                });
            }
        }
        if operation == Operation::Create {
            let here = &self.hosts[host];
            let ready = here.process.as_ref().is_some_and(|process| match here.managing {
                true => process.standings.get(&generation) == Some(&oac_peer::node::Standing::Ready),
                false => process.probed,
            });
            self.demand(ready, Invariant::P11, || {
                format!("create on generation {generation}")
            });
        }
    }

    /// A planted defect: what waited on a connection that is gone starts all the same.
    pub(crate) fn run_waiting(&mut self, host: usize, waits: &Delivered) {
        let asked = waits.asked;
        let deadline = waits.deadline.max(self.now + 1);
        self.check_start(
            host,
            asked.allocation,
            asked.operation,
            Generation::FIRST,
            deadline,
        );
    }

    pub(crate) fn enter_lane(&mut self, host: usize, allocation: AllocationId, id: WorkId) {
        let Some(process) = self.hosts[host].process.as_mut() else {
            return;
        };
        let lane = process.lanes.entry(allocation).or_default();
        lane.push_back(id);
        let waits_for = lane.len() > 1;
        let run = self.hosts[host].run;
        // Two operations never wait in one lane: the schedule starts the second after the first ended. Only the sweep
        // stands between them.
        if waits_for {
            let others = self.hosts[host].process.as_ref().map_or(0, |process| {
                process.lanes[&allocation]
                    .iter()
                    .filter(|id| process.work.get(id).is_some_and(|work| work.ticket.is_some()))
                    .count()
            });
            self.demand(others <= 1, Invariant::N24, || {
                format!("allocation {} overlaps", ids::number(allocation.as_uuid()))
            });
        } else {
            let slow = self.between(0, 3);
            self.agenda
                .at(self.now + slow, Happening::WorkGoesOn(host, run, id));
        }
    }

    /// The lane is free for it: its first step, unless its time is over.
    pub(crate) fn work_goes_on(&mut self, host: usize, run: u64, id: WorkId) {
        let now = self.now;
        let Some(process) = self.hosts[host].process(run) else {
            return;
        };
        let Some(work) = process.work.get(&id) else {
            return;
        };
        let late = work.ticket.is_some() && now >= work.deadline;
        if late && !self.has(Defect::IgnoreBudget) {
            return self.finish_work(host, id, Outcome::failed(FailureCode::Unconfirmed));
        }
        self.demand(!late, Invariant::N25, || "its time was over".to_owned());
        self.script_begins(host, id);
    }

    /// The caller's wait ends; the work goes on.
    pub(crate) fn work_late(&mut self, host: usize, run: u64, id: WorkId) {
        let Some(work) = self.hosts[host]
            .process(run)
            .and_then(|process| process.work.get_mut(&id))
        else {
            return;
        };
        if std::mem::replace(&mut work.answered, true) {
            return;
        }
        let Some(ticket) = work.ticket else { return };
        self.reach("an operation outlasted its budget");
        self.node_takes(
            host,
            Event::Answered(ticket, Outcome::failed(FailureCode::Unconfirmed)),
        );
        if self.has(Defect::LaneFreedByAnswer) {
            self.work_ended(host, run, ticket);
        }
        if self.has(Defect::ForgetLingering)
            && let Some(process) = self.hosts[host].process(run)
        {
            process.machine.apply(Event::Ended(ticket), Moment(self.now));
        }
    }

    /// Native work is over: its answer, then its end, then whoever waits in its lane.
    pub(crate) fn finish_work(&mut self, host: usize, id: WorkId, outcome: Outcome) {
        let run = self.hosts[host].run;
        let Some(process) = self.hosts[host].process.as_mut() else {
            return;
        };
        let Some(work) = process.work.remove(&id) else {
            return;
        };
        let allocation = work.reference.allocation_id;
        let next = process.lanes.get_mut(&allocation).and_then(|lane| {
            lane.retain(|other| *other != id);
            lane.front().copied()
        });
        match next {
            Some(next) => self.agenda.at(self.now, Happening::WorkGoesOn(host, run, next)),
            None => drop(process.lanes.remove(&allocation)),
        }
        if let Some(ticket) = work.ticket {
            if !work.answered {
                self.node_takes(host, Event::Answered(ticket, outcome));
            }
            self.after(0, 2, Happening::WorkEnded(host, run, ticket));
        }
    }

    pub(crate) fn work_ended(&mut self, host: usize, run: u64, ticket: Ticket) {
        let Some(process) = self.hosts[host].process(run) else {
            return;
        };
        process.unfinished.remove(&ticket);
        self.node_takes(host, Event::Ended(ticket));
    }
}

fn here_run(world: &World, host: usize) -> u64 {
    world.hosts[host].run
}

/// What the calls of a burst ask for: something that takes its time.
pub(crate) fn pause_of(arguments: &Arguments, number: u64) -> Millis {
    match arguments {
        Arguments::Command(_) => number % 9_000,
        _ => number % 50,
    }
}
