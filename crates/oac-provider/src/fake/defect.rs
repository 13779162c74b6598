//! Mistakes that a backend could have, each caught by a case of the suite.

use crate::NativeWork::{self, Engine, Helper, Service};

macro_rules! defects {
    ($($(#[$doc:meta])* $name:ident on $work:ident caught by $($case:literal),+;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Defect { $($(#[$doc])* $name),* }

        impl Defect {
            /// Each with the kind of backend that has it here and the cases that catch it.
            pub const ALL: &[(Self, NativeWork, &[&str])] = &[$((Self::$name, $work, &[$($case),+])),*];
        }
    };
}

defects! {
    /// Says of itself something else than it is registered with.
    DeclaresOtherwise on Engine caught by "V01";
    /// Looks natively before it refuses what it does not support.
    LooksBeforeRefusing on Engine caught by "V02";
    /// Answers a create without settling its receipt.
    LeavesCreateOpen on Helper caught by "V03";
    /// Adopts what is there instead of refusing a second create.
    AdoptsOnCreate on Helper caught by "V04";
    /// Takes whatever holds the name for its own.
    TrustsNames on Engine caught by "V05", "V12";
    /// Does not look at what the native create made.
    SkipsVerification on Helper caught by "V06";
    /// Gives no receipt with a create that was definitely refused.
    RejectionSettlesNothing on Service caught by "V07";
    /// Writes the receipt of a create after the first effect.
    ReceiptAfterEffect on Helper caught by "V08", "F1";
    /// Writes a tombstone over a posted create that was never seen.
    EmptyLookupSettles on Service caught by "V08";
    /// Calls a sandbox complete when it exists.
    BootstrapIsExistence on Helper caught by "V09";
    /// Never settles what it finds running.
    NeverAdopts on Engine caught by "V10";
    /// Kill on nothing writes nothing.
    NoTombstoneOnNothing on Engine caught by "V11";
    /// Creates again under a tombstone.
    CreatesOverTombstone on Helper caught by "V11";
    /// Removes while it checks ownership.
    RemovesWhileChecking on Engine caught by "V12";
    /// Believes a removal's answer.
    BelievesRemoval on Service caught by "V13";
    /// Writes the tombstone before it removes.
    BuriesFirst on Helper caught by "F2";
    /// Never reports a loss.
    NeverLost on Engine caught by "V14";
    /// Reports an ended compute as lost in the boot it ended in.
    EndedIsLost on Engine caught by "V15";
    /// Takes a failed inventory for an empty one.
    FailedInventoryIsEmpty on Service caught by "V16", "F3";
    /// Settles what it never heard of.
    NotFoundIsAbsent on Engine caught by "V17";
    /// Reports a suspended compute as lost.
    SuspendedIsLost on Helper caught by "V18";
    /// Makes text of a command's output.
    OutputIsText on Helper caught by "V19";
    /// Cuts output without saying so.
    CutsSilently on Service caught by "V20";
    /// Takes a broken command for one that ended.
    BrokenCommandIsExit on Engine caught by "V21", "F4";
    /// Observes under any provider_key.
    ObservesForAnyone on Helper caught by "V22";
    /// Gives CPU time in nanoseconds below zero when it does not know it.
    NegativeCpu on Service caught by "V22";
    /// Starts the next operation beside unfinished work.
    NoLanes on Engine caught by "V23";
    /// Suspends without a capture.
    SuspendsWithoutCapture on Helper caught by "V24";
    /// Reports released resources while the source still runs.
    ReleasesEarly on Helper caught by "V24";
    /// Takes a failed capture for an unknown one.
    FailedCaptureIsUnknown on Helper caught by "V25";
    /// Captures again when it finishes a suspend.
    CapturesAgain on Helper caught by "V26";
    /// Goes on with the suspend when it is asked to reconcile.
    ReconcileSuspends on Helper caught by "V27";
    /// Restores without the policy of create.
    ForgetsPolicy on Helper caught by "V28";
    /// Restores a target again that is there.
    RestoresTwice on Helper caught by "V29";
    /// Adopts a target by its name alone.
    AdoptsAnyTarget on Helper caught by "V29";
    /// Restores first and verifies then.
    VerifiesAfterRestore on Helper caught by "V30";
    /// Deletes by operation alone.
    DeletesByOperation on Helper caught by "V31";
    /// Deleting what is gone is an error.
    DeleteIsNotIdempotent on Helper caught by "V31";
    /// Ends every compute of the reference.
    KillsEveryGeneration on Helper caught by "V32";
    /// Reports the last failed check.
    ReportsLastCheck on Engine caught by "V33";
    /// Puts the credential into the sandbox's environment.
    CredentialInEnvironment on Engine caught by "V34";
    /// Puts the credential into an error's text.
    CredentialInError on Service caught by "V34";
    /// Ignores a restriction it cannot enforce.
    IgnoresAccess on Engine caught by "V35";
    /// Runs every sandbox under the policy `public`.
    EveryPolicyIsPublic on Helper caught by "V35";
    /// Does not ask for the allocation's lock.
    IgnoresLock on Helper caught by "V36";
    /// Does not compare the host.
    IgnoresHost on Helper caught by "V37";
    /// Forgets a suspend whose caller is gone.
    ForgetsLateSuspend on Helper caught by "V38";
    /// Hashes again whenever it is asked.
    HashesAgain on Helper caught by "V38";
    /// Every kill_compute ends in `suspended`.
    KillComputeSuspends on Helper caught by "V39";
    /// A killed target without a receipt leaves none.
    NoReceiptForTarget on Helper caught by "V39";
    /// Without compute all is lost.
    IgnoresCheckpointOnLoss on Helper caught by "V40";
    /// A store that is not there holds no checkpoint.
    MissingStoreIsEmpty on Helper caught by "V40";
    /// Keeps the boot of create for ever.
    KeepsFirstBoot on Engine caught by "V41";
    /// Makes a marker where there is none.
    MakesMarker on Helper caught by "V42";
    /// Uses any store.
    IgnoresMarker on Helper caught by "V42";
    /// Settles a tombstone whatever is left.
    SettlesUnderTombstone on Engine caught by "V43";
    /// Sweeps by the installation's label alone.
    SweepsByInstallation on Engine caught by "V43";
    /// Writes `killing` before the id it kills.
    KillsBeforeRecording on Service caught by "V44";
    /// Keeps a checkpoint that failed verification.
    KeepsBadCheckpoint on Helper caught by "V45";
    /// Removes a checkpoint that it could not read.
    RemovesUnreadable on Helper caught by "V45";
    /// Ends the source before its capture is published.
    StopsFirst on Helper caught by "F5";
    /// Does not check what a restore made.
    SkipsTargetCheck on Helper caught by "V46";
    /// Accepts any target over an unfinished restore.
    AcceptsAnyTarget on Helper caught by "V47";
    /// Refuses another target also after a failed verification.
    RefusesAfterFailure on Helper caught by "V47";
    /// compute settles a restore.
    ComputeSettlesRestore on Helper caught by "V48";
    /// A reboot alone proves a loss.
    LostAtOnceAfterReboot on Engine caught by "V49";
    /// A repeated resume restores without looking.
    ResumesBlindly on Helper caught by "F6";
}
