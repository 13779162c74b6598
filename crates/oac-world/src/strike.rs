//! What a fault does.

use oac_model::{ComputePhase, NodeId};

use crate::{
    agenda::Millis,
    core::{
        operators::Ask,
        transaction::{Purpose, Write},
    },
    fault::{Clock, Fault, Loss},
    host::{engine::Status, vms::Power},
    ids,
    network::End,
    world::{Happening, World},
};

impl World {
    fn host_of(&self, number: u64) -> usize {
        (number % self.hosts.len() as u64) as usize
    }

    fn node_of(&self, number: u64) -> NodeId {
        self.hosts[self.host_of(number)].id
    }

    fn operator(&mut self, ask: Ask) {
        self.asked(Write::Operator(ask));
    }

    fn core_of(&self, number: u64) -> usize {
        (number % self.cores.len() as u64) as usize
    }

    pub(crate) fn strike(&mut self, fault: Fault) {
        if self.calm {
            return;
        }
        self.say(|| format!("FAULT {fault:?}"));
        let calm_at = self.calm_at;
        let until = |millis: Millis, now: Millis| (now + millis).min(calm_at);
        let now = self.now;
        match fault {
            Fault::CoreCrash { core, down } => {
                let core = self.core_of(core);
                self.core_ends(core);
                self.core_restarts(core, down);
            }
            Fault::CoreStall { core, millis } => {
                let core = self.core_of(core);
                self.cores[core].stalled_until = until(millis, now);
            }
            Fault::CoreStop { core } => {
                let core = self.core_of(core);
                self.core_stops(core);
            }
            Fault::DatabaseCut { core, millis } => {
                let core = self.core_of(core);
                self.cores[core].cut_until = until(millis, now);
            }
            Fault::DatabaseFails { millis } => self.fails_until = until(millis, now),
            Fault::CommitReplyLost { millis } => self.reply_lost_until = until(millis, now),
            Fault::DatabaseSlow { millis } => self.slow_until = until(millis, now),
            Fault::NodeCrash { host, down } => {
                let host = self.host_of(host);
                self.node_ends(host, false);
                self.node_restarts(host, down);
            }
            Fault::AtCommit { core, stall } => {
                let core = self.core_of(core);
                self.cores[core].at_commit.push(stall);
            }
            Fault::InCall { core, loss } => {
                let core = self.core_of(core);
                self.cores[core].in_call.push(loss);
            }
            Fault::ClockJumps { whose, by } => match whose {
                Clock::Database => self.db.clock = self.db.clock.saturating_add_signed(by),
                Clock::Core(core) => {
                    let core = self.core_of(core);
                    self.cores[core].clock += by;
                }
                Clock::Host(host) => {
                    let host = self.host_of(host);
                    self.hosts[host].clock += by;
                }
            },
            Fault::RenewalsFail { core, millis } => {
                let core = self.core_of(core);
                self.cores[core].renewals_fail_until = until(millis, now);
            }
            Fault::CrashInCall { host, down } => {
                let host = self.host_of(host);
                self.hosts[host].crash_in_call = Some(down);
            }
            Fault::NodeStop { host } => {
                let host = self.host_of(host);
                self.node_takes(host, oac_peer::node::Event::Stop);
                self.node_restarts(host, 1_000);
            }
            Fault::NodeStall { host, millis } => {
                let host = self.host_of(host);
                self.hosts[host].stalled_until = until(millis, now);
            }
            Fault::Reboot { host, down } => {
                let host = self.host_of(host);
                self.reboot(host, down);
            }
            Fault::Cut { host } | Fault::SilentCut { host } => {
                let silently = matches!(fault, Fault::SilentCut { .. });
                for link in self.network.of_host(self.host_of(host)) {
                    self.cut(link, silently);
                }
            }
            Fault::CutUnrecorded { host, millis } => {
                for core in &mut self.cores {
                    core.cut_until = until(millis, now);
                }
                self.strike(Fault::Cut { host });
            }
            Fault::HalfOpen { host, to_core } => {
                for link in self.network.of_host(self.host_of(host)) {
                    if let Some(link) = self.network.links.get_mut(&link) {
                        let end = if to_core { End::Core } else { End::Node };
                        let pipe = link.pipe(end);
                        pipe.mute = true;
                        pipe.queue.clear();
                    }
                }
            }
            Fault::SlowPath { host, millis } => {
                let host = self.host_of(host);
                self.hosts[host].path_slow_until = until(millis, now);
            }
            Fault::DialsRefused { host, millis } => {
                let host = self.host_of(host);
                self.hosts[host].refused_until = until(millis, now);
            }
            Fault::DuplicateDial { host } => {
                let host = self.host_of(host);
                self.hosts[host].duplicates += 1;
                // So that there is a next dial.
                self.strike(Fault::Cut { host: host as u64 });
            }
            Fault::Proxy401 { host } => {
                let host = self.host_of(host);
                self.hosts[host].proxy_401 += 1;
                self.strike(Fault::Cut { host: host as u64 });
            }
            Fault::EngineDown { host, millis } => {
                let host = self.host_of(host);
                self.hosts[host].engine.down_until = until(millis, now);
            }
            Fault::EngineSlow { host, millis } => {
                let host = self.host_of(host);
                self.hosts[host].engine.slow_until = until(millis, now);
            }
            Fault::EngineRefuses { host } => {
                let host = self.host_of(host);
                self.hosts[host].engine.refuses += 1;
            }
            Fault::EngineAnswerLost { host } => {
                let host = self.host_of(host);
                self.hosts[host].engine.loses += 1;
            }
            Fault::ContainerRemoved { host } | Fault::ContainerEnds { host } => {
                let host = self.host_of(host);
                let removes = matches!(fault, Fault::ContainerRemoved { .. });
                self.container_struck(host, removes);
            }
            // It lasts into the calm, where Core's patience ends; it ends by itself.
            Fault::RuntimesCut { host, millis } => {
                let host = self.host_of(host);
                self.hosts[host].runtimes_cut_until = now + millis;
            }
            Fault::SandboxRemoved { host } => {
                let host = self.host_of(host);
                self.sandbox_removed(host);
            }
            Fault::CheckpointSpoils { which } => self.checkpoint_spoils(which),
            Fault::DiskFull { host, millis } => {
                let host = self.host_of(host);
                self.hosts[host].disk_full_until = until(millis, now);
            }
            Fault::Tamper { host, with } => {
                let host = self.host_of(host);
                self.hosts[host].tampers.push(with);
            }
            Fault::Burst {
                host,
                calls,
                patience,
            } => {
                let host = self.host_of(host);
                self.burst(host, calls, patience);
            }
            Fault::NewSession => {
                let id = ids::session(self.db.sessions.len() as u64);
                self.asked(Write::NewSession(id));
            }
            Fault::Input { session } => {
                if let Some(id) = self.session_number(session) {
                    self.asked(Write::Input(id));
                }
            }
            Fault::Archive { session } => {
                if let Some(id) = self.session_number(session) {
                    self.asked(Write::Archive(id));
                }
            }
            Fault::NewTarget => self.operator(Ask::NewTarget),
            Fault::NewTargets { count } => (0..count).for_each(|_| self.operator(Ask::NewTarget)),
            Fault::Retire { host } => self.operator(Ask::Retire(self.node_of(host))),
            Fault::Discard { which } => self.operator(Ask::Discard(which)),
            Fault::Cordon { host } => self.operator(Ask::Cordon(self.node_of(host), true)),
            Fault::Uncordon { host } => self.operator(Ask::Cordon(self.node_of(host), false)),
            Fault::Label { host, labelled } => self.operator(Ask::Label(self.node_of(host), labelled)),
            Fault::Drain {
                host,
                lasts,
                then,
                release,
            } => self.operator(Ask::Drain {
                node: self.node_of(host),
                lasts,
                then,
                release,
            }),
            Fault::CancelDrain { host } => self.operator(Ask::CancelDrain(self.node_of(host))),
            Fault::Limit { host, active } => self.operator(Ask::Limit(self.node_of(host), active)),
            Fault::Reset { lasts } => self.operator(Ask::Reset(lasts)),
            Fault::CancelReset => self.operator(Ask::CancelReset),
            Fault::Select => self.operator(Ask::Select),
            Fault::Enroll { host } => self.operator(Ask::Enroll(self.host_of(host))),
        }
    }

    /// A fault that waited for a mutation to be under way; the engine takes its time over it.
    pub(crate) fn in_call(&mut self, core: usize, run: u64, host: usize, loss: Loss) {
        if self.calm || !self.cores[core].is(run) {
            return;
        }
        self.say(|| format!("core {core}: loses {loss:?} with a call under way"));
        let (now, calm_at) = (self.now, self.calm_at);
        let (until, millis) = match loss {
            Loss::Life(down) => {
                self.reach("a Core ended with a call under way");
                self.core_ends(core);
                self.core_restarts(core, down);
                return;
            }
            Loss::Database(millis) => {
                self.reach("a Core lost the database with a call under way");
                (&mut self.cores[core].cut_until, millis)
            }
            Loss::Lease(millis) => {
                self.reach("a Core lost its lease with a call under way");
                self.cores[core].clock -= millis as i64;
                (&mut self.cores[core].renewals_fail_until, millis)
            }
        };
        *until = (now + millis).min(calm_at);
        let slow_until = *until;
        self.hosts[host].engine.slow_until = slow_until;
    }

    /// Whoever works with one, or runs on from it, read it before.
    fn checkpoint_spoils(&mut self, which: u64) {
        let idle = |kept: &&crate::host::vms::Kept| {
            let row = self.db.allocations.get(&kept.allocation);
            let phase = row.map(|row| row.phase());
            let rests = matches!(phase, Some(ComputePhase::Suspended | ComputePhase::Suspending));
            let mut hosts = self.hosts.iter();
            rests && hosts.all(|host| !host.machine_state.is_locked(kept.allocation))
        };
        let all: Vec<_> = self.kept.values().filter(idle).collect();
        let operation = match all.len() as u64 {
            0 => return,
            many => all[(which % many) as usize].retained.operation_id,
        };
        if let Some(kept) = self.kept.get_mut(&operation) {
            (kept.good, kept.valid) = (false, false);
            self.reach("a checkpoint went bad");
        }
    }

    /// What lives there ends by itself, or is removed by somebody.
    fn vm_struck(&mut self, host: usize, removes: bool) {
        let machine = &self.hosts[host].machine_state;
        let live: Vec<_> = machine
            .vms
            .iter()
            .filter(|((id, _), vm)| vm.is_live() && !machine.is_locked(*id))
            .map(|(key, _)| *key)
            .collect();
        if live.is_empty() {
            return;
        }
        let key = live[self.random.below(live.len() as u64) as usize];
        let vms = &mut self.hosts[host].machine_state.vms;
        if removes {
            vms.remove(&key);
        } else if let Some(vm) = vms.get_mut(&key) {
            vm.power = Power::Ended;
        }
    }

    fn sandbox_removed(&mut self, host: usize) {
        if self.db.suspends {
            return self.vm_struck(host, true);
        }
        let engine = &mut self.hosts[host].engine;
        let there: Vec<_> = engine.volumes.keys().copied().collect();
        if there.is_empty() {
            return;
        }
        let id = there[self.random.below(there.len() as u64) as usize];
        let engine = &mut self.hosts[host].engine;
        engine.containers.remove(&id);
        engine.volumes.remove(&id);
    }

    /// Somebody calls the API of whichever Core owns now; without one it is a 503, and nothing happens.
    fn asked(&mut self, write: Write) {
        let Some(core) = (0..self.cores.len()).find(|core| self.ownership(*core).is_some()) else {
            return;
        };
        let epoch = self.ownership(core);
        self.submit(core, epoch, write, Purpose::Nobody);
    }

    fn container_struck(&mut self, host: usize, removes: bool) {
        if self.db.suspends {
            return self.vm_struck(host, removes);
        }
        let boot = self.hosts[host].boot;
        let running: Vec<_> = self.hosts[host]
            .engine
            .containers
            .iter()
            .filter(|(_, container)| container.status == Status::Running)
            .map(|(id, _)| *id)
            .collect();
        if running.is_empty() {
            return;
        }
        let id = running[self.random.below(running.len() as u64) as usize];
        if removes {
            self.hosts[host].engine.containers.remove(&id);
        } else if let Some(container) = self.hosts[host].engine.containers.get_mut(&id) {
            container.status = Status::Ended;
            // `unless-stopped`: a crash of the runtime brings the same sandbox back.
            self.after(1_000, 20_000, Happening::ContainerRestarts(host, boot, id));
        }
    }
}
