//! The node program: its start, its clock, its identity, its ends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use oac_peer::node::{Attempt, Event, Exit, Refresh};
use oac_wire::{Nullable, frames::Health};

use super::Process;
use crate::{
    agenda::Millis,
    defect::Defect,
    ids,
    invariant::Invariant,
    world::{Happening, Identity, World},
};

impl World {
    /// The service manager starts it: the identity is confirmed before its loop runs (node.md section 4).
    pub(crate) fn node_starts(&mut self, host: usize) {
        let now = self.now;
        if self.hosts[host].process.is_some() || self.hosts[host].over {
            return;
        }
        self.hosts[host].run += 1;
        let run = self.hosts[host].run;
        let seed = self.random.number();
        let withheld = self.has(Defect::SlotsWithheld);
        let here = &mut self.hosts[host];
        let standings = here.loaded();
        let slots = if withheld { 1 } else { here.operations };
        let machine = here.machine(slots, seed, now);
        here.process = Some(Process {
            machine,
            tick_at: None,
            dial: None,
            link: None,
            storing: None,
            inbox: VecDeque::new(),
            serving: false,
            doubted: false,
            probed: false,
            standings,
            granted: VecDeque::new(),
            collecting: None,
            work: BTreeMap::new(),
            lanes: BTreeMap::new(),
            unfinished: BTreeSet::new(),
            kept_answers: Vec::new(),
        });
        self.say(|| format!("host {host}: node starts"));
        self.ask_identity(host, run);
    }

    pub(crate) fn ask_identity(&mut self, host: usize, run: u64) {
        let core = self.random.below(self.cores.len() as u64) as usize;
        if self.hosts[host].refused_until > self.now {
            self.after(1, 500, Happening::IdentityAnswered(host, run, Identity::Failed));
        } else {
            self.after(1, 60, Happening::IdentityAsked(host, run, core));
        }
    }

    /// GET identity at a Core: the credential is looked at only by the owner.
    pub(crate) fn identity_asked(&mut self, host: usize, run: u64, core: usize) {
        let answer = match self
            .ownership(core)
            .filter(|_| self.cores[core].cut_until <= self.now)
        {
            None => Identity::Failed,
            Some(_) if self.db.nodes[&self.hosts[host].id].retired => {
                self.history.unauthorized.insert(host);
                Identity::Unauthorized
            }
            Some(_) => Identity::Confirmed,
        };
        self.after(1, 60, Happening::IdentityAnswered(host, run, answer));
    }

    pub(crate) fn identity_answered(&mut self, host: usize, run: u64, answer: Identity) {
        let stays = self.has(Defect::StayOn401);
        let Some(process) = self.hosts[host].process(run) else {
            return;
        };
        if process.serving {
            let (identity, stored_epoch) = (self.hosts[host].identity.clone(), self.hosts[host].stored_epoch);
            let refresh = match answer {
                Identity::Confirmed => Refresh::Confirmed {
                    identity: Box::new(identity),
                    stored_epoch,
                },
                Identity::Unauthorized if stays => Refresh::Failed,
                Identity::Unauthorized => Refresh::Refused,
                Identity::Failed => Refresh::Failed,
            };
            return self.node_takes(host, Event::Refreshed(refresh));
        }
        match answer {
            Identity::Confirmed => {
                process.serving = true;
                if self.hosts[host].managing {
                    self.probe_all(host);
                }
                self.after(0, 2_000, Happening::SweepDue(host, run));
                self.node_takes(host, Event::Tick);
            }
            Identity::Unauthorized if self.has(Defect::StayOn401) => {
                self.node_ends(host, false);
                self.after(5_000, 5_000, Happening::NodeStarts(host));
            }
            Identity::Unauthorized => self.node_exits(host, Exit::Unauthorized),
            // Exit status 1: the service manager tries again.
            Identity::Failed => {
                self.node_ends(host, false);
                self.after(5_000, 5_000, Happening::NodeStarts(host));
            }
        }
    }

    pub(crate) fn node_exits(&mut self, host: usize, exit: Exit) {
        self.say(|| format!("host {host}: node exits: {exit:?}"));
        if exit == Exit::Unauthorized {
            let refused = self.history.unauthorized.contains(&host);
            self.demand(refused, Invariant::P22, || {
                format!("host {host} exits with 78 and Core never answered 401")
            });
            self.reach("a removed node ended with 78");
            self.hosts[host].over = true;
        }
        self.node_ends(host, false);
    }

    /// The process is gone; calls it made of the engine are not. `power` is lost too: no socket is closed.
    pub(crate) fn node_ends(&mut self, host: usize, power: bool) {
        self.hosts[host].process = None;
        for link in self.network.of_host(host) {
            if power {
                if let Some(link) = self.network.links.get_mut(&link) {
                    link.node_open = false;
                    link.to_core.queue.clear();
                    link.to_core.mute = true;
                }
            } else {
                self.close_end(link, crate::network::End::Node, false);
            }
        }
    }

    pub(crate) fn node_restarts(&mut self, host: usize, least: Millis) {
        // It starts again in calm at the latest.
        let latest = (self.calm_at + 2_000).max(self.now + 100);
        let at = (self.now + least.max(100)).min(latest);
        self.agenda.at(at, Happening::NodeStarts(host));
    }

    pub(crate) fn reboot(&mut self, host: usize, down: Millis) {
        self.node_ends(host, true);
        let here = &mut self.hosts[host];
        here.boot += 1;
        let boot = here.boot;
        let up = (self.now + down).min(self.calm_at + 1_000);
        here.engine.reboot(up);
        here.machine_state.reboot();
        here.engine.down_until = up;
        let ended: Vec<_> = here.engine.containers.keys().copied().collect();
        for allocation in ended {
            // Its files are still there: the engine starts it again within its first minute, or not at all.
            if self.random.one_in(2) {
                let delay = self.between(0, 40_000);
                self.agenda
                    .at(up + delay, Happening::ContainerRestarts(host, boot, allocation));
            }
        }
        self.agenda.at(up + 500, Happening::NodeStarts(host));
    }

    pub(crate) fn node_ticks(&mut self, host: usize, run: u64) {
        let now = self.now;
        let Some(process) = self.hosts[host].process(run) else {
            return;
        };
        process.tick_at = None;
        if !process.serving {
            return;
        }
        let due = process.machine.next_wakeup();
        if due.is_some_and(|due| due.0 <= now) {
            self.node_takes(host, Event::Tick);
        } else {
            self.set_node_tick(host);
        }
    }

    pub(crate) fn set_node_tick(&mut self, host: usize) {
        let (now, run) = (self.now, self.hosts[host].run);
        let Some(process) = self.hosts[host].process.as_mut() else {
            return;
        };
        let Some(due) = process.machine.next_wakeup() else {
            return;
        };
        let due = due.0.max(now);
        if process.tick_at.is_none_or(|at| due < at) {
            process.tick_at = Some(due);
            self.agenda.at(due, Happening::NodeTick(host, run));
        }
    }

    pub(crate) fn measure(&mut self, host: usize, attempt: Attempt) {
        let run = self.hosts[host].run;
        let engine = &self.hosts[host].engine;
        let (down, slow) = (engine.down_until > self.now, engine.slow_until > self.now);
        let most = if slow { 5_000 } else { 30 };
        self.after(1, most, Happening::Measured(host, run, attempt, !down));
    }

    pub(crate) fn measured(&mut self, host: usize, run: u64, attempt: Attempt, ready: bool) {
        let managing = self.hosts[host].managing;
        let (boot, clock) = (self.hosts[host].boot, self.hosts[host].clock);
        let said = ready || self.has(Defect::ReadyWithoutProbe);
        let class = self.db.suspends.then(|| oac_model::Digest::of("class"));
        let store = self.db.suspends.then(|| ids::store(0));
        let Some(process) = self.hosts[host].process(run) else {
            return;
        };
        process.probed = ready;
        let health = Health {
            provider_ready: said && !managing,
            observed_at: wall(self.now, clock),
            active_operations: 0,
            cpu_utilization: Nullable(None),
            total_memory_bytes: Nullable(Some(1 << 30)),
            effective_cpu_cores: Nullable(Some(2.0)),
            cpu_count: Nullable(Some(2)),
            available_memory_bytes: Nullable(None),
            available_disk_bytes: Nullable(None),
            execution_class: Nullable(class),
            checkpoint_store: Nullable(store),
            boot_id: Nullable(Some(ids::boot(boot))),
            diagnostic: None,
            generations: None,
        };
        self.node_takes(host, Event::Measured(attempt, Box::new(health)));
    }
}

/// What a wall clock says that is so far ahead.
pub(crate) fn wall(now: Millis, ahead: i64) -> oac_model::Time {
    const BEGINNING: i64 = 1_767_225_600_000;
    oac_model::Time::from_millis(BEGINNING + now as i64 + ahead)
        .unwrap_or_else(|| unreachable!("it is in this century"))
}
