//! One node as providers.md sections 4 and 7 describe it, one native effect at a time: a queue, the request being served,
//! a helper that outlives the node, receipts, and what there really is.

use std::collections::{BTreeMap, VecDeque};

use crate::scene::Defect;

/// A request as it arrives: generations and checkpoints by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    Info,
    Compute(i64),
    ReconcileSuspend(i64, usize),
    ReconcileResume(i64, usize),
    Suspend(i64, usize),
    Resume(i64, usize),
    KillCompute(i64),
    Thaw(i64),
    Wake(i64),
    Delete(usize),
    Kill,
}

/// What is answered; `Unconfirmed` also stands for no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Say {
    Done,
    Unconfirmed,
    Invalid,
    Exists,
    NotFound,
    Running,
    Paused,
    Failed,
    Ended,
    Suspended,
    Present,
    Absent { lost: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    None,
    Settled,
    Suspending,
    Suspended,
    Restoring,
    Killing,
    Tombstone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vm {
    Running,
    Paused,
    Ended,
    /// A restored one that never passes its checks.
    Unfit,
}

impl Vm {
    pub fn is_live(self) -> bool {
        self != Self::Ended
    }
}

/// What the receipt keeps of the latest suspend or resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    None,
    Released,
    /// A verification failed: `invalid` before any native effect.
    Refused,
    /// The target did not pass its checks.
    Unfit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connection {
    None,
    Current,
    /// To an owner that is gone; what it sent may still be served.
    Stale,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    Good,
    Bad,
}

/// The checkpoints of the allocation, wherever they were made: the store is shared.
#[derive(Debug, Clone, Default)]
pub struct Shelf {
    pub kept: BTreeMap<usize, Stored>,
    /// Those that are still the newest state there is.
    pub valid: BTreeMap<usize, bool>,
}

#[derive(Debug, Clone)]
pub struct Host {
    pub connection: Connection,
    pub queue: VecDeque<(Ask, bool)>,
    /// Being served; whether its caller still waits.
    pub lane: Option<(Ask, bool)>,
    pub helper: Option<(Ask, u8)>,
    /// The helper of a node that was killed; it holds the allocation's lock.
    pub orphan: Option<(Ask, u8)>,
    pub receipt: Receipt,
    pub generation: i64,
    pub operation: Option<usize>,
    pub outcome: Outcome,
    pub vms: BTreeMap<i64, Vm>,
    /// Computes whose runtime was woken since it was parked.
    pub woken: BTreeMap<i64, bool>,
    /// Not delivered yet.
    pub answer: Option<Say>,
    pub down: bool,
}

impl Host {
    pub fn new() -> Self {
        Self {
            connection: Connection::Current,
            queue: VecDeque::new(),
            lane: None,
            helper: None,
            orphan: None,
            receipt: Receipt::None,
            generation: 0,
            operation: None,
            outcome: Outcome::None,
            vms: BTreeMap::new(),
            woken: BTreeMap::new(),
            answer: None,
            down: false,
        }
    }

    pub fn disconnect(&mut self) {
        self.connection = Connection::None;
        self.queue.clear();
        self.forget_callers();
    }

    /// Nobody waits for an answer any more.
    pub fn forget_callers(&mut self) {
        for (_, waits) in &mut self.queue {
            *waits = false;
        }
        if let Some((_, waits)) = &mut self.lane {
            *waits = false;
        }
        self.answer = None;
    }

    pub fn has_live(&self) -> bool {
        self.vms.values().any(|vm| vm.is_live())
    }

    /// Something that a release would leave behind.
    pub fn has_anything(&self) -> bool {
        let resumes = |work: Option<(Ask, u8)>| matches!(work, Some((Ask::Resume(..), _)));
        !self.vms.is_empty() || resumes(self.helper) || resumes(self.orphan)
    }

    fn say(&mut self, say: Say) {
        if let Some((_, waits)) = self.lane.take()
            && waits
        {
            self.answer = Some(say);
        }
    }

    fn of(&self, generation: i64) -> Say {
        match self.vms.get(&generation) {
            Some(Vm::Running | Vm::Unfit) => Say::Running,
            Some(Vm::Paused) => Say::Paused,
            Some(Vm::Ended) => Say::Ended,
            None => Say::NotFound,
        }
    }

    fn info(&self, shelf: &Shelf, defect: Option<Defect>) -> Say {
        match self.vms.values().find(|vm| vm.is_live()) {
            Some(Vm::Running | Vm::Unfit) => return Say::Running,
            Some(_) => return Say::Present,
            None => {}
        }
        match self.receipt {
            Receipt::Tombstone if self.vms.is_empty() => Say::Absent { lost: false },
            Receipt::Tombstone => Say::Present,
            Receipt::Settled => Say::Absent { lost: true },
            Receipt::Suspending | Receipt::Restoring
                if defect == Some(Defect::EndedIsNotLost) && !self.vms.is_empty() =>
            {
                Say::Present
            }
            Receipt::Suspending | Receipt::Restoring => {
                let gone = self.operation.is_none_or(|k| !shelf.kept.contains_key(&k))
                    || self.outcome == Outcome::Refused;
                Say::Absent { lost: gone }
            }
            Receipt::Suspended => Say::Absent { lost: false },
            Receipt::None | Receipt::Killing if self.vms.is_empty() => Say::NotFound,
            Receipt::None | Receipt::Killing => Say::Present,
        }
    }

    /// Begins the next queued request.
    pub fn start(&mut self, shelf: &mut Shelf, defect: Option<Defect>) {
        let Some((ask, waits)) = self.queue.pop_front() else {
            return;
        };
        self.lane = Some((ask, waits));
        if self.orphan.is_some() && defect != Some(Defect::NoLock) {
            return self.say(Say::Unconfirmed);
        }
        match ask {
            Ask::Info => self.say(self.info(shelf, defect)),
            Ask::Compute(g) => {
                let live = self.vms.get(&g).is_some_and(|vm| vm.is_live());
                let released = self.receipt == Receipt::Suspended && self.outcome == Outcome::Released;
                let unfit = self.receipt == Receipt::Restoring && self.outcome == Outcome::Unfit;
                if defect == Some(Defect::ComputeWrites) && self.restores(g) && self.of(g) == Say::Running {
                    (self.receipt, self.outcome) = (Receipt::Settled, Outcome::None);
                }
                self.say(match self.of(g) {
                    _ if released && self.generation == g && !live => Say::Suspended,
                    Say::Running if unfit && self.generation == g => Say::Failed,
                    other => other,
                });
            }
            Ask::ReconcileSuspend(g, k) => self.reconcile_suspend(g, k, shelf, defect),
            Ask::ReconcileResume(g, _) if self.restores(g) && self.outcome == Outcome::Refused => {
                self.say(Say::Invalid);
            }
            Ask::ReconcileResume(g, _) => {
                let restores = self.restores(g);
                match self.vms.get(&g) {
                    Some(Vm::Running) => {
                        if restores {
                            self.receipt = Receipt::Settled;
                        }
                        self.say(Say::Running);
                    }
                    Some(Vm::Unfit) => {
                        if restores {
                            self.outcome = Outcome::Unfit;
                        }
                        self.say(Say::Failed);
                    }
                    _ => self.say(self.of(g)),
                }
            }
            Ask::Suspend(g, k) => {
                let live = self.vms.get(&g).is_some_and(|vm| vm.is_live());
                if self.receipt == Receipt::Settled && self.generation == g && live {
                    (self.receipt, self.operation, self.outcome) =
                        (Receipt::Suspending, Some(k), Outcome::None);
                    self.helper = Some((ask, 0));
                } else {
                    self.say(Say::Invalid);
                }
            }
            Ask::Resume(g, k) => {
                let free = matches!(self.receipt, Receipt::None | Receipt::Suspended)
                    || self.receipt == Receipt::Restoring
                        && self.outcome == Outcome::Refused
                        && defect != Some(Defect::RestoringSticks);
                if !free {
                    return self.say(Say::Exists);
                }
                (self.receipt, self.generation, self.operation, self.outcome) =
                    (Receipt::Restoring, g, Some(k), Outcome::None);
                if shelf.kept.get(&k) == Some(&Stored::Good) {
                    self.helper = Some((ask, 0));
                } else {
                    self.outcome = Outcome::Refused;
                    self.say(Say::Invalid);
                }
            }
            Ask::KillCompute(g) => {
                let ends_all =
                    matches!(self.receipt, Receipt::Suspending) || self.receipt == Receipt::Settled && g == 0;
                if self.generation == g && ends_all {
                    self.receipt = Receipt::Killing;
                }
                self.helper = Some((ask, 0));
            }
            Ask::Kill => {
                if self.receipt != Receipt::Tombstone {
                    self.receipt = Receipt::Killing;
                }
                self.helper = Some((ask, 0));
            }
            Ask::Thaw(g) if self.vms.get(&g).is_some_and(|vm| vm.is_live()) => self.helper = Some((ask, 0)),
            Ask::Wake(g) if self.of(g) == Say::Running => self.helper = Some((ask, 0)),
            Ask::Thaw(_) | Ask::Wake(_) => self.say(Say::NotFound),
            Ask::Delete(_) => self.helper = Some((ask, 0)),
        }
    }

    fn restores(&self, generation: i64) -> bool {
        self.receipt == Receipt::Restoring && self.generation == generation
    }

    fn reconcile_suspend(&mut self, g: i64, k: usize, shelf: &mut Shelf, defect: Option<Defect>) {
        let mine = self.operation == Some(k);
        if mine && self.receipt == Receipt::Suspended {
            return self.say(Say::Suspended);
        }
        if mine && self.receipt == Receipt::Suspending {
            match shelf.kept.get(&k) {
                Some(Stored::Good) => {
                    self.helper = Some((Ask::ReconcileSuspend(g, k), 0));
                    return;
                }
                Some(Stored::Bad) if defect == Some(Defect::KeepsBadCheckpoint) => {
                    return self.say(Say::Unconfirmed);
                }
                Some(Stored::Bad) => {
                    shelf.kept.remove(&k);
                    self.outcome = Outcome::Refused;
                }
                None => {}
            }
            if matches!(self.of(g), Say::Running | Say::Paused) {
                self.receipt = Receipt::Settled;
            }
        }
        self.say(self.of(g));
    }

    /// One native effect of the helper, or of the orphan. `unlucky` lets it fail where it can; the answer is whether state
    /// was destroyed that may have been the last.
    pub fn work(&mut self, orphan: bool, unlucky: bool, shelf: &mut Shelf, defect: Option<Defect>) {
        let slot = if orphan { self.orphan } else { self.helper };
        let Some((ask, step)) = slot else { return };
        let next = self.effect(ask, step, orphan, unlucky, shelf, defect);
        if orphan {
            self.orphan = next;
        } else {
            self.helper = next;
        }
    }

    /// What is left to do. An orphan writes no receipt and answers nobody.
    fn effect(
        &mut self,
        ask: Ask,
        step: u8,
        orphan: bool,
        unlucky: bool,
        shelf: &mut Shelf,
        defect: Option<Defect>,
    ) -> Option<(Ask, u8)> {
        let attached = !orphan;
        let end = |host: &mut Self, say: Say| {
            if attached {
                host.say(say);
            }
            None
        };
        match (ask, step) {
            (Ask::Kill, _) => {
                if self.vms.pop_first().is_some() {
                    return Some((ask, 1));
                }
                if attached {
                    self.receipt = Receipt::Tombstone;
                }
                end(self, Say::Done)
            }
            (Ask::KillCompute(g), _) => {
                if self.vms.remove(&g).is_some() {
                    return Some((ask, 1));
                }
                let names = self.generation == g || self.receipt == Receipt::None;
                let any = defect == Some(Defect::KillSuspendsAny);
                let ends = matches!(
                    self.receipt,
                    Receipt::None | Receipt::Restoring | Receipt::Settled
                );
                if attached && (g > 0 || self.receipt == Receipt::None) && (names || any) && ends {
                    (self.receipt, self.outcome) = (Receipt::Suspended, Outcome::None);
                    if names {
                        self.generation = g;
                    }
                }
                end(self, Say::Done)
            }
            (Ask::Thaw(g), _) => {
                if let Some(vm @ Vm::Paused) = self.vms.get_mut(&g) {
                    *vm = Vm::Running;
                }
                let say = self.of(g);
                end(self, say)
            }
            (Ask::Wake(g), _) => {
                let runs = self.of(g) == Say::Running;
                if runs {
                    self.woken.insert(g, true);
                }
                end(self, if runs { Say::Done } else { Say::Unconfirmed })
            }
            (Ask::Delete(k), 0) => {
                shelf.kept.remove(&k);
                shelf.valid.insert(k, false);
                Some((ask, 1))
            }
            (Ask::Delete(_), _) => end(self, Say::Done),
            (Ask::Suspend(g, _), 0) => {
                if let Some(vm @ Vm::Running) = self.vms.get_mut(&g) {
                    *vm = Vm::Paused;
                }
                Some((ask, 1))
            }
            (Ask::Suspend(g, k), 1) => {
                let live = self.vms.get(&g).is_some_and(|vm| vm.is_live());
                if live && !unlucky {
                    shelf.kept.insert(k, Stored::Good);
                    shelf.valid.insert(k, true);
                    return Some((ask, 2));
                }
                // The capture failed, or what was published did not verify and is removed.
                if attached && live {
                    self.receipt = Receipt::Settled;
                }
                end(self, if live { Say::Paused } else { Say::Unconfirmed })
            }
            (Ask::Suspend(g, _), 2) => {
                if defect != Some(Defect::SourceRunsOn)
                    && let Some(vm) = self.vms.get_mut(&g)
                {
                    *vm = Vm::Ended;
                }
                Some((ask, 3))
            }
            (Ask::ReconcileSuspend(g, _), 0) if self.vms.get(&g).is_some_and(|vm| vm.is_live()) => {
                self.vms.insert(g, Vm::Ended);
                Some((ask, 0))
            }
            (Ask::Suspend(..) | Ask::ReconcileSuspend(..), _) => {
                if attached {
                    (self.receipt, self.outcome) = (Receipt::Suspended, Outcome::Released);
                }
                end(self, Say::Suspended)
            }
            (Ask::Resume(g, _), 0) => {
                if unlucky && step == 0 && g % 2 != 0 {
                    if attached {
                        self.outcome = Outcome::Refused;
                    }
                    return end(self, Say::Invalid);
                }
                self.vms.insert(g, if unlucky { Vm::Unfit } else { Vm::Running });
                Some((ask, 1))
            }
            (Ask::Resume(g, _), _) => {
                let say = match self.vms.get(&g) {
                    Some(Vm::Running) => {
                        if attached {
                            (self.receipt, self.outcome) = (Receipt::Settled, Outcome::None);
                        }
                        Say::Running
                    }
                    Some(Vm::Unfit) => {
                        if attached {
                            self.outcome = Outcome::Unfit;
                        }
                        Say::Failed
                    }
                    _ => Say::Unconfirmed,
                };
                end(self, say)
            }
            (Ask::Info | Ask::Compute(_) | Ask::ReconcileResume(..), _) => None,
        }
    }
}
