//! What one `info` told, reduced to what the lifecycle depends on.

use oac_model::Reference;
use oac_wire::shapes::Info;

use super::State;

/// One answer, or the lack of one, about everything a reference owns on its node.
///
/// "Absent with proof", "unknown" and "known" stay apart: only the two settled variants prove anything about the
/// create, and nothing but `Absent` speaks of absence (INV-P10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sighting {
    /// Running with bootstrap complete; its create settled.
    Running,
    /// Present, not running, its create settled.
    SettledPresent,
    /// Present; its create may still be under way.
    Present,
    /// Nothing there, and the create can have no further effect. `lost`: it once ran and is gone.
    Absent { lost: bool },
    /// This lookup found nothing. Proves nothing.
    NotFound,
    /// Refused as belonging to someone else.
    Ownership,
    /// Any other definite refusal.
    Refused,
    /// Answered `unconfirmed`: the node looked and cannot say.
    Unconfirmed,
    /// Not sent, or no usable answer.
    Unanswered,
}

/// Why an allocation needs attention, as operators see it (core.md section 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Diagnostic {
    NodeUnavailable,
    ResourceMissing,
    ComputeUnconfirmed,
    OwnershipMismatch,
    ProviderUnavailable,
}

impl Diagnostic {
    pub const ALL: &[Self] = &[
        Self::NodeUnavailable,
        Self::ResourceMissing,
        Self::ComputeUnconfirmed,
        Self::OwnershipMismatch,
        Self::ProviderUnavailable,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::NodeUnavailable => "node_unavailable",
            Self::ResourceMissing => "resource_missing",
            Self::ComputeUnconfirmed => "compute_unconfirmed",
            Self::OwnershipMismatch => "ownership_mismatch",
            Self::ProviderUnavailable => "provider_unavailable",
        }
    }

    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|d| d.as_str() == text)
    }
}

impl Sighting {
    /// Reads an `info` that answered about `reference`; one about another reference tells nothing.
    pub fn of(info: &Info, reference: &Reference) -> Self {
        if info.reference != *reference {
            return Self::Unconfirmed;
        }
        let settled = info.is_settled_receipt_of(reference);
        match (settled, info.provider_id.is_empty()) {
            (true, true) => Self::Absent {
                lost: info.compute_lost,
            },
            (true, false) if info.state == Info::RUNNING && info.bootstrap_complete => Self::Running,
            (true, false) => Self::SettledPresent,
            (false, false) => Self::Present,
            (false, true) => Self::Unconfirmed,
        }
    }

    /// It is an explicit proof that the create can have no further effect.
    pub fn settles_create(self) -> bool {
        matches!(self, Self::Running | Self::SettledPresent | Self::Absent { .. })
    }

    /// It answers anything but unconfirmed, unavailable and uncertain, so that a further kill may be issued.
    pub fn is_definite(self) -> bool {
        !matches!(self, Self::Unconfirmed | Self::Unanswered)
    }

    /// What an operator is shown while this is the latest answer about a sandbox in `state`, whose runtime has linked or
    /// not.
    pub fn diagnostic(self, state: State, initialized: bool) -> Option<Diagnostic> {
        let shown = match state {
            State::Running { .. } => true,
            // What linked did run, whatever became of its create.
            State::Creating(_) if initialized && self == Self::Present => {
                return Some(Diagnostic::ResourceMissing);
            }
            State::Creating(_) if initialized => true,
            // Absence is what a cleanup is after, and no news about a create that is still unresolved.
            State::Reserved | State::Creating(_) | State::CleanupPending { .. } | State::Released => {
                matches!(self, Self::Unanswered | Self::Ownership)
            }
        };
        self.trouble().filter(|_| shown)
    }

    fn trouble(self) -> Option<Diagnostic> {
        match self {
            Self::Running | Self::Present => None,
            Self::SettledPresent | Self::Absent { .. } | Self::NotFound => Some(Diagnostic::ResourceMissing),
            Self::Ownership => Some(Diagnostic::OwnershipMismatch),
            Self::Refused | Self::Unconfirmed => Some(Diagnostic::ProviderUnavailable),
            Self::Unanswered => Some(Diagnostic::NodeUnavailable),
        }
    }
}
