//! create, info, kill, commands, telemetry and the sweep.

use std::{sync::Arc, time::Instant};

use oac_model::{NetworkAccess, Reference, Time};
use oac_wire::shapes::{Bootstrap, Command, CommandResult, Info, Sample};

use super::{
    Defect,
    decide::{Facts, Inventory, Verdict, inventory},
    machine::{Native, NativeError, Power, State, Vm},
    provider::{Entered, Node, unconfirmed},
};
use crate::{
    Cause, CreateFailure, Failure, Lanes, NativeWork, Phase, PhaseEvent, Receipt, SweepReport, suite::Step,
};

const STREAM_LIMIT_BYTES: usize = 1024 * 1024;

pub(super) fn policy_of(access: NetworkAccess, domains: &[String]) -> String {
    format!("{access:?} {}", domains.join(" "))
}

fn settled_absent(reference: Reference) -> Info {
    Info {
        reference,
        provider_id: String::new(),
        state: Info::ABSENT.into(),
        bootstrap_complete: false,
        create_settled: true,
        compute_lost: false,
    }
}

/// How the native part of create ended.
enum Made {
    Vm(Box<Vm>),
    /// Refused, and nothing of it is left.
    Nothing,
    WrongSize(String),
}

impl Node {
    pub(super) async fn create(self: Arc<Self>, b: Bootstrap) -> Result<Info, CreateFailure> {
        if !self.enforces(b.network_access) {
            return Err(Failure::Invalid(Cause::new("this network access is not enforced")).into());
        }
        let r = b.reference;
        let exists = || Failure::Exists(Cause::new("there is a receipt"));
        let buried =
            |receipt: &Option<Receipt>| receipt.as_ref().is_some_and(|r| r.phase() == Phase::Tombstone);
        let creates_over = self.has(Defect::CreatesOverTombstone);
        if buried(&self.receipt(&r)?) && !creates_over {
            return Err(exists().into());
        }
        let mut entered = self.enter_here(r)?;
        let open = self.has(Defect::AdoptsOnCreate) && !buried(&entered.receipt);
        if entered.receipt.is_some() && !open && !creates_over {
            return Err(exists().into());
        }
        let late_receipt = self.has(Defect::ReceiptAfterEffect);
        if entered.receipt.is_none() && !late_receipt {
            self.first(&mut entered, PhaseEvent::CreateStarted)?;
        }
        let present = self.take(&r).await?;
        if present.foreign {
            return Err(Failure::Ownership(Cause::new("the name is held by another")).into());
        }
        if !present.is_empty() && open {
            return Ok(self.look(&mut entered).await?);
        }
        if !present.is_empty() {
            return Err(exists().into());
        }
        let node = self.clone();
        let credential = b.link.credential.expose().to_owned();
        let made = self
            .native(&r, |native| async move { node.make(native, &b).await })
            .await?;
        let made = made.map_err(|error| match self.has(Defect::CredentialInError) {
            true => unconfirmed(format!("{error} {credential}")),
            false => error.into(),
        })?;
        if late_receipt {
            self.first(&mut entered, PhaseEvent::CreateStarted)?;
        }
        match made {
            Made::Nothing => {
                self.advance(&mut entered, PhaseEvent::CreateMadeNothing)?;
                let receipt = (!self.has(Defect::RejectionSettlesNothing)).then(|| settled_absent(r));
                let failure = Failure::Invalid(Cause::new("the machine refuses this sandbox"));
                Err(CreateFailure { failure, receipt })
            }
            Made::WrongSize(id) => {
                self.advance(&mut entered, PhaseEvent::CreateVerified)?;
                let receipt = Info {
                    provider_id: id,
                    state: "created".into(),
                    ..settled_absent(r)
                };
                Err(CreateFailure {
                    failure: Failure::Invalid(Cause::new("the machine made another size")),
                    receipt: Some(receipt),
                })
            }
            Made::Vm(vm) => {
                if self.has(Defect::LeavesCreateOpen) {
                    return Ok(Info {
                        provider_id: vm.id,
                        state: Info::RUNNING.into(),
                        bootstrap_complete: true,
                        ..settled_absent(r)
                    });
                }
                Ok(self.look(&mut entered).await?)
            }
        }
    }

    /// The native part of create.
    async fn make(self: Arc<Self>, native: Native, b: &Bootstrap) -> Result<Made, NativeError> {
        let r = b.reference;
        let (owner, name, disk) = (
            self.owner(r),
            self.vm_name(&r, 0),
            format!("{}disk", self.names(&r)),
        );
        if self.work != NativeWork::Service {
            let made = native
                .call(Step::FirstEffect, move |state, _| {
                    state.disks.insert(disk, Some(owner));
                })
                .await;
            if let Err(error) = made {
                return self.made_nothing(native, r, error).await;
            }
        }
        let policy = match self.has(Defect::EveryPolicyIsPublic) {
            true => policy_of(NetworkAccess::Public, &[]),
            false => policy_of(b.network_access, &b.allowed_domains),
        };
        let leak = self.has(Defect::CredentialInEnvironment);
        let environment = leak.then(|| format!("LINK={}", b.link.credential.expose()));
        let new = name.clone();
        let made = native
            .call(Step::Create, move |state, spoiled| {
                let vm = Vm {
                    id: state.new_id(),
                    owner: Some(owner),
                    generation: 0,
                    parent: None,
                    power: Power::Created,
                    bootstrapped: false,
                    right_size: !spoiled,
                    policy,
                    environment: environment.into_iter().collect(),
                };
                state.vms.insert(new, vm.clone());
                vm
            })
            .await;
        let vm = match made {
            Ok(vm) => vm,
            Err(error) => return self.made_nothing(native, r, error).await,
        };
        if self.work == NativeWork::Service {
            self.durable.seen.lock().insert(r, vm.id.clone());
        }
        if !vm.right_size && !self.has(Defect::SkipsVerification) {
            return Ok(Made::WrongSize(vm.id));
        }
        let with = |change: fn(&mut Vm)| {
            let name = name.clone();
            move |state: &mut State, _: bool| {
                if let Some(vm) = state.vms.get_mut(&name) {
                    change(vm);
                }
            }
        };
        native
            .call(Step::Bootstrap, with(|vm| vm.bootstrapped = true))
            .await?;
        native
            .call(Step::Start, with(|vm| vm.power = Power::Running))
            .await?;
        Ok(Made::Vm(Box::new(vm)))
    }

    /// After a definite refusal: what earlier steps made is removed.
    async fn made_nothing(
        &self,
        native: Native,
        r: Reference,
        error: NativeError,
    ) -> Result<Made, NativeError> {
        if error != NativeError::Rejected {
            return Err(error);
        }
        match self.remove_all(native, r).await {
            Ok(()) => Ok(Made::Nothing),
            Err(_) => Err(NativeError::Lost),
        }
    }

    /// A complete inventory, as one native call.
    pub(super) async fn take(&self, r: &Reference) -> Result<Inventory, Failure> {
        let job = self.take_with(*r);
        self.native(r, job).await?
    }

    #[allow(clippy::type_complexity, reason = "a boxed future is what it is")]
    fn take_with(
        &self,
        r: Reference,
    ) -> impl FnOnce(Native) -> std::pin::Pin<Box<dyn Future<Output = Result<Inventory, Failure>> + Send>> + use<>
    {
        let (names, owner) = (self.names(&r), self.owner(r));
        let trusts = self.has(Defect::TrustsNames);
        let believes_failure = self.has(Defect::FailedInventoryIsEmpty);
        move |native| {
            Box::pin(async move {
                let call = native.call(Step::Inventory, move |state, _| match state.fail_inventory {
                    true => Err(NativeError::Lost),
                    false => Ok(inventory(state, &names, owner)),
                });
                let mut found = match call.await.and_then(|found| found) {
                    Err(_) if believes_failure => Inventory::default(),
                    other => other?,
                };
                found.foreign &= !trusts;
                Ok(found)
            })
        }
    }

    pub(super) async fn info(self: Arc<Self>, r: Reference) -> Result<Info, Failure> {
        let mut entered = self.enter(r)?;
        self.look(&mut entered).await
    }

    pub(super) async fn look(&self, entered: &mut Entered) -> Result<Info, Failure> {
        let found = self.take(&entered.reference).await?;
        if found.foreign {
            return Err(Failure::Ownership(Cause::new("the name is held by another")));
        }
        if let (NativeWork::Service, Some((_, vm))) = (self.work, found.vms.first()) {
            self.durable
                .seen
                .lock()
                .entry(entered.reference)
                .or_insert_with(|| vm.id.clone());
        }
        let restorable = self.restorable(entered);
        let steady = self.machine.state.lock().steady;
        let facts = Facts {
            reference: entered.reference,
            work: self.work,
            defect: self.defect,
            receipt: entered.receipt.as_ref(),
            inventory: &found,
            same_host: entered.same_host,
            boot: entered.boot,
            steady,
            restorable,
        };
        let (receipt, verdict) = facts.decide();
        if let Some((_, vm)) = found.live()
            && !vm.right_size
            && entered
                .receipt
                .as_ref()
                .is_some_and(|r| r.phase() == Phase::Settled)
        {
            return Err(Failure::Invalid(Cause::new("the compute has another size")));
        }
        if let Some(receipt) = receipt {
            self.store(&receipt)?;
            entered.receipt = Some(receipt);
        }
        match verdict {
            Verdict::Known(info) => Ok(info),
            Verdict::NotFound => Err(Failure::NotFound),
            Verdict::Unconfirmed(why) => Err(unconfirmed(why)),
        }
    }

    /// Whether the marked store holds a checkpoint that the receipt names.
    fn restorable(&self, entered: &Entered) -> Option<bool> {
        let receipt = entered.receipt.as_ref()?;
        if !self.has_store() {
            return self.has(Defect::MissingStoreIsEmpty).then_some(false);
        }
        let kept = receipt.retained.0.as_ref().map(|k| k.operation_id);
        let state = self.machine.state.lock();
        Some(state.checkpoints.iter().any(|c| {
            let operation = Some(c.retained.operation_id);
            c.reference == receipt.reference && (operation == receipt.operation_id.0 || operation == kept)
        }))
    }

    pub(super) async fn kill(self: Arc<Self>, r: Reference) -> Result<(), Failure> {
        let mut entered = self.enter_here(r)?;
        let nothing = self.has(Defect::NoTombstoneOnNothing) && entered.receipt.is_none();
        if self.work == NativeWork::Service {
            self.see(&mut entered).await?;
        }
        if !nothing {
            self.advance(&mut entered, PhaseEvent::KillStarted)?;
        }
        if self.has(Defect::BuriesFirst) {
            self.advance(&mut entered, PhaseEvent::AbsenceConfirmed)?;
        }
        let node = self.clone();
        self.native(&r, |native| async move { node.remove_all(native, r).await })
            .await??;
        if !nothing {
            self.advance(&mut entered, PhaseEvent::AbsenceConfirmed)?;
        }
        Ok(())
    }

    /// A create once posted may take effect at any time: only a sandbox that was seen can be killed (INV-V23).
    async fn see(&self, entered: &mut Entered) -> Result<(), Failure> {
        let r = entered.reference;
        let creating = entered
            .receipt
            .as_ref()
            .is_some_and(|r| r.phase() == Phase::Creating);
        if !creating || self.durable.seen.lock().contains_key(&r) {
            return Ok(());
        }
        let found = self.take(&r).await?;
        let Some((_, vm)) = found.vms.first() else {
            return match self.has(Defect::EmptyLookupSettles) {
                true => Ok(()),
                false => Err(unconfirmed("the posted sandbox was never seen")),
            };
        };
        if self.has(Defect::KillsBeforeRecording) {
            self.advance(entered, PhaseEvent::KillStarted)?;
        }
        self.durable.seen.lock().insert(r, vm.id.clone());
        if let Some(receipt) = &entered.receipt {
            self.store(receipt)?;
        }
        Ok(())
    }

    /// Ownership first, then every removal, then absence is confirmed (INV-V8, INV-V9).
    async fn remove_all(&self, native: Native, r: Reference) -> Result<(), Failure> {
        let found = self.take_with(r)(native.clone()).await?;
        if found.foreign && !self.has(Defect::RemovesWhileChecking) {
            return Err(Failure::Ownership(Cause::new(
                "something under its name is another's",
            )));
        }
        for (name, vm) in found.vms {
            if vm.owner.is_none() && !self.has(Defect::TrustsNames) {
                return Err(Failure::Ownership(Cause::new("a compute is another's")));
            }
            let remove = move |state: &mut State, _| {
                if !state.keep_on_removal {
                    state.vms.remove(&name);
                }
            };
            native.call(Step::Remove, remove).await?;
        }
        for disk in found.disks {
            let remove = move |state: &mut State, _| {
                if !state.keep_on_removal {
                    state.disks.remove(&disk);
                }
            };
            native.call(Step::Remove, remove).await?;
        }
        if self.has(Defect::BelievesRemoval) {
            return Ok(());
        }
        match self.take_with(r)(native).await?.is_empty() {
            true => Ok(()),
            false => Err(unconfirmed("something is still there")),
        }
    }

    pub(super) async fn command(
        self: Arc<Self>,
        r: Reference,
        generation: i64,
        c: Command,
        by: Instant,
    ) -> Result<CommandResult, Failure> {
        let entered = self.enter(r)?;
        let found = self.take(&r).await?;
        if found.foreign {
            return Err(Failure::Ownership(Cause::new("the name is held by another")));
        }
        let Some((_, vm)) = found.vms.into_iter().find(|(_, vm)| vm.generation == generation) else {
            return Err(Failure::NotFound);
        };
        if vm.power != Power::Running {
            return Err(Failure::RuntimeNotRunning);
        }
        let run = async move |native: Native| {
            native.call(Step::Attach, |_, _| ()).await?;
            if c.args.get(1).map(String::as_str) == Some("wait") {
                // The one native work that ends with its deadline: a hanging command must not keep a sandbox from its kill.
                tokio::time::sleep_until(by.into()).await;
                return Err(NativeError::Lost);
            }
            Ok(output(&c))
        };
        let result = self.native(&r, run).await?;
        drop(entered);
        let mut result = match result {
            Err(NativeError::Lost) if self.has(Defect::BrokenCommandIsExit) => CommandResult {
                stdout: Vec::new().into(),
                stderr: Vec::new().into(),
                stdout_truncated: false,
                stderr_truncated: false,
                exit_code: 1,
            },
            other => other?,
        };
        if self.has(Defect::OutputIsText) {
            result.stderr = String::from_utf8_lossy(&result.stderr.0)
                .into_owned()
                .into_bytes()
                .into();
        }
        if self.has(Defect::CutsSilently) {
            (result.stdout_truncated, result.stderr_truncated) = (false, false);
        }
        Ok(result)
    }

    pub(super) async fn observe(self: Arc<Self>, r: Reference) -> Result<Sample, Failure> {
        let entered = self.enter(r)?;
        let found = self.take(&r).await?;
        drop(entered);
        let running = found.vms.iter().any(|(_, vm)| vm.power == Power::Running);
        if !running {
            return Err(Failure::RuntimeNotRunning);
        }
        let negative = self.has(Defect::NegativeCpu);
        let read = async move |native: Native| native.call(Step::Observe, |_, _| ()).await;
        self.native(&r, read).await??;
        let at = |millis| Time::from_millis(millis).ok_or_else(|| unconfirmed("no time"));
        Ok(Sample {
            observed_at: at(1_700_000_001_000)?,
            started_at: Some(at(1_700_000_000_000)?).into(),
            cpu_usage_seconds_total: Some(if negative { -1.0 } else { 0.5 }).into(),
            cpu_capacity_cores: Some(1.0).into(),
            cpu_utilization_ratio: None,
            memory_usage_bytes: Some(1).into(),
            memory_limit_bytes: Some(2).into(),
            disk_usage_bytes: None,
            disk_limit_bytes: None,
        })
    }

    /// Removes what late calls left under tombstones (INV-V31).
    pub(super) async fn sweep(self: &Arc<Self>, lanes: &Lanes) -> Result<SweepReport, Failure> {
        let mut report = SweepReport::default();
        if self.work != NativeWork::Engine || host_differs(self) {
            return Ok(report);
        }
        let everything = self.has(Defect::SweepsByInstallation);
        let owners: Vec<_> = {
            let state = self.machine.state.lock();
            let vms = state.vms.values().map(|vm| vm.owner);
            vms.chain(state.disks.values().copied()).flatten().collect()
        };
        for owner in owners {
            let r = owner.reference;
            if owner.installation != self.installation {
                continue;
            }
            if everything {
                let mut state = self.machine.state.lock();
                state.vms.retain(|_, vm| vm.owner != Some(owner));
                continue;
            }
            // A receipt of another reference is none of this one.
            if !matches!(self.receipt(&r), Ok(Some(receipt)) if receipt.phase() == Phase::Tombstone) {
                continue;
            }
            let node = self.clone();
            let swept = lanes.run(r, crate::suite::later(), async move {
                let _entered = node.enter_here(r)?;
                if node.take(&r).await?.is_empty() {
                    return Ok(false);
                }
                let own = node.clone();
                node.native(&r, |native| async move { own.remove_all(native, r).await })
                    .await??;
                Ok::<_, Failure>(true)
            });
            match swept.await {
                Ok(Ok(true)) => report.removed += 1,
                Ok(Ok(false)) => {}
                _ => report.left += 1,
            }
        }
        Ok(report)
    }
}

fn host_differs(node: &Node) -> bool {
    super::provider::host_of(node.machine.state.lock().machine) != node.durable.recorded_host
}

/// What the program inside the sandbox does.
fn output(c: &Command) -> CommandResult {
    let argument = |n: usize| c.args.get(n).map(String::as_str).unwrap_or_default();
    let (stdout, stderr, exit_code) = match argument(1) {
        "echo-exit" => {
            let stdin = c.stdin.as_ref().map(|b| b.0.clone()).unwrap_or_default();
            let stderr = [b"\xff\x00\xfe", c.directory.as_bytes()].concat();
            (stdin, stderr, argument(2).parse().unwrap_or(1))
        }
        "flood" => {
            let flood = vec![b'x'; argument(2).parse().unwrap_or(0)];
            (flood.clone(), flood, 7)
        }
        _ => (Vec::new(), Vec::new(), 127),
    };
    let cut = |mut bytes: Vec<u8>| {
        let truncated = bytes.len() > STREAM_LIMIT_BYTES;
        bytes.truncate(STREAM_LIMIT_BYTES);
        (bytes, truncated)
    };
    let ((stdout, stdout_truncated), (stderr, stderr_truncated)) = (cut(stdout), cut(stderr));
    CommandResult {
        stdout: stdout.into(),
        stderr: stderr.into(),
        stdout_truncated,
        stderr_truncated,
        exit_code,
    }
}
