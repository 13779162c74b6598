//! What is asked of nodes about sandboxes that can be suspended, how their answers are read, and whose link is admitted.

use oac_lifecycle::suspension::{Answer, Event, Held, Observation, Request};
use oac_model::{AllocationId, ComputePhase, ConnectionId, Generation, NodeId, OperationId, RequestId};
use oac_peer::{FailureCode, Outcome, core::CallOutcome};
use oac_wire::{
    frames::{Arguments, ResponseResult},
    shapes::{Command, Compute, ComputeState, Resume, Suspend},
};

use crate::{
    agenda::Millis,
    core::{
        calls::Wanted,
        connections::Who,
        transaction::{Purpose, Write},
    },
    database::AllocationRow,
    defect::Defect,
    host::vms::Vm,
    ids,
    world::World,
};

impl World {
    fn machine_of(&self, node: NodeId) -> Option<usize> {
        self.hosts.iter().position(|host| host.id == node)
    }

    /// The sandbox of the current compute, where Core believes that it is.
    pub(crate) fn vm_of(&mut self, row: &AllocationRow, held: &Held) -> Option<&mut Vm> {
        let host = self.machine_of(held.node)?;
        let generation = held.current().map_or(0, |compute| compute.generation);
        self.hosts[host].machine_state.vms.get_mut(&(row.id, generation))
    }

    pub(crate) fn is_linked(&self, core: usize, row: &AllocationRow, held: &Held) -> bool {
        let generation = held.current().map_or(0, |compute| compute.generation);
        let vm = self
            .machine_of(held.node)
            .and_then(|host| self.hosts[host].machine_state.vms.get(&(row.id, generation)));
        let life = self.cores[core].life.as_ref();
        row.linkable && vm.is_some_and(Vm::is_awake) && life.is_some_and(|life| life.linked.contains(&row.id))
    }

    /// The target that is given up may link at this very moment, whatever kept it from that.
    pub(super) fn target_links_now(&mut self, row: &AllocationRow) {
        let held = self.held_of(row).filter(Held::replaceable);
        let Some(held) = held else { return };
        let generation = held.current().map_or(0, |compute| compute.generation);
        let awake = self.vm_of(row, &held).is_some_and(|vm| vm.is_awake());
        if let (Some(host), true) = (self.machine_of(held.node), awake) {
            self.vm_links(host, row.id, generation, row.link_generation);
            self.reach("a target dialed after its kill was stored");
        }
    }

    /// The runtime's own connection; what admits it is the row.
    pub(crate) fn vm_links(&mut self, host: usize, id: AllocationId, generation: i64, link: Generation) {
        let Some(core) = (0..self.cores.len())
            .find(|core| self.ownership(*core).is_some() && self.cores[*core].stalled_until <= self.now)
        else {
            return;
        };
        let Some(row) = self.db.allocations.get(&id).cloned() else {
            return;
        };
        if !row.linkable || row.link_generation != link {
            return;
        }
        let epoch = self.ownership(core);
        let Some(held) = self.held_of(&row) else {
            if !row.initialized {
                self.submit(core, epoch, Write::Linked(id), Purpose::Nobody);
            }
            return;
        };
        let current = held.current().map_or(0, |compute| compute.generation);
        let here = held.node == self.hosts[host].id && current == generation;
        if !here || held.is_given_up(generation) && !self.has(Defect::AdmitsTheKilled) {
            return;
        }
        // A runtime that is linked dials no other link.
        let life = self.cores[core].life.as_ref();
        if held.phase() == Some(ComputePhase::Waking) && life.is_some_and(|life| life.linked.contains(&id)) {
            return;
        }
        match held.phase() {
            Some(ComputePhase::Running) if row.initialized => {
                if let Some(life) = self.cores[core].life.as_mut() {
                    life.linked.insert(id);
                }
            }
            Some(ComputePhase::Running) => {
                self.submit(core, epoch, Write::Linked(id), Purpose::Nobody);
            }
            Some(ComputePhase::Waking) => {
                let write = Write::Held(id, Event::Linked, Box::default());
                self.submit(core, epoch, write, Purpose::Nobody);
            }
            _ => return,
        }
        self.poke(core);
    }

    pub(super) fn asks(
        &mut self,
        core: usize,
        row: &AllocationRow,
        node: NodeId,
        arguments: Arguments,
        wait: Millis,
    ) -> Option<(ConnectionId, RequestId)> {
        let epoch = self.worker(core)?.epoch;
        let on = self.connected(core, node)?;
        let wanted = Wanted {
            node,
            generation: row.generation,
            reference: row.reference(),
            arguments,
            on,
            wait,
            who: Who::Step(epoch),
        };
        Some((on, self.call(core, wanted)?))
    }

    fn shape(&self, row: &AllocationRow, generation: i64) -> Option<Box<Compute>> {
        Some(Box::new(row.held.as_ref()?.shapes.get(&generation)?.clone()))
    }

    pub(super) fn question(&self, row: &AllocationRow, of: Observation) -> Option<Arguments> {
        let stored = row.held.as_ref()?;
        let verifies = of == Observation::Resume && self.has(Defect::ComputeVerifies);
        Some(match of {
            Observation::Info => Arguments::Info,
            _ if verifies => Arguments::Compute(Box::new(stored.current()?.clone())),
            Observation::Compute(generation) => Arguments::Compute(self.shape(row, generation)?),
            Observation::Suspend => Arguments::Suspend(Box::new(Suspend {
                reference: row.reference(),
                operation_id: stored.held.suspend?,
                source: stored.current()?.clone(),
                retained: None.into(),
                reconcile_only: true,
            })),
            Observation::Resume => self.resume_of(row, stored.current()?.clone(), stored.resume?, true)?,
        })
    }

    fn resume_of(
        &self,
        row: &AllocationRow,
        target: Compute,
        operation_id: OperationId,
        reconcile_only: bool,
    ) -> Option<Arguments> {
        Some(Arguments::Resume(Box::new(Resume {
            reference: row.reference(),
            operation_id,
            retained: row.held.as_ref()?.retained.clone()?,
            target,
            reconcile_only,
            workspace: None.into(),
        })))
    }

    pub(super) fn arguments_of(
        &self,
        row: &AllocationRow,
        request: Request,
        operation: u64,
    ) -> Option<Arguments> {
        let stored = row.held.as_ref()?;
        let current = || stored.current().cloned().map(Box::new);
        Some(match request {
            Request::Suspend(id) => Arguments::Suspend(Box::new(Suspend {
                reference: row.reference(),
                operation_id: id,
                source: stored.current()?.clone(),
                retained: None.into(),
                reconcile_only: false,
            })),
            Request::Resume => {
                self.resume_of(row, stored.current()?.clone(), ids::operation(operation), false)?
            }
            Request::KillCompute(generation) => Arguments::KillCompute(self.shape(row, generation)?),
            Request::ResumeCompute => Arguments::ResumeCompute(current()?),
            Request::Wake => {
                let command = Command {
                    args: vec!["wake".to_owned()],
                    directory: String::new(),
                    stdin: None,
                };
                Arguments::CommandCompute(current()?, command)
            }
            Request::DeleteRetained => Arguments::DeleteRetained(Box::new(stored.retained.clone()?)),
        })
    }
}

/// What a node said of one compute, and the compute as it showed it.
pub(super) fn read(of: Observation, outcome: &CallOutcome) -> (Answer, Option<ComputeState>) {
    let CallOutcome::Answered(outcome) = outcome else {
        return (Answer::Unknown, None);
    };
    match outcome {
        Outcome::Success(Some(ResponseResult::State(state))) => {
            let answer = match of {
                Observation::Suspend => Answer::of_suspend(state),
                _ => Answer::of_compute(state),
            };
            (answer, Some((**state).clone()))
        }
        Outcome::Success(Some(ResponseResult::Command(result))) if result.exit_code == 0 => {
            (Answer::Done, None)
        }
        Outcome::Success(Some(ResponseResult::Command(_))) => (Answer::Refused, None),
        Outcome::Success(None) => (Answer::Done, None),
        Outcome::Success(Some(_)) | Outcome::Unsupported(_) => (Answer::Unknown, None),
        Outcome::Failed { code, .. } => match code {
            FailureCode::NotFound => (Answer::NotFound, None),
            FailureCode::Invalid => (Answer::Invalid, None),
            FailureCode::Unconfirmed | FailureCode::CommandUnconfirmed => (Answer::Unknown, None),
            _ => (Answer::Refused, None),
        },
    }
}
