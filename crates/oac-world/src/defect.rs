//! Mistakes that the shells around the machines could make. Each is planted to prove that a check bites.

use crate::invariant::Invariant;

macro_rules! defects {
    ($($(#[$doc:meta])* $name:ident => [$($found:ident),+],)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Defect { $($(#[$doc])* $name),* }

        impl Defect {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The invariants that may be the first to find it.
            pub fn found_by(self) -> &'static [Invariant] {
                match self { $(Self::$name => &[$(Invariant::$found),+]),* }
            }
        }
    };
}

defects! {
    /// The hub opens a connection whether or not the identity is free.
    IgnoreReservation => [P3],
    /// The hub welcomes whoever upgraded.
    WelcomeBeforeHello => [P4],
    /// The hub answers the presence recording before it committed.
    WelcomeBeforeCommit => [P5],
    /// A presence removal clears whatever connection is recorded.
    UnfencedRemoval => [P5],
    /// The node says that the epoch is stored, and stores nothing.
    EpochNotPersisted => [P6],
    /// The node takes a request that skips a sequence.
    AcceptSkippedSequence => [P7],
    /// The node sends each response twice.
    AnswerTwice => [P8],
    /// The node sends answers on whatever connection there is.
    AnswerCrosses => [P8],
    /// Core sends a create again when its answer does not come.
    ReplayCreate => [C17],
    /// Core sends a command again when its answer does not come.
    ReplayCommand => [P9],
    /// Core releases when the node finds nothing.
    ReleaseOnNotFound => [P10],
    /// Core takes silence for absence.
    ReleaseOnTimeout => [P10],
    /// The node reports generations ready before they were probed.
    ReadyWithoutProbe => [P11],
    /// Core sends calls beyond the pending bound.
    UnboundedCalls => [P12],
    /// Core kills while a create is open.
    KillBesideCreate => [P13],
    /// The node takes any retention_ack for its own.
    AckUnchecked => [P14],
    /// Core forgets the generations that a report omits.
    OmissionForgets => [P15],
    /// Core pins whatever a node reports ready.
    PinAnyReady => [P17, Comes],
    /// Core believes an info beside an error.
    TrustFailedInfo => [P19],
    /// The node believes any 401.
    ExitOnAny401 => [P22],
    /// The node goes on after a confirmed 401.
    StayOn401 => [Comes],
    /// One answer confirms a loss.
    LossOnOneAnswer => [C22],
    /// Two answers confirm a loss, whatever came between them.
    LossAcrossConnections => [P23],
    /// Core releases what is lost before its create was settled: `creating_lost_releases` of the explicit-state model.
    LossReleases => [C18],
    /// The node tells a loss before the engine's restarts after a boot are over: `engine_late` of that model.
    LossBeforeSteady => [P10],
    /// The node leaves what a late engine call made under a tombstone: `tomb_sweep` of that model.
    NothingSwept => [Comes],
    /// Core takes a kill that was sent for one that is confirmed.
    KillAssumed => [C18],
    /// Core records a heartbeat without looking at the credential again.
    HeartbeatWithoutCredential => [P26],
    /// Core upgrades removed nodes.
    DialWithoutCredential => [P26],
    /// A host that is enrolled again gets the identity that was removed.
    RemovalUndone => [P26],
    /// The node drops the connection after an invalid request.
    InvalidCloses => [P28],
    /// A retention_ack takes a place among the requests.
    RetentionTakesSequence => [P29],
    /// Core cleans an allocation up on some other node.
    CleanElsewhere => [P32],
    /// The node runs an operation on whatever generation serves.
    RunOnServing => [N20],
    /// The node frees a lane when the answer is given.
    LaneFreedByAnswer => [N24],
    /// The node's lane starts work whose time is over.
    IgnoreBudget => [N25],
    /// The node forgets the work whose answer was given.
    ForgetLingering => [N26],
    /// The node starts what waited although the connection is gone.
    RunAfterDisconnect => [N27],
    /// The provider makes things before it writes the receipt.
    NativeBeforeReceipt => [V6],
    /// The provider makes things although the receipt could not be written.
    ReceiptAssumed => [V6],
    /// The provider confirms a kill whose receipt could not be written.
    TombstoneAssumed => [P10],
    /// A Core that takes over takes what was sent for what was not.
    SentTakenForUnsent => [C17, C18],
    /// Core measures its lease by the wall clock.
    LeaseByWallClock => [C27],
    /// The node has fewer slots than it was told.
    SlotsWithheld => [N24],
    /// The database takes transactions of a former owner.
    StaleCommit => [C1],
    /// A takeover keeps the epoch.
    EpochReused => [C2],
    /// Core forgets placements when it answers a retention request.
    RetentionForgetsPlacements => [C8],
    /// Core places without looking at the locked row.
    PlaceWithoutRecheck => [C10],
    /// Placements of one transaction do not count one another.
    SharedUncounted => [C10],
    /// Core places for a Session that has a sandbox.
    PlaceTwice => [C12],
    /// Core gives up for want of a link that was stored meanwhile.
    GiveUpOvertaken => [C37],
    /// Core places on whatever node has room.
    CordonIgnored => [C24],
    /// Core places whatever a Session requires.
    LabelsIgnored => [Labels],
    /// Core discards whatever it is asked to.
    DiscardsAnything => [Discard],
    /// A removal does not look at what its node holds.
    RetireInUse => [C29],
    /// A reset is completed while nodes clean up.
    ResetOverCleanup => [C23],
    /// A completed reset keeps the epoch.
    ResetKeepsEpoch => [C2],
    /// A patient reset spares nothing.
    ResetImpatient => [Asked],
    /// A drain ends what runs a minute before its deadline.
    DrainTooEarly => [Asked],
    /// What is canceled goes on.
    CancelForgotten => [Asked],
    /// Core returns a restore to suspended when its answer is lost.
    ReturnsWithoutKill => [C39],
    /// Core marks a checkpoint used when its target runs.
    ConsumesEarly => [C35],
    /// The link of a sandbox whose suspend is given up stays open.
    LinkStaysOpen => [Comes],
    /// Core admits a target whose kill is stored.
    AdmitsTheKilled => [C36],
    /// Core's kill at the present node stands for the computes at all others.
    ForgetsComputes => [C39],
    /// Core counts every return from a restore as a failure.
    CountsEveryReturn => [C41],
    /// Core cleans up while a suspend or resume is open.
    CleansUpAtOnce => [C28],
    /// Core believes `compute` where a resume is to be reconciled.
    ComputeVerifies => [C34],
    /// A cleanup takes the active slot of a suspended sandbox.
    CleanupRegains => [C40],
    /// Core ends retention a minute early.
    RetentionEarly => [C33],
    /// Core restores wherever a checkpoint can be read.
    RestoreOverLimit => [C10],
    /// Core and the runtime suspend whoever was idle once.
    SuspendsBusy => [S15],
    /// The runtime starts a Turn as often as it is sent.
    TurnAgain => [S2],
    /// Core ends a Turn whose output it has not stored.
    EndsUnread => [S4],
    /// Core sends Turns to targets that are not linked yet.
    DispatchesToTarget => [S21],
    /// A node works beside a helper of its former self.
    LockIgnored => [P23, Comes],
    /// A suspend leaves its source running.
    SourceRunsOn => [C20],
    /// A kill of any compute takes the receipt from the one that runs.
    KillSuspendsAny => [Comes],
    /// Core sends before the operation is marked as sent.
    SendBeforeMark => [C16],
    /// Core counts the time that a node is away.
    GiveUpWhileAway => [C19],
    /// Core sends whatever is left of its lease.
    NoLeaseGate => [C27],
    /// The node answers a kill before it looked again.
    KillUnconfirmed => [Comes],
    /// The hub forgets to free an identity.
    ReservationLeaks => [Comes],
    /// Core loses a caller when a connection ends.
    CallerForgotten => [Comes],
    /// The hub writes broken frames.
    BrokenFrame => [Honest],
}
