//! The engine of a host: containers and volumes by allocation, and calls that outlive whoever made them.

use std::collections::BTreeMap;

use oac_lifecycle::allocation::Cause;
use oac_model::{AllocationId, Generation};
use oac_provider::Phase;

use super::native::WorkId;
use crate::{
    agenda::Millis,
    invariant::Invariant,
    world::{Happening, World},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallId(pub(crate) u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Created,
    Running,
    Ended,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Container {
    pub(crate) status: Status,
    /// The Runtime it was made of.
    pub(crate) generation: Generation,
    /// What its bootstrap file says.
    pub(crate) link_generation: Generation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// What there is of the allocation.
    List,
    MakeVolume(u8),
    MakeContainer {
        generation: Generation,
        link_generation: Generation,
    },
    Start,
    RemoveContainer,
    RemoveVolume(u8),
}

impl Act {
    fn makes(self) -> bool {
        matches!(
            self,
            Self::MakeVolume(_) | Self::MakeContainer { .. } | Self::Start
        )
    }
}

/// What there is of one allocation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) container: Option<Status>,
    pub(crate) volumes: u8,
}

impl Found {
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Found(Found),
    /// It certainly did not do it.
    Refused,
    /// The name is taken.
    Conflict,
    /// Whether it did or not.
    Unknown,
}

pub(crate) struct Call {
    pub(crate) allocation: AllocationId,
    pub(crate) act: Act,
    pub(crate) run: u64,
    pub(crate) work: WorkId,
    /// The engine never does it, and says so or not.
    fate: Option<Answer>,
    /// It does it, and its answer is lost.
    lost: bool,
    pub(crate) answer: Option<Answer>,
}

#[derive(Default)]
pub(crate) struct Engine {
    pub(crate) containers: BTreeMap<AllocationId, Container>,
    /// Bits: home, environment.
    pub(crate) volumes: BTreeMap<AllocationId, u8>,
    pub(crate) calls: BTreeMap<CallId, Call>,
    pub(crate) down_until: Millis,
    pub(crate) slow_until: Millis,
    pub(crate) refuses: u32,
    pub(crate) loses: u32,
    /// Since when it answers without interruption.
    pub(crate) steady_since: Millis,
    /// Containers that were made, ever.
    pub(crate) made: BTreeMap<AllocationId, u32>,
}

impl Engine {
    pub(crate) fn found(&self, allocation: AllocationId) -> Found {
        Found {
            container: self.containers.get(&allocation).map(|container| container.status),
            volumes: self.volumes.get(&allocation).copied().unwrap_or(0),
        }
    }

    pub(crate) fn settle_down(&mut self) {
        (self.down_until, self.slow_until, self.refuses, self.loses) = (0, 0, 0, 0);
    }

    /// The kernel ended, and everything in it.
    pub(crate) fn reboot(&mut self, now: Millis) {
        self.calls.clear();
        self.steady_since = now;
        for container in self.containers.values_mut() {
            if container.status == Status::Running {
                container.status = Status::Ended;
            }
        }
    }
}

impl World {
    pub(crate) fn engine_call(&mut self, host: usize, work: WorkId, allocation: AllocationId, act: Act) {
        let id = CallId(self.number());
        let here = &mut self.hosts[host];
        let tombstoned = here
            .receipts
            .get(&allocation)
            .is_some_and(|r| r.phase() == Phase::Tombstone);
        let (run, boot, now) = (here.run, here.boot, self.now);
        let engine = &mut here.engine;
        let (mut fate, mut lost) = (None, false);
        if now < engine.down_until {
            fate = Some(Answer::Unknown);
            engine.steady_since = engine.down_until;
        } else if act != Act::List && engine.refuses > 0 {
            engine.refuses -= 1;
            fate = Some(Answer::Refused);
        } else if act != Act::List && engine.loses > 0 {
            engine.loses -= 1;
            lost = true;
        }
        let slow = now < engine.slow_until;
        engine.calls.insert(
            id,
            Call {
                allocation,
                act,
                run,
                work,
                fate,
                lost,
                answer: None,
            },
        );
        self.demand(!(tombstoned && act.makes()), Invariant::OneSandbox, || {
            format!("{act:?} for a tombstoned allocation")
        });
        let most = if slow { 20_000 } else { 60 };
        self.after(1, most, Happening::EngineActs(host, boot, id));
        if act.makes()
            && let Some(down) = self.hosts[host].crash_in_call.take()
        {
            self.say(|| format!("host {host}: node CRASHES"));
            self.node_ends(host, false);
            self.node_restarts(host, down);
        }
    }

    /// The engine's side of a call: it does it, whoever waits.
    pub(crate) fn engine_acts(&mut self, host: usize, boot: u64, id: CallId) {
        if self.hosts[host].boot != boot {
            return;
        }
        let Some(call) = self.hosts[host].engine.calls.get(&id) else {
            return;
        };
        let (allocation, act, run, fate, lost) = (call.allocation, call.act, call.run, call.fate, call.lost);
        let answer = match fate {
            Some(fate) => fate,
            None => self.engine_does(host, allocation, act),
        };
        let orphan = self.hosts[host].run != run || self.hosts[host].process.is_none();
        if act != Act::List {
            self.say(|| {
                format!(
                    "host {host}: engine {act:?} of allocation {} -> {answer:?}{}",
                    crate::ids::number(allocation.as_uuid()),
                    if orphan { " (nobody waits)" } else { "" }
                )
            });
        }
        if orphan && act.makes() && answer == Answer::Done {
            self.reach("an engine call that outlived its node made something");
        }
        if let Some(call) = self.hosts[host].engine.calls.get_mut(&id) {
            call.answer = Some(if lost { Answer::Unknown } else { answer });
        }
        self.after(0, 5, Happening::EngineAnswers(host, run, id));
    }

    fn engine_does(&mut self, host: usize, allocation: AllocationId, act: Act) -> Answer {
        if act.makes() {
            let announced = self.hosts[host].receipts.contains_key(&allocation);
            self.demand(announced, Invariant::V6, || format!("{act:?} without a receipt"));
        }
        let full = self.hosts[host].disk_is_full(self.now);
        if full && matches!(act, Act::MakeVolume(_) | Act::MakeContainer { .. }) {
            return Answer::Refused;
        }
        let engine = &mut self.hosts[host].engine;
        match act {
            Act::List => return Answer::Found(engine.found(allocation)),
            Act::MakeVolume(bit) => *engine.volumes.entry(allocation).or_default() |= bit,
            Act::MakeContainer {
                generation,
                link_generation,
            } => {
                if engine.containers.contains_key(&allocation) {
                    return Answer::Conflict;
                }
                engine.containers.insert(
                    allocation,
                    Container {
                        status: Status::Created,
                        generation,
                        link_generation,
                    },
                );
                *engine.made.entry(allocation).or_default() += 1;
            }
            Act::Start => {
                let Some(container) = engine.containers.get_mut(&allocation) else {
                    return Answer::Refused;
                };
                container.status = Status::Running;
                let boot = self.hosts[host].boot;
                self.after(100, 4_000, Happening::RuntimeDials(host, boot, allocation));
            }
            Act::RemoveContainer => drop(engine.containers.remove(&allocation)),
            Act::RemoveVolume(bit) => {
                // One that a container uses stays.
                if engine.containers.contains_key(&allocation) {
                    return Answer::Conflict;
                }
                let left = engine.volumes.get(&allocation).copied().unwrap_or(0) & !bit;
                match left {
                    0 => drop(engine.volumes.remove(&allocation)),
                    left => drop(engine.volumes.insert(allocation, left)),
                }
            }
        }
        Answer::Done
    }

    pub(crate) fn engine_answers(&mut self, host: usize, run: u64, id: CallId) {
        let Some(call) = self.hosts[host].engine.calls.remove(&id) else {
            return;
        };
        if self.hosts[host].process(run).is_none() {
            return;
        }
        if let Some(answer) = call.answer {
            self.script_goes_on(host, call.work, answer);
        }
    }

    /// The restart policy: what a boot or a crash ended comes back, sometimes.
    pub(crate) fn container_restarts(&mut self, host: usize, boot: u64, allocation: AllocationId) {
        if self.hosts[host].boot != boot {
            return;
        }
        if let Some(container) = self.hosts[host].engine.containers.get_mut(&allocation)
            && container.status == Status::Ended
        {
            container.status = Status::Running;
            self.say(|| format!("host {host}: the engine restarts a container"));
            let lost = self.db.allocations.get(&allocation).and_then(|row| row.cause);
            self.demand(lost != Some(Cause::ComputeLost), Invariant::P10, || {
                "a sandbox that was declared lost runs again".to_owned()
            });
            self.after(100, 4_000, Happening::RuntimeDials(host, boot, allocation));
        }
    }
}
