//! The generations of a managing node: prepared, probed, reported, collected (node.md sections 5, 7 and 8).

use oac_model::{ConnectionId, Generation};
use oac_peer::node::{Event, Standing};
use oac_wire::{
    CoreFrame,
    frames::{Deployment, GenerationState, RetentionReference},
};

use super::Kept;
use crate::{
    defect::Defect,
    ids,
    invariant::Invariant,
    world::{Happening, World},
};

impl World {
    pub(crate) fn probe_all(&mut self, host: usize) {
        let run = self.hosts[host].run;
        let published: Vec<_> = self.hosts[host]
            .generations
            .iter()
            .map(|(g, k)| (*g, *k))
            .collect();
        for (generation, kept) in published {
            if kept == Kept::Published {
                let ready = !self.mishap(6);
                self.after(100, 6_000, Happening::Probed(host, run, generation, ready));
            }
        }
    }

    fn table_changed(&mut self, host: usize) {
        let here = &self.hosts[host];
        let Some(process) = here.process.as_ref() else {
            return;
        };
        let mut standings = process.standings.clone();
        if self.has(Defect::ReadyWithoutProbe) {
            for standing in standings.values_mut() {
                if *standing == Standing::Preparing {
                    *standing = Standing::Ready;
                }
            }
        }
        let table = here.table(&standings);
        self.node_takes(host, Event::Generations(table));
    }

    pub(crate) fn deployed(&mut self, host: usize, deployment: Deployment) {
        let target = deployment.generation;
        let run = self.hosts[host].run;
        self.say(|| format!("host {host}: target {target}"));
        let known = self.hosts[host].generations.get(&target).copied();
        self.demand(
            !matches!(known, Some(Kept::Dropped | Kept::Collecting)),
            Invariant::C8,
            || format!("generation {target} is gone and wanted again"),
        );
        let Some(process) = self.hosts[host].process.as_mut() else {
            return;
        };
        if process.standings.contains_key(&target) {
            return;
        }
        process.standings.insert(target, Standing::Preparing);
        let ready = !self.mishap(5);
        self.after(500, 9_000, Happening::Probed(host, run, target, ready));
        self.table_changed(host);
    }

    /// A preparation or probe ended. A failed one is tried again.
    pub(crate) fn probed(&mut self, host: usize, run: u64, generation: Generation, ready: bool) {
        let down = self.hosts[host].engine.down_until > self.now;
        let published = self.hosts[host].generations.contains_key(&generation);
        // What is published is only probed.
        let unwritten = self.hosts[host].disk_is_full(self.now) && !published;
        let Some(process) = self.hosts[host].process(run) else {
            return;
        };
        let standing = process.standings.get(&generation).copied();
        if !matches!(
            standing,
            Some(Standing::Preparing | Standing::Ready | Standing::Failed(_))
        ) {
            return;
        }
        let ready = ready && !down && !unwritten;
        let standing = match ready {
            true => Standing::Ready,
            false => Standing::Failed(oac_model::DiagnosticCode::ProviderUnavailable),
        };
        process.standings.insert(generation, standing);
        if ready {
            self.hosts[host].generations.insert(generation, Kept::Published);
        }
        // A ready generation is probed again, a failed one prepared again.
        let again = !self.mishap(8);
        self.after(8_000, 12_000, Happening::Probed(host, run, generation, again));
        self.table_changed(host);
    }

    pub(crate) fn granted_now(&self, host: usize) -> usize {
        self.hosts[host]
            .process
            .as_ref()
            .map_or(0, |process| process.granted.len())
    }

    pub(crate) fn granted(
        &mut self,
        host: usize,
        connection: ConnectionId,
        references: &[RetentionReference],
    ) {
        let link = self.hosts[host].process.as_ref().and_then(|process| process.link);
        let current = link
            .and_then(|link| self.network.links.get(&link))
            .map(|link| link.connection);
        self.demand(current == Some(connection), Invariant::P14, || {
            "a grant of another connection".to_owned()
        });
        for reference in references {
            let generation = reference.generation;
            let kept = self.db.is_kept(generation);
            self.demand(!kept, Invariant::C8, || {
                format!("generation {generation} is kept and granted for collection")
            });
            if let Some(process) = self.hosts[host].process.as_mut() {
                process.granted.push_back(generation);
            }
        }
        self.collect(host);
    }

    /// A planted defect: whatever an acknowledgement names is permitted.
    pub(crate) fn believe_any_ack(&mut self, host: usize, text: &str) {
        let Ok(CoreFrame::RetentionAck(ack)) = CoreFrame::decode(text.as_bytes()) else {
            return;
        };
        if let Some(process) = self.hosts[host].process.as_mut() {
            let free = ack.control.retentions.iter().filter(|r| !r.keep);
            process.granted.extend(free.map(|r| r.generation));
        }
    }

    /// Grants run one by one, after a look at what needs the generation here.
    fn collect(&mut self, host: usize) {
        let run = self.hosts[host].run;
        let Some(process) = self.hosts[host].process.as_mut() else {
            return;
        };
        if process.collecting.is_some() {
            return;
        }
        while let Some(generation) = process.granted.pop_front() {
            let gone = matches!(
                process.standings.get(&generation),
                None | Some(Standing::Removing | Standing::Dropped)
            );
            if gone || process.machine.is_referenced(generation) {
                continue;
            }
            process.standings.insert(generation, Standing::Removing);
            process.collecting = Some(generation);
            self.hosts[host].generations.insert(generation, Kept::Collecting);
            self.say(|| format!("host {host}: collects generation {generation}"));
            let in_use = self
                .db
                .unreleased()
                .find(|row| row.generation == generation)
                .map(|row| row.id);
            self.demand(in_use.is_none(), Invariant::C8, || {
                format!("generation {generation} is collected and in use by {in_use:?}")
            });
            self.reach("a generation was collected");
            self.after(100, 4_000, Happening::Collected(host, run, generation));
            return self.table_changed(host);
        }
    }

    pub(crate) fn collected(&mut self, host: usize, run: u64, generation: Generation) {
        let full = self.hosts[host].disk_is_full(self.now);
        let fails = self.mishap(6) || full;
        let Some(process) = self.hosts[host].process(run) else {
            return;
        };
        process.collecting = None;
        let standing = if fails {
            Standing::Stalled
        } else {
            Standing::Dropped
        };
        process.standings.insert(generation, standing);
        if !fails {
            self.hosts[host].generations.insert(generation, Kept::Dropped);
        }
        self.table_changed(host);
        self.collect(host);
    }

    /// A report names nothing that is going or gone, and nothing ready that was not probed.
    pub(crate) fn check_report(&mut self, host: usize, text: &str) {
        if !self.hosts[host].managing {
            return;
        }
        let frame = oac_wire::NodeFrame::decode(text.as_bytes());
        let health = match frame {
            Ok(oac_wire::NodeFrame::Hello(hello)) => hello.health,
            Ok(oac_wire::NodeFrame::Heartbeat(heartbeat)) => heartbeat.health,
            _ => return,
        };
        for status in health.generations.iter().flatten() {
            let process = self.hosts[host].process.as_ref();
            let standing = process.and_then(|process| process.standings.get(&status.generation).copied());
            let fits = match status.state {
                GenerationState::Ready => standing == Some(Standing::Ready),
                GenerationState::Preparing => standing == Some(Standing::Preparing),
                GenerationState::Failed => matches!(standing, Some(Standing::Failed(_))),
            };
            let generation = status.generation;
            self.demand(
                fits || self.has(Defect::ReadyWithoutProbe),
                Invariant::Honest,
                || {
                    format!(
                        "generation {generation} is reported {:?} and is {standing:?}",
                        status.state
                    )
                },
            );
        }
    }

    /// The runtime in a container reaches Core with what its bootstrap file says, again and again.
    pub(crate) fn runtime_dials(&mut self, host: usize, boot: u64, allocation: oac_model::AllocationId) {
        let here = &self.hosts[host];
        if here.boot != boot {
            return;
        }
        let Some(container) = here.engine.containers.get(&allocation).copied() else {
            return;
        };
        if container.status != super::engine::Status::Running {
            return;
        }
        if self.now < here.runtimes_cut_until {
            return self.after(4_000, 6_000, Happening::RuntimeDials(host, boot, allocation));
        }
        self.runtime_links(allocation, container.link_generation);
        if !self.calm
            || self
                .db
                .allocations
                .get(&allocation)
                .is_some_and(|row| !row.initialized)
        {
            self.after(4_000, 6_000, Happening::RuntimeDials(host, boot, allocation));
        } else {
            self.after(20_000, 30_000, Happening::RuntimeDials(host, boot, allocation));
        }
    }

    /// An info of a sandbox that this host knows nothing of, for a peer that lies.
    pub(crate) fn foreign_info(&self, host: usize) -> oac_wire::shapes::Info {
        oac_wire::shapes::Info {
            reference: ids::reference(ids::session(900 + host as u64), ids::allocation(900)),
            provider_id: "foreign".to_owned(),
            state: "created".to_owned(),
            bootstrap_complete: false,
            create_settled: false,
            compute_lost: false,
        }
    }
}
