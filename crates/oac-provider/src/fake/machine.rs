//! The native side: computes, disks, checkpoints, a host and its boot, and the faults that calls of it meet.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use oac_model::{BootId, InstallationId, Reference, StoreId};
use oac_wire::shapes::Retained;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::suite::{CallFault, Damage, Lost, Step};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Power {
    Created,
    Running,
    Paused,
    Ended,
}

/// Who a native thing belongs to; its labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) installation: InstallationId,
    pub(super) reference: Reference,
}

#[derive(Debug, Clone)]
pub(super) struct Vm {
    pub(super) id: String,
    /// `None`: somebody else's.
    pub(super) owner: Option<Owner>,
    pub(super) generation: i64,
    pub(super) parent: Option<Retained>,
    pub(super) power: Power,
    pub(super) bootstrapped: bool,
    /// Has the size that was asked for.
    pub(super) right_size: bool,
    pub(super) policy: String,
    pub(super) environment: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Checkpoint {
    pub(super) reference: Reference,
    pub(super) retained: Retained,
    pub(super) policy: String,
    pub(super) damage: Option<Damage>,
    pub(super) unreadable: bool,
}

/// Why a call came to nothing, or to nobody knows what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NativeError {
    #[error("the machine refuses")]
    Rejected,
    #[error("no usable answer came")]
    Lost,
}

enum Which {
    Step(Step),
    Call(usize),
    Effect(usize),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Reject,
    Lose(Lost),
    Hold,
    Delay,
    Spoil,
    Unreachable,
}

type Late = Box<dyn FnOnce(&mut State) + Send>;

#[derive(Default)]
pub(super) struct State {
    pub(super) vms: BTreeMap<String, Vm>,
    pub(super) disks: BTreeMap<String, Option<Owner>>,
    pub(super) checkpoints: Vec<Checkpoint>,
    pub(super) marker: Option<StoreId>,
    pub(super) machine: u8,
    pub(super) boot: Option<BootId>,
    /// It has answered for 60 s without interruption.
    pub(super) steady: bool,
    pub(super) failing_checks: Option<usize>,
    pub(super) fail_inventory: bool,
    pub(super) keep_on_removal: bool,
    pub(super) ids: u64,
    pub(super) calls: usize,
    pub(super) effects: usize,
    pub(super) made: HashMap<Step, usize>,
    locks: HashMap<Reference, Weak<()>>,
    faults: Vec<(Which, Fault)>,
    unreachable: bool,
    late: Vec<Late>,
}

impl State {
    pub(super) fn new_id(&mut self) -> String {
        self.ids += 1;
        format!("vm-{}", self.ids)
    }
}

pub(super) struct Machine {
    pub(super) state: Mutex<State>,
    held: watch::Sender<bool>,
    reached: watch::Sender<bool>,
}

impl Machine {
    pub(super) fn new(marker: StoreId) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                marker: Some(marker),
                boot: Some(BootId::random()),
                steady: true,
                ..State::default()
            }),
            held: watch::Sender::new(false),
            reached: watch::Sender::new(false),
        })
    }

    pub(super) fn fault(&self, step: Step, fault: StepFault) {
        let fault = match fault {
            StepFault::Reject => Fault::Reject,
            StepFault::Lose(lost) => Fault::Lose(lost),
            StepFault::Spoil => Fault::Spoil,
            StepFault::Delay => Fault::Delay,
            StepFault::Hold => {
                self.expect_hold();
                Fault::Hold
            }
        };
        self.state.lock().faults.push((Which::Step(step), fault));
    }

    pub(super) fn fault_at(&self, n: usize, effects_alone: bool, fault: CallFault) {
        let fault = match fault {
            CallFault::Refused => Fault::Reject,
            CallFault::Lost(lost) => Fault::Lose(lost),
            // Here an answer is a value: what cannot be read was lost.
            CallFault::Malformed => Fault::Lose(Lost::After),
            CallFault::Unreachable => Fault::Unreachable,
            CallFault::Late => {
                self.expect_hold();
                Fault::Hold
            }
        };
        let mut state = self.state.lock();
        let which = match effects_alone {
            true => Which::Effect(state.effects + n),
            false => Which::Call(state.calls + n),
        };
        state.faults.push((which, fault));
    }

    fn expect_hold(&self) {
        self.held.send_replace(true);
        self.reached.send_replace(false);
    }

    pub(super) fn calm(&self) {
        let mut state = self.state.lock();
        state.faults.clear();
        state.unreachable = false;
        state.failing_checks = None;
        state.fail_inventory = false;
        state.keep_on_removal = false;
        drop(state);
        self.release();
    }

    pub(super) async fn await_held(&self) {
        let _ = self.reached.subscribe().wait_for(|reached| *reached).await;
    }

    pub(super) fn release(&self) {
        self.held.send_replace(false);
    }

    /// What was delayed reaches the machine.
    pub(super) fn deliver(&self) {
        let mut state = self.state.lock();
        for late in std::mem::take(&mut state.late) {
            late(&mut state);
        }
    }

    /// The allocation's lock, unless somebody holds it.
    pub(super) fn lock(&self, reference: Reference) -> Option<Arc<()>> {
        let mut state = self.state.lock();
        if state
            .locks
            .get(&reference)
            .is_some_and(|held| held.strong_count() > 0)
        {
            return None;
        }
        let lock = Arc::new(());
        state.locks.insert(reference, Arc::downgrade(&lock));
        Some(lock)
    }

    pub(super) fn is_locked(&self, reference: Reference) -> bool {
        let state = self.state.lock();
        state
            .locks
            .get(&reference)
            .is_some_and(|held| held.strong_count() > 0)
    }

    fn meet(&self, step: Step) -> Result<Option<Fault>, NativeError> {
        let mut state = self.state.lock();
        let (call, effect) = (state.calls, state.effects);
        state.calls += 1;
        if step.is_effect() {
            state.effects += 1;
        }
        let met = state.faults.iter().position(|(which, _)| match which {
            Which::Step(wanted) => *wanted == step,
            Which::Call(n) => *n == call,
            Which::Effect(n) => *n == effect && step.is_effect(),
        });
        let fault = met.map(|index| state.faults.remove(index).1);
        state.unreachable |= fault == Some(Fault::Unreachable);
        if state.unreachable {
            return Err(NativeError::Lost);
        }
        Ok(fault)
    }

    /// One native call. `effect` is told whether it has to go wrong.
    async fn call<T: Send + 'static>(
        &self,
        step: Step,
        effect: impl FnOnce(&mut State, bool) -> T + Send + 'static,
    ) -> Result<T, NativeError> {
        let fault = self.meet(step)?;
        match fault {
            Some(Fault::Reject) => return Err(NativeError::Rejected),
            Some(Fault::Lose(Lost::Before) | Fault::Unreachable) => return Err(NativeError::Lost),
            Some(Fault::Delay) => {
                self.state
                    .lock()
                    .late
                    .push(Box::new(move |state| drop(effect(state, false))));
                return Err(NativeError::Lost);
            }
            Some(Fault::Hold) => {
                self.reached.send_replace(true);
                let _ = self.held.subscribe().wait_for(|held| !held).await;
            }
            _ => {}
        }
        let mut state = self.state.lock();
        *state.made.entry(step).or_default() += 1;
        let result = effect(&mut state, fault == Some(Fault::Spoil));
        match fault {
            Some(Fault::Lose(Lost::After)) => Err(NativeError::Lost),
            _ => Ok(result),
        }
    }
}

/// What a step's next call meets.
#[derive(Debug, Clone, Copy)]
pub(super) enum StepFault {
    Reject,
    Lose(Lost),
    Hold,
    Delay,
    Spoil,
}

/// The machine as one piece of native work sees it.
#[derive(Clone)]
pub(super) struct Native {
    pub(super) machine: Arc<Machine>,
    /// The node whose work it is; it makes no further call once that is dead. A helper has none.
    pub(super) node: Option<Arc<AtomicBool>>,
}

impl Native {
    pub(super) async fn call<T: Send + 'static>(
        &self,
        step: Step,
        effect: impl FnOnce(&mut State, bool) -> T + Send + 'static,
    ) -> Result<T, NativeError> {
        self.alive().await;
        let result = self.machine.call(step, effect).await;
        self.alive().await;
        result
    }

    pub(super) async fn alive(&self) {
        if let Some(node) = &self.node
            && !node.load(Ordering::Acquire)
        {
            std::future::pending::<()>().await;
        }
    }
}
