//! What an answer says, in the same words at both ends (protocol.md section 7).

use oac_model::Reference;
use oac_wire::{
    frames::ResponseResult,
    shapes::{Info, Operation, Unsupported},
};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// The error codes of the table, without `unsupported`, which needs evidence.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum FailureCode { $($(#[$doc])* $name),* }

        impl FailureCode {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// The code a text names; whatever the table does not hold is `Unconfirmed`.
            pub fn from_text(text: &str) -> Self {
                match text { $($text => Self::$name,)* _ => Self::Unconfirmed }
            }
        }
    };
}

codes! {
    /// Arguments or resource contradict the contract.
    Invalid = "invalid",
    /// A matching name or id belongs to something else.
    Ownership = "ownership",
    /// The target name, volume or receipt is present.
    Exists = "exists",
    /// This lookup found nothing; proves no absence.
    NotFound = "not_found",
    /// The command may have run, in part or whole.
    CommandUnconfirmed = "command_unconfirmed",
    /// Telemetry could not be read.
    ObservationUnavailable = "observation_unavailable",
    /// Nothing runs that could be observed.
    RuntimeNotRunning = "runtime_not_running",
    /// The outcome is unknown.
    Unconfirmed = "unconfirmed",
}

impl FailureCode {
    /// How an unusable answer to `operation` is read.
    pub fn unconfirmed(operation: Operation) -> Self {
        match operation {
            Operation::Command | Operation::CommandCompute => Self::CommandUnconfirmed,
            Operation::Observe => Self::ObservationUnavailable,
            _ => Self::Unconfirmed,
        }
    }
}

/// The answer to one operation.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// With the result member of the operation's row, or none for `kill`, `kill_compute`, `delete_retained`.
    Success(Option<ResponseResult>),
    Failed {
        code: FailureCode,
        /// A settled receipt of exactly this reference: the only result a failure carries (INV-P19).
        receipt: Option<Info>,
    },
    /// Declared absent; settles nothing and authorizes no replay.
    Unsupported(Unsupported),
}

impl Outcome {
    pub fn failed(code: FailureCode) -> Self {
        Self::Failed { code, receipt: None }
    }
}

/// Whether a success carries exactly what its operation's row and reference demand.
pub(crate) fn is_success_of(
    operation: Operation,
    reference: &Reference,
    result: Option<&ResponseResult>,
) -> bool {
    use Operation as Op;
    match (operation, result) {
        (Op::Create | Op::Info | Op::Renew, Some(ResponseResult::Info(info))) => {
            info.reference == *reference
                && (!info.provider_id.is_empty() || info.is_settled_receipt_of(reference))
        }
        (Op::Kill | Op::KillCompute | Op::DeleteRetained, None) => true,
        (Op::Command | Op::CommandCompute, Some(ResponseResult::Command(_))) => true,
        (Op::Observe, Some(ResponseResult::Sample(_))) => true,
        (Op::Initial | Op::NewCompute, Some(ResponseResult::Compute(_))) => true,
        (Op::Compute | Op::ResumeCompute | Op::Suspend | Op::Resume, Some(ResponseResult::State(state))) => {
            state.compute.id.0.as_ref().is_some_and(|id| !id.is_empty())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: P-070
    #[test]
    fn the_guide_says_of_each_outcome_what_it_means() {
        let guide = include_str!("../../../docs/node-protocol.md");
        let (_, section) = guide.split_once("## Operations and their outcomes").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        let rows = section.lines().filter(|line| line.starts_with("| `"));
        let mut told: Vec<&str> = Vec::new();
        for row in rows {
            let [_, names, meaning, _] = row.split('|').collect::<Vec<_>>()[..] else {
                panic!("{row}");
            };
            assert!(meaning.trim().contains(' '), "{row}");
            told.extend(names.split(',').map(|name| name.trim().trim_matches('`')));
        }
        let mut all: Vec<_> = FailureCode::ALL.iter().map(|code| code.as_str()).collect();
        all.push("unsupported");
        told.sort_unstable();
        all.sort_unstable();
        assert_eq!(told, all);
    }
}
