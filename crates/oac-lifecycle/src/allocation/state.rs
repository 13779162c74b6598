//! What is stored of an allocation, and the one function that changes it.

use oac_model::{AllocationState, ComputePhase};

use super::Sighting;

/// How far a mutation came that was not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// Stored; no frame has left.
    Intent,
    /// A frame may have left; an answer may come.
    Sent,
    /// A frame may have left and no answer will count any more; only observation helps.
    Unconfirmed,
}

/// What is known of the create once cleanup has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateProof {
    /// A frame may have left and nothing proves its end. Never `Intent`: what was not sent is not cleaned up.
    Unproven(Mutation),
    /// A settled receipt, or the resource seen running with bootstrap complete.
    Settled,
}

/// How far the cleanup's `kill` came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kill {
    NotYet,
    Open(Mutation),
    /// The node confirmed that nothing is left; `info` must still say so.
    Confirmed,
}

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// Why an allocation was given up.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Cause { $($(#[$doc])* $name),* }

        impl Cause {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            pub fn from_text(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$name),)* _ => None }
            }
        }
    };
}

causes! {
    /// The Session was archived.
    Archive = "archive",
    Reset = "reset",
    /// An operator accepted the loss.
    Discard = "discard",
    /// A drain reached its deadline.
    Drain = "drain",
    /// Nothing could be sent for a reservation in time.
    Unsent = "unsent",
    /// The create settled without a running sandbox.
    CreateFailed = "create_failed",
    /// The create stayed unresolved, and nothing of it ever linked.
    CreateUnresolved = "create_unresolved",
    /// The sandbox ran, but its runtime never linked.
    NeverLinked = "never_linked",
    /// Two answers confirmed that the compute is gone.
    ComputeLost = "compute_lost",
    /// The time for which a suspended sandbox is kept is over.
    RetentionEnd = "retention_end",
}

/// What the Session's demand does once an allocation given up for a cause is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Afterwards {
    /// Nothing: there is no demand any more.
    End,
    /// It is placed again at once, uncounted: nothing was tried.
    PlaceAgain,
    /// It is placed again, counted as a failed attempt; after [`crate::limits::CREATE_ATTEMPTS`] the Session fails.
    CountAttempt,
    /// It is placed again when a Turn waits; a Session without one stays without a sandbox.
    OnDemand,
}

impl Cause {
    pub fn afterwards(self) -> Afterwards {
        match self {
            Self::Archive | Self::Reset => Afterwards::End,
            Self::Unsent => Afterwards::PlaceAgain,
            Self::CreateFailed | Self::CreateUnresolved | Self::NeverLinked => Afterwards::CountAttempt,
            Self::Discard | Self::Drain | Self::ComputeLost | Self::RetentionEnd => Afterwards::OnDemand,
        }
    }

    /// Whether the runtime's first link, stored after the plan was made and before its give-up, takes the reason away: what
    /// ever linked keeps its files (INV-C37). Asked under the lock that the link is stored under.
    pub fn is_overtaken_by_a_link(self) -> bool {
        match self {
            Self::CreateUnresolved | Self::NeverLinked => true,
            Self::Archive
            | Self::Reset
            | Self::Discard
            | Self::Drain
            | Self::Unsent
            | Self::CreateFailed
            | Self::ComputeLost
            | Self::RetentionEnd => false,
        }
    }
}

/// The stored state of an allocation whose provider keeps no checkpoints. One whose provider does is in its hands until
/// it runs, and again for the end of its cleanup; what lies between is [`crate::suspension::Held`].
///
/// | state | event | next |
/// |---|---|---|
/// | Reserved | CreateIntended | Creating(Intent) |
/// | Reserved, Creating(Intent) | GivenUp | Released: nothing was ever sent |
/// | Creating(Intent), Creating(Sent) | NotSent | Reserved: the hub vouches that no frame left |
/// | Creating(Intent) | MarkedSent | Creating(Sent) |
/// | Creating(Sent) | AnswerLost | Creating(Unconfirmed) |
/// | Creating(Sent) | CreateAnswered | Running when it runs; CleanupPending for any other settled receipt; else Creating(Unconfirmed) |
/// | Creating(Unconfirmed) | Observed | the same, or unchanged |
/// | Creating(Sent, Unconfirmed), Running | GivenUp | CleanupPending |
/// | Running | LossConfirmed | CleanupPending(compute_lost) |
/// | Running | Observed | unchanged: one answer takes nothing away |
/// | CleanupPending, create Sent | CreateAnswered, AnswerLost, NotSent | create Settled, Unconfirmed; NotSent: Released |
/// | CleanupPending, no mutation in Intent or Sent | KillIntended | kill Intent |
/// | CleanupPending, kill Intent, Sent | MarkedSent, NotSent, AnswerLost | kill Sent, NotYet, Unconfirmed |
/// | CleanupPending, kill Sent | KillAnswered | kill Confirmed |
/// | CleanupPending | Observed | create Settled by any settling answer; Released by a settled absence after a confirmed kill |
/// | CleanupPending, Released | GivenUp | unchanged: the first cause stays |
///
/// Every other pair is refused and changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// A placement was taken up; nothing was ever sent.
    Reserved,
    Creating(Mutation),
    /// `phase` is `disabled` for providers without checkpoints, and there alone.
    Running {
        phase: ComputePhase,
    },
    /// The link credential is revoked; the slots held on entry stay held.
    CleanupPending {
        cause: Cause,
        create: CreateProof,
        kill: Kill,
    },
    Released,
}

/// What may happen to an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    CreateIntended,
    KillIntended,
    /// The open mutation was marked `sent`, with connection and epoch, before its frame leaves.
    MarkedSent,
    /// The open mutation's frame never left; known of an `intent`, and of a `sent` one when the hub says so.
    NotSent,
    /// The open mutation was sent and has no usable answer: lost, refused without receipt, or of an earlier owner.
    AnswerLost,
    /// The create was answered, or refused with a settled receipt.
    CreateAnswered(Sighting),
    /// The kill was answered with success.
    KillAnswered,
    /// `info` was answered.
    Observed(Sighting),
    /// Two qualifying answers, preconditions rechecked.
    LossConfirmed,
    GivenUp(Cause),
}

impl Event {
    /// The event as it is taken of an allocation whose runtime has linked: what is there, its create settled, did run and
    /// has ended since. Its files are kept like those of any other that ended.
    pub fn of_linked(self) -> Self {
        match self {
            Self::CreateAnswered(Sighting::SettledPresent) => Self::CreateAnswered(Sighting::Running),
            Self::Observed(Sighting::SettledPresent) => Self::Observed(Sighting::Running),
            event => event,
        }
    }
}

/// An event that this state does not allow; nothing changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an allocation in {state:?} does not allow {event:?}")]
pub struct Refused {
    pub state: State,
    pub event: Event,
}

impl State {
    /// The only function that changes a state.
    pub fn apply(self, event: Event) -> Result<State, Refused> {
        use Mutation::{Intent, Sent, Unconfirmed};
        let refused = Err(Refused { state: self, event });
        Ok(match (self, event) {
            (Self::Reserved, Event::CreateIntended) => Self::Creating(Intent),
            (Self::Creating(Intent), Event::MarkedSent) => Self::Creating(Sent),
            (Self::Creating(Intent | Sent), Event::NotSent) => Self::Reserved,
            (Self::Creating(Sent), Event::AnswerLost) => Self::Creating(Unconfirmed),
            (Self::Creating(Sent), Event::CreateAnswered(sighting))
            | (Self::Creating(Unconfirmed), Event::Observed(sighting)) => Self::after_create(sighting),

            (Self::Running { .. }, Event::LossConfirmed) => {
                Self::cleanup(Cause::ComputeLost, CreateProof::Settled)
            }
            (Self::Running { .. }, Event::Observed(_)) => self,

            (Self::Reserved | Self::Creating(Intent), Event::GivenUp(_)) => Self::Released,
            (Self::Creating(open), Event::GivenUp(cause)) => {
                Self::cleanup(cause, CreateProof::Unproven(open))
            }
            (Self::Running { .. }, Event::GivenUp(cause)) => Self::cleanup(cause, CreateProof::Settled),
            (Self::CleanupPending { .. } | Self::Released, Event::GivenUp(_)) => self,

            (Self::CleanupPending { cause, create, kill }, event) => {
                return Self::in_cleanup(cause, create, kill, event).map_or(refused, Ok);
            }
            _ => return refused,
        })
    }

    fn after_create(sighting: Sighting) -> Self {
        match sighting {
            Sighting::Running => Self::Running {
                phase: ComputePhase::Disabled,
            },
            settled if settled.settles_create() => Self::cleanup(Cause::CreateFailed, CreateProof::Settled),
            _ => Self::Creating(Mutation::Unconfirmed),
        }
    }

    fn cleanup(cause: Cause, create: CreateProof) -> Self {
        Self::CleanupPending {
            cause,
            create,
            kill: Kill::NotYet,
        }
    }

    fn in_cleanup(cause: Cause, create: CreateProof, kill: Kill, event: Event) -> Option<Self> {
        use Mutation::{Intent, Sent, Unconfirmed};
        let create_open = create == CreateProof::Unproven(Sent);
        let (create, kill) = match (event, kill) {
            (Event::NotSent, _) if create_open => return Some(Self::Released),
            (Event::AnswerLost, _) if create_open => (CreateProof::Unproven(Unconfirmed), kill),
            (Event::CreateAnswered(sighting), _) if create_open => (Self::proof(sighting), kill),
            (Event::KillIntended, Kill::NotYet | Kill::Open(Unconfirmed) | Kill::Confirmed)
                if !create_open =>
            {
                (create, Kill::Open(Intent))
            }
            (Event::MarkedSent, Kill::Open(Intent)) => (create, Kill::Open(Sent)),
            (Event::NotSent, Kill::Open(Intent | Sent)) => (create, Kill::NotYet),
            (Event::AnswerLost, Kill::Open(Sent)) => (create, Kill::Open(Unconfirmed)),
            (Event::KillAnswered, Kill::Open(Sent)) => (create, Kill::Confirmed),
            (Event::Observed(Sighting::Absent { .. }), Kill::Confirmed) if !create_open => {
                return Some(Self::Released);
            }
            (Event::Observed(sighting), Kill::NotYet | Kill::Open(Unconfirmed) | Kill::Confirmed)
                if !create_open =>
            {
                (
                    if sighting.settles_create() {
                        CreateProof::Settled
                    } else {
                        create
                    },
                    kill,
                )
            }
            _ => return None,
        };
        Some(Self::CleanupPending { cause, create, kill })
    }

    fn proof(sighting: Sighting) -> CreateProof {
        if sighting.settles_create() {
            CreateProof::Settled
        } else {
            CreateProof::Unproven(Mutation::Unconfirmed)
        }
    }

    /// The stored name of this state.
    pub fn kind(self) -> AllocationState {
        match self {
            Self::Reserved => AllocationState::Reserved,
            Self::Creating(_) => AllocationState::Creating,
            Self::Running { .. } => AllocationState::Running,
            Self::CleanupPending { .. } => AllocationState::CleanupPending,
            Self::Released => AllocationState::Released,
        }
    }

    /// How far the one open mutation is, when one is in `intent` or `sent` (INV-C16).
    pub fn open(self) -> Option<Mutation> {
        let (create, kill) = match self {
            Self::Creating(open) => (Some(open), None),
            Self::CleanupPending { create, kill, .. } => (
                match create {
                    CreateProof::Unproven(open) => Some(open),
                    CreateProof::Settled => None,
                },
                match kill {
                    Kill::Open(open) => Some(open),
                    Kill::NotYet | Kill::Confirmed => None,
                },
            ),
            Self::Reserved | Self::Running { .. } | Self::Released => (None, None),
        };
        [create, kill]
            .into_iter()
            .flatten()
            .find(|open| *open != Mutation::Unconfirmed)
    }

    /// A create frame may have left and nothing proves its end.
    pub fn create_unproven(self) -> bool {
        matches!(
            self,
            Self::Creating(Mutation::Sent | Mutation::Unconfirmed)
                | Self::CleanupPending {
                    create: CreateProof::Unproven(_),
                    ..
                }
        )
    }
}

/// The stored state of one operation row (core.md section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperationState {
    Intent,
    Sent,
    /// Answered, or proven by observation.
    Settled,
    /// Nothing was sent.
    Rejected,
    Unconfirmed,
}

impl OperationState {
    pub const ALL: &[Self] = &[
        Self::Intent,
        Self::Sent,
        Self::Settled,
        Self::Rejected,
        Self::Unconfirmed,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Intent => "intent",
            Self::Sent => "sent",
            Self::Settled => "settled",
            Self::Rejected => "rejected",
            Self::Unconfirmed => "unconfirmed",
        }
    }

    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|s| s.as_str() == text)
    }

    fn unsettled(self) -> Option<Mutation> {
        match self {
            Self::Intent => Some(Mutation::Intent),
            Self::Sent => Some(Mutation::Sent),
            Self::Unconfirmed => Some(Mutation::Unconfirmed),
            Self::Settled | Self::Rejected => None,
        }
    }
}

/// The columns and rows a [`State`] is stored in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    pub state: AllocationState,
    pub phase: ComputePhase,
    pub cause: Option<Cause>,
    pub create_settled: bool,
    /// The latest create operation.
    pub create: Option<OperationState>,
    /// The latest kill operation.
    pub kill: Option<OperationState>,
}

/// Rows that no sequence of events could have stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stored rows contradict each other: {0:?}")]
pub struct RecordError(pub Record);

impl TryFrom<Record> for State {
    type Error = RecordError;

    fn try_from(record: Record) -> Result<Self, RecordError> {
        let wrong = RecordError(record);
        let create = record.create.and_then(OperationState::unsettled);
        Ok(match record.state {
            AllocationState::Reserved => Self::Reserved,
            AllocationState::Creating => Self::Creating(create.ok_or(wrong)?),
            AllocationState::Running => Self::Running { phase: record.phase },
            AllocationState::Released => Self::Released,
            AllocationState::CleanupPending => Self::CleanupPending {
                cause: record.cause.ok_or(wrong)?,
                create: match create {
                    _ if record.create_settled => CreateProof::Settled,
                    Some(open @ (Mutation::Sent | Mutation::Unconfirmed)) => CreateProof::Unproven(open),
                    _ => return Err(wrong),
                },
                kill: match record.kill {
                    None | Some(OperationState::Rejected) => Kill::NotYet,
                    Some(OperationState::Settled) => Kill::Confirmed,
                    Some(OperationState::Intent) => Kill::Open(Mutation::Intent),
                    Some(OperationState::Sent) => Kill::Open(Mutation::Sent),
                    Some(OperationState::Unconfirmed) => Kill::Open(Mutation::Unconfirmed),
                },
            },
        })
    }
}
