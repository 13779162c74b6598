//! A Docker-like backend as scripts: the receipts are the product's, the steps and the answers those of
//! `oac-provider-docker` (providers.md sections 4 and 6), and the engine beneath is scripted.

use oac_model::Generation;
use oac_peer::{FailureCode, Outcome};
use oac_provider::{Phase, PhaseEvent, Receipt};
use oac_wire::{
    B64,
    frames::{Arguments, ResponseResult},
    shapes::{CommandResult, Info},
};

use super::{
    engine::{Act, Answer, Found, Status},
    native::{WorkId, pause_of},
};
use crate::{
    agenda::Millis,
    defect::Defect,
    ids,
    invariant::Invariant,
    world::{Happening, World},
};

/// The engine's restarts after a boot may be under way for so long.
const STEADY: Millis = 60_000;
const HOME: u8 = 1;
const ENVIRONMENT: u8 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Script {
    Create {
        link_generation: Generation,
        step: Create,
    },
    Info,
    Kill {
        step: Remove,
    },
    /// Removal under a tombstone.
    Sweep {
        step: Remove,
    },
    Command {
        marker: u64,
        pause: Millis,
        begun: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Create {
    Look,
    Home,
    Environment,
    Container,
    Start,
    LookAgain,
    /// A definite refusal: what was made goes again.
    Undo(Remove),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remove {
    Look,
    Container(Found),
    Home,
    Environment,
    Confirm,
}

impl Script {
    pub(crate) fn new(arguments: &Arguments, world: &mut World) -> Self {
        let number = world.random.number();
        match arguments {
            Arguments::Create(bootstrap) => Self::Create {
                link_generation: bootstrap.link.resource.generation,
                step: Create::Look,
            },
            Arguments::Kill => Self::Kill { step: Remove::Look },
            Arguments::Command(command) => Self::Command {
                marker: command.args[0].parse().unwrap_or(0),
                pause: pause_of(arguments, number),
                begun: false,
            },
            _ => Self::Info,
        }
    }
}

fn failed(code: FailureCode) -> Outcome {
    Outcome::failed(code)
}

fn unconfirmed() -> Outcome {
    failed(FailureCode::Unconfirmed)
}

impl World {
    pub(super) fn receipt(
        &self,
        host: usize,
        id: WorkId,
    ) -> (oac_model::Reference, Option<Receipt>, Generation) {
        let process = self.hosts[host].process.as_ref();
        let work = process.and_then(|process| process.work.get(&id));
        let Some(work) = work else {
            unreachable!("a script belongs to work that is there");
        };
        let receipt = self.hosts[host].receipts.get(&work.reference.allocation_id);
        (work.reference, receipt.cloned(), work.generation)
    }

    pub(super) fn begin_receipt(&self, host: usize, id: WorkId, event: PhaseEvent) -> Option<Receipt> {
        let (reference, _, generation) = self.receipt(host, id);
        let (machine, boot) = (
            oac_model::Digest::of(format!("host {host}")),
            self.hosts[host].boot,
        );
        Receipt::begin(event, reference, generation, Some(machine), Some(ids::boot(boot))).ok()
    }

    /// False when it could not be written: whatever it was to precede does not happen.
    pub(super) fn store_receipt(&mut self, host: usize, receipt: Receipt) -> bool {
        if self.hosts[host].disk_is_full(self.now) {
            self.reach("a receipt could not be written");
            return false;
        }
        self.say(|| {
            let number = ids::number(receipt.reference.allocation_id.as_uuid());
            format!(
                "host {host}: receipt of allocation {number} is {:?}",
                receipt.phase()
            )
        });
        self.hosts[host]
            .receipts
            .insert(receipt.reference.allocation_id, receipt);
        true
    }

    fn advance_receipt(&mut self, host: usize, id: WorkId, event: PhaseEvent) -> bool {
        let (_, receipt, _) = self.receipt(host, id);
        let next = match receipt {
            Some(receipt) => receipt.apply(event).ok(),
            None => self.begin_receipt(host, id, event),
        };
        match next {
            Some(next) => self.store_receipt(host, next),
            None => false,
        }
    }

    /// A planted defect: that nothing can be written keeps no kill from being confirmed.
    fn tombstone_assumed(&self, host: usize) -> bool {
        self.has(Defect::TombstoneAssumed) && self.hosts[host].disk_is_full(self.now)
    }

    fn set_script(&mut self, host: usize, id: WorkId, script: Script, act: Act) {
        let allocation = self.receipt(host, id).0.allocation_id;
        if let Some(process) = self.hosts[host].process.as_mut()
            && let Some(work) = process.work.get_mut(&id)
        {
            work.script = script;
        }
        self.engine_call(host, id, allocation, act);
    }

    pub(super) fn asked_of(&self, host: usize, id: WorkId) -> Option<Arguments> {
        Some(self.hosts[host].process.as_ref()?.work.get(&id)?.asked.clone())
    }

    fn script(&self, host: usize, id: WorkId) -> Option<Script> {
        Some(self.hosts[host].process.as_ref()?.work.get(&id)?.script)
    }

    /// The first step: what must be durable before anything is touched.
    pub(crate) fn script_begins(&mut self, host: usize, id: WorkId) {
        let Some(script) = self.script(host, id) else {
            return;
        };
        if self.db.suspends && !matches!(script, Script::Command { .. }) {
            return self.vm_begins(host, id);
        }
        let (_, receipt, _) = self.receipt(host, id);
        match script {
            Script::Create { .. } => {
                if receipt.is_some() {
                    return self.finish_work(host, id, failed(FailureCode::Exists));
                }
                if !self.has(Defect::NativeBeforeReceipt) {
                    let Some(first) = self.begin_receipt(host, id, PhaseEvent::CreateStarted) else {
                        return self.finish_work(host, id, unconfirmed());
                    };
                    if !self.store_receipt(host, first) && !self.has(Defect::ReceiptAssumed) {
                        return self.finish_work(host, id, unconfirmed());
                    }
                }
                self.set_script(host, id, script, Act::List);
            }
            Script::Kill { .. } => {
                let stored = self.advance_receipt(host, id, PhaseEvent::KillStarted);
                if !stored && !self.tombstone_assumed(host) {
                    return self.finish_work(host, id, unconfirmed());
                }
                self.set_script(host, id, script, Act::List);
            }
            Script::Sweep { .. } => {
                if receipt.is_none_or(|r| r.phase() != Phase::Tombstone) {
                    return self.finish_work(host, id, unconfirmed());
                }
                self.set_script(host, id, script, Act::List);
            }
            Script::Info => self.set_script(host, id, script, Act::List),
            Script::Command { marker, pause, begun } => {
                if begun {
                    let result = CommandResult {
                        stdout: B64(marker.to_string().into_bytes()),
                        stderr: B64(Vec::new()),
                        stdout_truncated: false,
                        stderr_truncated: false,
                        exit_code: 0,
                    };
                    let outcome = match marker % 5 {
                        0 => failed(FailureCode::NotFound),
                        1 => failed(FailureCode::CommandUnconfirmed),
                        _ => Outcome::Success(Some(ResponseResult::Command(result))),
                    };
                    return self.finish_work(host, id, outcome);
                }
                let first = self.history.commands.insert(marker);
                self.demand(first, Invariant::P9, || format!("command {marker} runs twice"));
                let run = self.hosts[host].run;
                if let Some(process) = self.hosts[host].process.as_mut()
                    && let Some(work) = process.work.get_mut(&id)
                {
                    // It may end after its time: what began goes on.
                    work.script = Script::Command {
                        marker,
                        pause,
                        begun: true,
                    };
                    work.deadline = Millis::MAX;
                }
                self.after(pause, pause, Happening::WorkGoesOn(host, run, id));
            }
        }
    }

    /// The engine answered the call of the present step.
    pub(crate) fn script_goes_on(&mut self, host: usize, id: WorkId, answer: Answer) {
        match self.script(host, id) {
            Some(Script::Create {
                link_generation,
                step,
            }) => {
                self.create_goes_on(host, id, link_generation, step, answer);
            }
            Some(Script::Info) => self.info_answers(host, id, answer),
            Some(Script::Kill { step }) => {
                match self.removes(host, id, step, answer, |step| Script::Kill { step }) {
                    None => {}
                    Some(true) => {
                        let stored = self.advance_receipt(host, id, PhaseEvent::AbsenceConfirmed);
                        let outcome = match stored || self.tombstone_assumed(host) {
                            true => Outcome::Success(None),
                            false => unconfirmed(),
                        };
                        self.finish_work(host, id, outcome);
                    }
                    Some(false) => self.finish_work(host, id, unconfirmed()),
                }
            }
            Some(Script::Sweep { step }) => {
                if self
                    .removes(host, id, step, answer, |step| Script::Sweep { step })
                    .is_some()
                {
                    self.finish_work(host, id, unconfirmed());
                }
            }
            Some(Script::Command { .. }) | None => {}
        }
    }

    fn create_goes_on(&mut self, host: usize, id: WorkId, link: Generation, step: Create, answer: Answer) {
        let generation = self.receipt(host, id).2;
        let create = |step| Script::Create {
            link_generation: link,
            step,
        };
        let (next, act) = match (step, answer) {
            (Create::Look, Answer::Found(found)) if found.is_empty() => (Create::Home, Act::MakeVolume(HOME)),
            (Create::Look, Answer::Found(_)) => {
                return self.finish_work(host, id, failed(FailureCode::Exists));
            }
            (Create::Home, Answer::Done) => (Create::Environment, Act::MakeVolume(ENVIRONMENT)),
            (Create::Environment, Answer::Done) => (
                Create::Container,
                Act::MakeContainer {
                    generation,
                    link_generation: link,
                },
            ),
            (Create::Container, Answer::Done) => (Create::Start, Act::Start),
            (Create::Container, Answer::Conflict) => {
                return self.finish_work(host, id, failed(FailureCode::Exists));
            }
            (Create::Home | Create::Environment | Create::Container, Answer::Refused) => {
                (Create::Undo(Remove::Look), Act::List)
            }
            (Create::Start, Answer::Done) => (Create::LookAgain, Act::List),
            (Create::LookAgain, answer) => {
                if self.has(Defect::NativeBeforeReceipt)
                    && let Some(first) = self.begin_receipt(host, id, PhaseEvent::CreateStarted)
                {
                    self.store_receipt(host, first);
                }
                return self.info_answers(host, id, answer);
            }
            (Create::Undo(step), answer) => {
                let ended = self.removes(host, id, step, answer, |step| create(Create::Undo(step)));
                let Some(gone) = ended else { return };
                let settled = gone && self.advance_receipt(host, id, PhaseEvent::CreateMadeNothing);
                let reference = self.receipt(host, id).0;
                return self.finish_work(
                    host,
                    id,
                    Outcome::Failed {
                        code: FailureCode::Unconfirmed,
                        receipt: settled.then(|| absent(reference, false)),
                    },
                );
            }
            _ => return self.finish_work(host, id, unconfirmed()),
        };
        self.set_script(host, id, create(next), act);
    }

    /// One step of a removal; at its end whether absence is confirmed.
    fn removes(
        &mut self,
        host: usize,
        id: WorkId,
        step: Remove,
        answer: Answer,
        script: impl Fn(Remove) -> Script,
    ) -> Option<bool> {
        if self.has(Defect::KillUnconfirmed) && step != Remove::Look {
            return Some(true);
        }
        let (next, act) = match (step, answer) {
            (Remove::Look, Answer::Found(found)) if found.is_empty() => return Some(true),
            (Remove::Look, Answer::Found(found)) => match found.container {
                Some(_) => (Remove::Container(found), Act::RemoveContainer),
                None => (Remove::Home, Act::RemoveVolume(HOME)),
            },
            (Remove::Container(_), Answer::Done) => (Remove::Home, Act::RemoveVolume(HOME)),
            (Remove::Home, Answer::Done) => (Remove::Environment, Act::RemoveVolume(ENVIRONMENT)),
            (Remove::Environment, Answer::Done) => (Remove::Confirm, Act::List),
            (Remove::Confirm, Answer::Found(found)) => return Some(found.is_empty()),
            _ => return Some(false),
        };
        self.set_script(host, id, script(next), act);
        None
    }

    /// providers.md section 4, `info`: from the receipt and a complete inventory alone.
    fn info_answers(&mut self, host: usize, id: WorkId, answer: Answer) {
        let Answer::Found(found) = answer else {
            return self.finish_work(host, id, unconfirmed());
        };
        let (reference, receipt, _) = self.receipt(host, id);
        let here = &self.hosts[host];
        let boot = ids::boot(here.boot);
        let steady = self.now >= here.engine.steady_since + STEADY && self.now >= here.engine.down_until
            || self.has(Defect::LossBeforeSteady);
        let present = |state: &str, bootstrap_complete, create_settled| Info {
            reference,
            provider_id: format!("container-{}", ids::number(reference.allocation_id.as_uuid())),
            state: state.to_owned(),
            bootstrap_complete,
            create_settled,
            compute_lost: false,
        };
        let phase = receipt.as_ref().map(Receipt::phase);
        let info = match (phase, found.container) {
            (Some(Phase::Tombstone), _) if found.is_empty() => absent(reference, false),
            (Some(Phase::Tombstone), _) => return self.finish_work(host, id, unconfirmed()),
            (_, Some(status @ (Status::Created | Status::Running))) => {
                let complete = status == Status::Running;
                if let Some(receipt) = receipt {
                    let mut next = receipt.clone();
                    if complete
                        && next.phase() == Phase::Creating
                        && let Ok(settled) = next.clone().apply(PhaseEvent::CreateVerified)
                    {
                        next = settled;
                    }
                    next.bootstrap_complete |= complete && next.phase() == Phase::Settled;
                    next.boot_id = Some(boot).into();
                    if next != receipt && !self.store_receipt(host, next) {
                        return self.finish_work(host, id, unconfirmed());
                    }
                }
                let state = if complete { Info::RUNNING } else { "created" };
                present(state, complete, phase == Some(Phase::Settled) || complete)
            }
            (Some(Phase::Settled), ended) if receipt.as_ref().is_some_and(|r| r.bootstrap_complete) => {
                let same_boot = receipt.is_some_and(|r| r.boot_id.0 == Some(boot));
                match ended {
                    None if same_boot || steady => absent(reference, true),
                    Some(_) if !same_boot && steady => absent(reference, true),
                    None => return self.finish_work(host, id, unconfirmed()),
                    Some(_) => present("ended", false, true),
                }
            }
            (phase, ended) => {
                let settled = phase == Some(Phase::Settled);
                match (ended, found.volumes) {
                    (None, 0) if settled => absent(reference, false),
                    (None, 0) => return self.finish_work(host, id, failed(FailureCode::NotFound)),
                    _ => present("leftover", false, settled),
                }
            }
        };
        // A create answers only a sandbox that runs.
        let creates = matches!(self.script(host, id), Some(Script::Create { .. }));
        let outcome = match creates && !info.bootstrap_complete {
            true => unconfirmed(),
            false => Outcome::Success(Some(ResponseResult::Info(info))),
        };
        self.finish_work(host, id, outcome);
    }

    /// Removes what a late engine call left under a tombstone (INV-V31).
    pub(crate) fn sweep(&mut self, host: usize, run: u64) {
        if self.hosts[host].process(run).is_none() {
            return;
        }
        self.after(600_000, 600_000, Happening::SweepDue(host, run));
        if self.has(Defect::NothingSwept) {
            return;
        }
        let here = &self.hosts[host];
        if self.now < here.engine.down_until {
            return;
        }
        let left: Vec<_> = here
            .receipts
            .values()
            .filter(|r| r.phase() == Phase::Tombstone)
            .filter(|r| !here.engine.found(r.reference.allocation_id).is_empty())
            .map(|r| (r.reference, r.deployment_generation))
            .collect();
        for (reference, generation) in left {
            let id = WorkId(self.number());
            if let Some(process) = self.hosts[host].process.as_mut() {
                let work = super::native::Work {
                    reference,
                    ticket: None,
                    generation,
                    deadline: Millis::MAX,
                    asked: Arguments::Info,
                    script: Script::Sweep { step: Remove::Look },
                    answered: true,
                };
                process.work.insert(id, work);
            }
            self.reach("a sweep found something under a tombstone");
            self.enter_lane(host, reference.allocation_id, id);
        }
    }
}

pub(super) fn absent(reference: oac_model::Reference, compute_lost: bool) -> Info {
    Info {
        reference,
        provider_id: String::new(),
        state: Info::ABSENT.into(),
        bootstrap_complete: false,
        create_settled: true,
        compute_lost,
    }
}
