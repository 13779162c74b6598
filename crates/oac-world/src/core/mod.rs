//! A Core: a process that owns the installation now and then, and what it has in memory while it lives.

pub(crate) mod calls;
pub(crate) mod chores;
pub(crate) mod connections;
pub(crate) mod operators;
mod placing;
mod recording;
pub(crate) mod steps;
pub(crate) mod transaction;
mod worker;

use std::collections::{BTreeMap, BTreeSet};

use oac_model::{AllocationId, ConnectionId, NodeId, OwnerEpoch};
use oac_peer::core::{Event, Reservations, StateName};

use crate::{
    agenda::Millis,
    defect::Defect,
    fault::Loss,
    network::End,
    world::{Happening, World},
};
use chores::Chores;
use connections::Conn;
use transaction::{Purpose, Write};
use worker::Worker;

/// core.md section 3; `oac-core`'s `owner.rs`.
pub(crate) const LEASE: Millis = 10_000;
const RENEWAL: Millis = 3_000;
const POLL: Millis = 2_000;
pub(crate) const MUTATION_RESERVE: Millis = 5_000;
const RENEWAL_RETRY: Millis = 500;

#[derive(Default)]
pub(crate) struct CoreHost {
    /// Grows with each start.
    pub(crate) run: u64,
    pub(crate) life: Option<Life>,
    pub(crate) stalled_until: Millis,
    /// It does not reach the database.
    pub(crate) cut_until: Millis,
    pub(crate) renewals_fail_until: Millis,
    /// What happens to it when a step commits: it ends, or stalls.
    pub(crate) at_commit: Vec<Option<Millis>>,
    /// What it loses while the next mutation it sends is under way.
    pub(crate) in_call: Vec<Loss>,
    /// How far its wall clock is ahead of the world's beginning; it jumps.
    pub(crate) clock: i64,
}

impl CoreHost {
    pub(crate) fn is(&self, run: u64) -> bool {
        self.run == run && self.life.is_some()
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Lease {
    pub(crate) epoch: OwnerEpoch,
    /// Taken before the renewal was sent.
    pub(crate) renewed_at: Millis,
}

#[derive(Default)]
pub(crate) struct Life {
    pub(crate) lease: Option<Lease>,
    /// A claim or renewal is under way.
    asking: bool,
    renew_at: Millis,
    pub(crate) stopping: bool,
    pub(crate) reservations: Reservations,
    pub(crate) connections: BTreeMap<ConnectionId, Conn>,
    /// Connected nodes, as the rest of Core finds them.
    pub(crate) live: BTreeMap<NodeId, ConnectionId>,
    pub(crate) worker: Option<Worker>,
    pub(crate) chores: Option<Chores>,
    /// Allocations whose runtime is linked.
    pub(crate) linked: BTreeSet<AllocationId>,
}

impl Life {
    /// The lease is renewed as soon as it can be.
    pub(crate) fn renew_now(&mut self) {
        self.renew_at = 0;
    }
}

impl World {
    /// A process, as the lease names it.
    pub(crate) fn holder(&self, core: usize) -> u64 {
        core as u64 * 1_000_000 + self.cores[core].run
    }

    pub(crate) fn lease_left(&self, core: usize) -> Millis {
        let lease = self.cores[core].life.as_ref().and_then(|life| life.lease);
        let now = self.clock_of(core);
        lease.map_or(0, |lease| (lease.renewed_at + LEASE).saturating_sub(now))
    }

    /// The clock that a Core measures its lease by: one that only moves forward, but for a planted defect.
    pub(crate) fn clock_of(&self, core: usize) -> Millis {
        match self.has(Defect::LeaseByWallClock) {
            true => self.now.saturating_add_signed(self.cores[core].clock),
            false => self.now,
        }
    }

    /// The epoch, while this process owns the installation and its lease has not run out.
    pub(crate) fn ownership(&self, core: usize) -> Option<OwnerEpoch> {
        let lease = self.cores[core].life.as_ref()?.lease?;
        (self.lease_left(core) > 0).then_some(lease.epoch)
    }

    pub(crate) fn core_starts(&mut self, core: usize) {
        if self.cores[core].life.is_some() {
            return;
        }
        self.cores[core].run += 1;
        self.cores[core].life = Some(Life::default());
        self.say(|| format!("core {core}: starts"));
        self.keeper_due(core, self.cores[core].run);
    }

    /// The process is gone between two steps. What it sent to the database may still arrive there.
    pub(crate) fn core_ends(&mut self, core: usize) {
        let Some(life) = self.cores[core].life.take() else {
            return;
        };
        self.say(|| format!("core {core}: ENDS"));
        for connection in life.connections.values() {
            self.close_end(connection.link, End::Core, false);
        }
    }

    pub(crate) fn core_restarts(&mut self, core: usize, least: Millis) {
        let at = (self.now + least.max(50)).min((self.calm_at + 1_000).max(self.now + 50));
        self.agenda.at(at, Happening::CoreStarts(core));
    }

    /// Claims the lease, renews it, or notices that it is over.
    pub(crate) fn keeper_due(&mut self, core: usize, run: u64) {
        if !self.cores[core].is(run) {
            return;
        }
        let (now, left, asked_at) = (self.now, self.lease_left(core), self.clock_of(core));
        let Some(life) = self.cores[core].life.as_mut() else {
            return;
        };
        match life.lease {
            Some(_) if left == 0 => self.lose(core),
            Some(lease) => {
                if !life.asking && now >= life.renew_at && !life.stopping {
                    life.asking = true;
                    self.submit(
                        core,
                        Some(lease.epoch),
                        Write::Renew,
                        Purpose::Keeper { asked_at },
                    );
                }
            }
            None => {
                if !life.asking && !life.stopping {
                    life.asking = true;
                    self.submit(core, None, Write::Acquire, Purpose::Keeper { asked_at });
                }
            }
        }
    }

    pub(crate) fn kept(&mut self, core: usize, asked_at: Millis, owned: Option<Option<OwnerEpoch>>) {
        let (now, run) = (self.now, self.cores[core].run);
        let Some(life) = self.cores[core].life.as_mut() else {
            return;
        };
        life.asking = false;
        if life.stopping {
            return;
        }
        match owned {
            Some(Some(epoch)) => {
                let gained = life.lease.is_none_or(|lease| lease.epoch != epoch);
                let goes_on = gained && life.lease.is_some();
                life.lease = Some(Lease {
                    epoch,
                    renewed_at: asked_at,
                });
                life.renew_at = now + RENEWAL.min((asked_at + LEASE).saturating_sub(now));
                let (renew_at, ends_at) = (life.renew_at, asked_at + LEASE);
                self.agenda.at(renew_at, Happening::KeeperDue(core, run));
                self.agenda.at(ends_at.max(now), Happening::KeeperDue(core, run));
                if gained {
                    self.say(|| format!("core {core}: OWNS, epoch {epoch}"));
                    self.reach("ownership changed hands");
                    if goes_on {
                        self.hang_up(core);
                    }
                    self.chores_begin(core, epoch);
                }
                // Its last pass may have come between the end of the lease and the news of its renewal.
                if gained || self.worker(core).is_none() {
                    self.worker_begins(core, epoch);
                }
            }
            // Renewed by nobody: another one owns.
            Some(None) if life.lease.is_some() => self.lose(core),
            Some(None) => self.after(POLL, POLL, Happening::KeeperDue(core, run)),
            None if life.lease.is_some() => {
                life.renew_at = now + RENEWAL_RETRY;
                self.after(RENEWAL_RETRY, RENEWAL_RETRY, Happening::KeeperDue(core, run));
            }
            None => self.after(POLL, POLL, Happening::KeeperDue(core, run)),
        }
    }

    fn lose(&mut self, core: usize) {
        self.say(|| format!("core {core}: LOSES the lease"));
        let run = self.cores[core].run;
        self.worker_ends(core);
        let Some(life) = self.cores[core].life.as_mut() else {
            return;
        };
        life.lease = None;
        life.chores = None;
        life.linked.clear();
        self.hang_up(core);
        self.after(0, 6_000, Happening::KeeperDue(core, run));
    }

    /// Its connections are of an epoch that is over.
    fn hang_up(&mut self, core: usize) {
        let Some(life) = self.cores[core].life.as_ref() else {
            return;
        };
        let connections: Vec<_> = life.connections.keys().copied().collect();
        for connection in connections {
            self.core_takes(core, connection, Event::EpochLost);
        }
    }

    /// SIGTERM: connections end while their presence can still be removed, then the lease is given up.
    pub(crate) fn core_stops(&mut self, core: usize) {
        let run = self.cores[core].run;
        self.worker_ends(core);
        let owns = self.ownership(core).is_some();
        let Some(life) = self.cores[core].life.as_mut() else {
            return;
        };
        life.stopping = true;
        let connections: Vec<_> = life.connections.keys().copied().collect();
        for connection in connections {
            let event = if owns { Event::Stop } else { Event::EpochLost };
            self.core_takes(core, connection, event);
        }
        self.after(50, 6_000, Happening::StopDeadline(core, run));
    }

    pub(crate) fn stop_deadline(&mut self, core: usize, run: u64) {
        if !self.cores[core].is(run) {
            return;
        }
        if let Some(epoch) = self.ownership(core) {
            self.submit(core, Some(epoch), Write::Expire, Purpose::Nobody);
        }
        self.core_ends(core);
        self.core_restarts(core, 1_000);
    }

    /// Identities that are opening, live or closing are held by one connection (INV-P3).
    pub(crate) fn check_reservations(&mut self) {
        for core in 0..self.cores.len() {
            let Some(life) = self.cores[core].life.as_ref() else {
                continue;
            };
            let mut held = BTreeSet::new();
            let open = life.connections.values();
            let twice = open
                .filter(|conn| conn.machine.state() != StateName::Freed)
                .find(|conn| !held.insert(conn.node))
                .map(|conn| conn.node);
            self.demand(twice.is_none(), crate::invariant::Invariant::P3, || {
                format!("core {core} holds two connections of {twice:?}")
            });
        }
    }
}
