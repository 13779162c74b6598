//! The fake as a [`World`] of the suite.

use std::{
    collections::BTreeMap,
    os::unix::fs::DirBuilderExt as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use oac_model::{BootId, DiagnosticCode, InstallationId, ProjectId, Reference, StoreId};
use parking_lot::Mutex;

use super::{
    Defect, FakeProvider,
    machine::{Machine, Owner, Power, StepFault, Vm},
    provider::{Durable, Node, declared, host_of},
};
use crate::{
    Declarations, Lanes, NativeWork, Phase, PhaseEvent, Provider, Receipt, ReceiptStore,
    suite::{Arrange, Marker, Step, World},
};

/// A machine in memory, a disk for receipts, and the node that works on both.
pub struct FakeWorld {
    work: NativeWork,
    defect: Option<Defect>,
    installation: InstallationId,
    machine: Arc<Machine>,
    durable: Arc<Durable>,
    node: Mutex<Arc<Node>>,
    disk: tempfile::TempDir,
}

impl FakeWorld {
    /// Panics where the host has no disk for the receipts.
    pub fn new(work: NativeWork, defect: Option<Defect>) -> Self {
        let disk = tempfile::tempdir().expect("a temporary directory");
        let receipts = disk.path().join("receipts");
        let private = std::fs::DirBuilder::new().mode(0o700).create(&receipts);
        private.expect("a directory for the receipts");
        let store = StoreId::random();
        let machine = Machine::new(store);
        let durable = Arc::new(Durable {
            receipts: ReceiptStore::open(&receipts).expect("the directory just made"),
            recorded_host: host_of(0),
            recorded_store: store,
            seen: Mutex::default(),
            written: Mutex::default(),
        });
        let installation = InstallationId::random();
        let node = start(work, defect, installation, &machine, &durable);
        Self {
            work,
            defect,
            installation,
            machine,
            durable,
            node: Mutex::new(node),
            disk,
        }
    }

    fn restart(&self) {
        let mut node = self.node.lock();
        node.alive.store(false, Ordering::Release);
        // The program is gone, and its descriptors with it; a helper keeps its own.
        node.locks.lock().clear();
        *node = start(
            self.work,
            self.defect,
            self.installation,
            &self.machine,
            &self.durable,
        );
    }

    fn node(&self) -> Arc<Node> {
        self.node.lock().clone()
    }

    /// A service has neither disks nor names: its create is its first effect.
    fn step(&self, step: Step) -> Step {
        match (self.work, step) {
            (NativeWork::Service, Step::FirstEffect) => Step::Create,
            _ => step,
        }
    }

    fn each_vm(&self, reference: Reference, mut change: impl FnMut(&mut Vm)) {
        let owner = Some(self.node().owner(reference));
        let mut state = self.machine.state.lock();
        state
            .vms
            .values_mut()
            .filter(|vm| vm.owner == owner)
            .for_each(&mut change);
    }

    fn checkpoints_of(&self, reference: Reference, mut change: impl FnMut(&mut super::machine::Checkpoint)) {
        let mut state = self.machine.state.lock();
        state
            .checkpoints
            .iter_mut()
            .filter(|c| c.reference == reference)
            .for_each(&mut change);
    }
}

fn start(
    work: NativeWork,
    defect: Option<Defect>,
    installation: InstallationId,
    machine: &Arc<Machine>,
    durable: &Arc<Durable>,
) -> Arc<Node> {
    let mut declarations = declared(work);
    if defect == Some(Defect::DeclaresOtherwise) {
        declarations = Node::otherwise(&declarations);
    }
    Arc::new(Node {
        declarations,
        work,
        defect,
        installation,
        machine: machine.clone(),
        durable: durable.clone(),
        lanes: Lanes::default(),
        alive: Arc::new(AtomicBool::new(true)),
        locks: Mutex::new(BTreeMap::new()),
    })
}

/// A compute as it stands without a provider having made it.
fn stray(id: String, owner: Option<Owner>) -> Vm {
    Vm {
        id,
        owner,
        generation: 0,
        parent: None,
        power: Power::Created,
        bootstrapped: false,
        right_size: true,
        policy: String::new(),
        environment: Vec::new(),
    }
}

#[async_trait]
impl World for FakeWorld {
    fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(FakeProvider(self.node()))
    }

    fn declared(&self) -> Declarations {
        declared(self.work)
    }

    async fn arrange(&self, what: Arrange) {
        let (machine, node) = (&self.machine, self.node());
        match what {
            Arrange::ForeignHolder(r) => {
                let mut state = machine.state.lock();
                let vm = stray(state.new_id(), None);
                state.vms.insert(node.vm_name(&r, 0), vm);
            }
            Arrange::ForeignPart(r) => {
                let mut state = machine.state.lock();
                state.disks.insert(format!("{}disk", node.names(&r)), None);
            }
            Arrange::ForeignTwin(r) => {
                let mut owner = node.owner(r);
                owner.reference.tenant_id = ProjectId::random();
                let mut state = machine.state.lock();
                let vm = stray(state.new_id(), Some(owner));
                state.vms.insert(node.vm_name(&r, 0), vm);
            }
            Arrange::ForeignParent(r) => self.each_vm(r, |vm| {
                if let Some(parent) = &mut vm.parent {
                    parent.source_id.push('x');
                }
            }),
            Arrange::Spoil(step) => machine.fault(self.step(step), StepFault::Spoil),
            Arrange::Reject(step) => machine.fault(self.step(step), StepFault::Reject),
            Arrange::Lose(step, lost) => machine.fault(self.step(step), StepFault::Lose(lost)),
            Arrange::Hold(step) => machine.fault(self.step(step), StepFault::Hold),
            Arrange::Delay(step) => machine.fault(self.step(step), StepFault::Delay),
            Arrange::AwaitHeld => machine.await_held().await,
            Arrange::Release => machine.release(),
            Arrange::Deliver => machine.deliver(),
            Arrange::FaultAt(n, fault) => machine.fault_at(n, false, fault),
            Arrange::FaultAtEffect(n, fault) => machine.fault_at(n, true, fault),
            Arrange::Calm => machine.calm(),
            Arrange::FailInventory(fail) => machine.state.lock().fail_inventory = fail,
            Arrange::KeepOnRemoval(keep) => machine.state.lock().keep_on_removal = keep,
            Arrange::RemoveCompute(r) => {
                let owner = Some(node.owner(r));
                machine.state.lock().vms.retain(|_, vm| vm.owner != owner);
            }
            // A service keeps nothing that has ended.
            Arrange::EndCompute(r) if self.work == NativeWork::Service => {
                let owner = Some(node.owner(r));
                machine.state.lock().vms.retain(|_, vm| vm.owner != owner);
            }
            Arrange::EndCompute(r) => self.each_vm(r, |vm| vm.power = Power::Ended),
            Arrange::RestartCompute(r) => self.each_vm(r, |vm| vm.power = Power::Running),
            Arrange::Reboot => {
                let mut state = machine.state.lock();
                state.boot = Some(BootId::random());
                state.steady = false;
                drop(state);
                self.restart();
            }
            Arrange::Steady => machine.state.lock().steady = true,
            Arrange::OtherHost(other) => machine.state.lock().machine = u8::from(other),
            Arrange::RestartNode => self.restart(),
            Arrange::FailChecks(first) => machine.state.lock().failing_checks = Some(first),
            Arrange::AwaitWork(r) => {
                node.lanes.idle(r).await;
                while machine.is_locked(r) {
                    tokio::task::yield_now().await;
                }
            }
            Arrange::Damage(r, damage) => self.checkpoints_of(r, |c| c.damage = Some(damage)),
            Arrange::Unreadable(r, unreadable) => self.checkpoints_of(r, |c| c.unreadable = unreadable),
            Arrange::RemoveCheckpoints(r) => machine.state.lock().checkpoints.retain(|c| c.reference != r),
            Arrange::StoreMarker(marker) => {
                machine.state.lock().marker = match marker {
                    Marker::Recorded => Some(self.durable.recorded_store),
                    Marker::Missing => None,
                    Marker::Another => Some(StoreId::random()),
                };
            }
            Arrange::ForgetReceipt(r) => {
                let path = self
                    .disk
                    .path()
                    .join(format!("receipts/{}.json", r.allocation_id));
                std::fs::remove_file(path).expect("the receipt is there");
            }
            Arrange::Discard(r) => {
                let receipt = self.receipt(&r).expect("a discarded create has a receipt");
                let tombstone = receipt.apply(PhaseEvent::CreateMadeNothing);
                node.store(&tombstone.expect("a create is discarded"))
                    .expect("a disk");
            }
        }
    }

    fn calls(&self) -> usize {
        self.machine.state.lock().calls
    }

    fn effects(&self) -> usize {
        self.machine.state.lock().effects
    }

    fn made(&self, step: Step) -> usize {
        self.machine.state.lock().made.get(&step).copied().unwrap_or(0)
    }

    fn receipt(&self, reference: &Reference) -> Option<Receipt> {
        self.durable.receipts.read(reference).expect("a readable receipt")
    }

    async fn present(&self, reference: &Reference) -> Vec<String> {
        let names = self.node().names(reference);
        let state = self.machine.state.lock();
        let vms = state.vms.iter().filter(|(name, _)| name.starts_with(&names));
        let disks = state.disks.keys().filter(|name| name.starts_with(&names));
        vms.map(|(name, vm)| format!("{name} {}", vm.id))
            .chain(disks.cloned())
            .collect()
    }

    async fn live(&self, reference: &Reference) -> Vec<String> {
        let names = self.node().names(reference);
        let state = self.machine.state.lock();
        let all = state.vms.iter().filter(|(name, _)| name.starts_with(&names));
        let live = all.filter(|(_, vm)| vm.power != Power::Ended);
        live.map(|(name, _)| name.clone()).collect()
    }

    async fn policy(&self, reference: &Reference) -> String {
        let owner = Some(self.node().owner(*reference));
        let state = self.machine.state.lock();
        let mut of = state.vms.values().filter(|vm| vm.owner == owner);
        of.next().map(|vm| vm.policy.clone()).unwrap_or_default()
    }

    async fn shown(&self, reference: &Reference) -> String {
        let names = self.node().names(reference);
        let state = self.machine.state.lock();
        let vms = state.vms.iter().filter(|(name, _)| name.starts_with(&names));
        vms.map(|(name, vm)| format!("{name} {} {:?} {}\n", vm.id, vm.owner, vm.environment.join(" ")))
            .collect()
    }

    fn checks(&self) -> Vec<DiagnosticCode> {
        self.node().checks()
    }

    fn tool(&self) -> String {
        "tool".into()
    }

    fn observed_as(&self) -> InstallationId {
        self.installation
    }

    fn checkpoints(&self, reference: &Reference) -> Vec<String> {
        let state = self.machine.state.lock();
        let of = state.checkpoints.iter().filter(|c| c.reference == *reference);
        of.map(|c| c.retained.operation_id.to_string()).collect()
    }

    fn marker(&self) -> Option<String> {
        self.machine.state.lock().marker.map(|id| id.to_string())
    }

    fn written(&self, reference: &Reference) -> Vec<(Phase, Option<String>)> {
        self.durable
            .written
            .lock()
            .get(reference)
            .cloned()
            .unwrap_or_default()
    }
}
