//! What was attempted for a reference, and what may follow it (providers.md section 4).
//!
//! | from \ event | create starts | create verified | made nothing | suspend starts | released | abandoned | resume starts | resume verified | target ended | kill starts | kill_compute starts | absence confirmed |
//! |---|---|---|---|---|---|---|---|---|---|---|---|---|
//! | no receipt | creating | | | | | | restoring | | suspended | killing | | |
//! | creating | | settled | tombstone | | | | | | | killing | killing | |
//! | settled | | | | suspending | | | | | suspended | killing | killing | |
//! | suspending | | | | | suspended | settled | | | | killing | killing | |
//! | suspended | | | | | | | restoring | | suspended | killing | | |
//! | restoring | | | | | | | restoring | settled | suspended | killing | | |
//! | killing | | | | | | | | | | killing | | tombstone |
//! | tombstone | | | | | | | | | | tombstone | | tombstone |
//!
//! An empty field is refused. The tombstone never leaves: a kill under it only removes what a late native call left.

use oac_model::{BootId, Digest, Generation, OperationId, Reference};
use oac_wire::{Nullable, shapes::Retained};
use serde::{Deserialize, Serialize};

/// The format this program writes and the only one it reads.
pub(crate) const FORMAT: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// A create may have had any part of its effects.
    Creating,
    /// The create can have no further effect.
    Settled,
    Suspending,
    Suspended,
    Restoring,
    Killing,
    /// Absence was confirmed; nothing of this reference is ever made again.
    Tombstone,
}

impl Phase {
    pub const ALL: [Self; 7] = [
        Self::Creating,
        Self::Settled,
        Self::Suspending,
        Self::Suspended,
        Self::Restoring,
        Self::Killing,
        Self::Tombstone,
    ];
}

/// What moves a receipt. Conditions beyond the phase (the same target, the named compute) are the adapter's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseEvent {
    CreateStarted,
    /// The native create was verified, or info found exactly that resource running with bootstrap complete.
    CreateVerified,
    CreateMadeNothing,
    SuspendStarted,
    SuspendReleased,
    SuspendAbandoned,
    ResumeStarted,
    ResumeVerified,
    /// kill_compute of a restore target was confirmed.
    TargetEnded,
    KillStarted,
    KillComputeStarted,
    AbsenceConfirmed,
}

impl PhaseEvent {
    pub const ALL: [Self; 12] = [
        Self::CreateStarted,
        Self::CreateVerified,
        Self::CreateMadeNothing,
        Self::SuspendStarted,
        Self::SuspendReleased,
        Self::SuspendAbandoned,
        Self::ResumeStarted,
        Self::ResumeVerified,
        Self::TargetEnded,
        Self::KillStarted,
        Self::KillComputeStarted,
        Self::AbsenceConfirmed,
    ];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} cannot follow {from:?}")]
pub struct RefusedTransition {
    pub from: Option<Phase>,
    pub event: PhaseEvent,
}

/// The one place where a phase follows another.
fn next(from: Option<Phase>, event: PhaseEvent) -> Result<Phase, RefusedTransition> {
    use Phase::*;
    use PhaseEvent::*;
    Ok(match (from, event) {
        (None, CreateStarted) => Creating,
        (Some(Creating), CreateVerified)
        | (Some(Suspending), SuspendAbandoned)
        | (Some(Restoring), ResumeVerified) => Settled,
        (Some(Creating), CreateMadeNothing)
        | (Some(Killing | Tombstone), AbsenceConfirmed)
        | (Some(Tombstone), KillStarted) => Tombstone,
        (Some(Settled), SuspendStarted) => Suspending,
        (Some(Suspending), SuspendReleased) | (None | Some(Settled | Suspended | Restoring), TargetEnded) => {
            Suspended
        }
        (None | Some(Suspended | Restoring), ResumeStarted) => Restoring,
        (None | Some(Creating | Settled | Suspending | Suspended | Restoring | Killing), KillStarted)
        | (Some(Creating | Settled | Suspending), KillComputeStarted) => Killing,
        (from, event) => return Err(RefusedTransition { from, event }),
    })
}

/// What the latest suspend or resume came to: either a state, or the code of a failed verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiptOutcome {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources_released: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend_settled: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
}

impl ReceiptOutcome {
    fn is_valid(&self) -> bool {
        let state = (
            self.status.is_some(),
            self.resources_released.is_some(),
            self.suspend_settled.is_some(),
        );
        matches!(
            (state, self.error_code.is_some()),
            ((true, true, true), false) | ((false, false, false), true)
        )
    }
}

/// One reference's receipt. The phase changes through [`Receipt::apply`] alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    format: u32,
    pub reference: Reference,
    pub deployment_generation: Generation,
    phase: Phase,
    /// The compute of the latest create, suspend or resume, or of the kill_compute that wrote the receipt.
    pub compute_generation: i64,
    /// The runtime process was started.
    pub bootstrap_complete: bool,
    /// The host's when the receipt was created; null for E2B alone.
    pub host_id: Nullable<Digest>,
    /// The boot that the latest live compute was seen in; null for E2B alone.
    pub boot_id: Nullable<BootId>,
    pub operation_id: Nullable<OperationId>,
    pub retained: Nullable<Retained>,
    pub outcome: Nullable<ReceiptOutcome>,
}

impl Receipt {
    /// The first receipt of a reference, as `event` makes it.
    pub fn begin(
        event: PhaseEvent,
        reference: Reference,
        deployment_generation: Generation,
        host_id: Option<Digest>,
        boot_id: Option<BootId>,
    ) -> Result<Self, RefusedTransition> {
        Ok(Self {
            format: FORMAT,
            reference,
            deployment_generation,
            phase: next(None, event)?,
            compute_generation: 0,
            bootstrap_complete: false,
            host_id: host_id.into(),
            boot_id: boot_id.into(),
            operation_id: None.into(),
            retained: None.into(),
            outcome: None.into(),
        })
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The receipt after `event`.
    pub fn apply(mut self, event: PhaseEvent) -> Result<Self, RefusedTransition> {
        self.phase = next(Some(self.phase), event)?;
        Ok(self)
    }

    /// Members that contradict each other or the format.
    pub(crate) fn defect(&self) -> Option<&'static str> {
        if self.format != FORMAT {
            Some("format")
        } else if self.compute_generation < 0 {
            Some("compute_generation")
        } else if self.host_id.0.is_some() != self.boot_id.0.is_some() {
            Some("boot_id")
        } else if self.outcome.0.as_ref().is_some_and(|o| !o.is_valid()) {
            Some("outcome")
        } else {
            None
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn reference(n: u8) -> Reference {
        let id = |d: u8| format!("{d:08x}-0000-4000-8000-{n:012x}");
        Reference {
            tenant_id: id(2).parse().unwrap(),
            environment_id: id(3).parse().unwrap(),
            allocation_id: id(4).parse().unwrap(),
        }
    }

    /// The table of this module's documentation is the expectation.
    fn table() -> Vec<(Option<Phase>, PhaseEvent, Option<Phase>)> {
        let text = include_str!("receipt.rs");
        let rows: Vec<Vec<&str>> = text
            .lines()
            .filter_map(|l| l.strip_prefix("//! |"))
            .map(|l| l.trim_end_matches('|').split('|').map(str::trim).collect())
            .collect();
        let phase =
            |name: &str| (!name.is_empty()).then(|| serde_json::from_value::<Phase>(name.into()).unwrap());
        let mut all = Vec::new();
        for row in &rows[2..] {
            let from = if row[0] == "no receipt" {
                None
            } else {
                phase(row[0])
            };
            for (event, to) in PhaseEvent::ALL.iter().zip(&row[1..]) {
                all.push((from, *event, phase(to)));
            }
        }
        all
    }

    #[test]
    fn every_pair_of_phase_and_event_follows_the_table() {
        let table = table();
        assert_eq!(table.len(), (Phase::ALL.len() + 1) * PhaseEvent::ALL.len());
        for (from, event, to) in table {
            assert_eq!(next(from, event).ok(), to, "{event:?} after {from:?}");
        }
    }

    // inv: INV-V30
    #[test]
    fn restoring_becomes_settled_only_by_a_verified_resume() {
        for event in PhaseEvent::ALL {
            let settles = next(Some(Phase::Restoring), event) == Ok(Phase::Settled);
            assert_eq!(settles, event == PhaseEvent::ResumeVerified, "{event:?}");
        }
    }

    // inv: INV-V7
    #[test]
    fn nothing_leaves_a_tombstone() {
        for event in PhaseEvent::ALL {
            assert!(matches!(
                next(Some(Phase::Tombstone), event),
                Err(_) | Ok(Phase::Tombstone)
            ));
        }
    }
}
