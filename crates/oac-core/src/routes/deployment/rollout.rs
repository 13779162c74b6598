//! Where the nodes stand with the target generation (core.md section 6, "Rollout").

use oac_model::{DiagnosticCode, Generation, OwnerEpoch, Time};
use oac_store::{GenerationState, GenerationStatusRow, NodeRow};
use serde::Serialize;

/// A node counts as online while its last heartbeat is younger (core.md section 10).
pub(crate) const ONLINE_MILLIS: i64 = 45_000;

/// The first bucket that fits a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReadinessState {
    Ready,
    Preparing,
    Failed,
    /// It serves only the generation it was enrolled with.
    UpdateRequired,
    /// Offline, or online without a report so far.
    Unknown,
}

impl ReadinessState {
    pub(crate) const ALL: [Self; 5] = [
        Self::Ready,
        Self::Preparing,
        Self::Failed,
        Self::UpdateRequired,
        Self::Unknown,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Preparing => "preparing",
            Self::Failed => "failed",
            Self::UpdateRequired => "update_required",
            Self::Unknown => "unknown",
        }
    }
}

/// One node against the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeReadiness {
    pub(crate) online: bool,
    /// Online, and ready for the generation it serves.
    pub(crate) provider_ready: bool,
    pub(crate) state: ReadinessState,
    /// Why it is not ready for the target.
    pub(crate) diagnostic: Option<DiagnosticCode>,
}

impl NodeReadiness {
    /// Judges `node` by its reports, of which only those of its current connection and `epoch` count.
    pub(crate) fn of(
        node: &NodeRow,
        reports: &[GenerationStatusRow],
        target: Option<Generation>,
        epoch: OwnerEpoch,
        now: Time,
    ) -> Self {
        let online = node.online(epoch, now, ONLINE_MILLIS);
        let report = |generation: Generation| {
            reports.iter().find(|r| {
                r.node_id == node.id
                    && r.generation == generation
                    && Some(r.connection_id) == node.connection_id
                    && r.owner_epoch == epoch
            })
        };
        let managing = node.generation_management == Some(true);
        let provider_ready = online
            && if managing {
                node.serving_generation
                    .and_then(report)
                    .is_some_and(|r| r.state == GenerationState::Ready)
            } else {
                node.provider_ready
            };
        let (state, diagnostic) = match target {
            _ if !online => (ReadinessState::Unknown, None),
            Some(target) if !managing && node.enrolled_generation < target => {
                (ReadinessState::UpdateRequired, None)
            }
            _ if !managing && node.provider_ready => (ReadinessState::Ready, None),
            _ if !managing => (ReadinessState::Failed, node.diagnostic),
            None => (ReadinessState::Unknown, None),
            Some(target) => match report(target) {
                None => (ReadinessState::Unknown, None),
                Some(report) => match report.state {
                    GenerationState::Ready => (ReadinessState::Ready, None),
                    GenerationState::Preparing => (ReadinessState::Preparing, report.diagnostic),
                    GenerationState::Failed => (ReadinessState::Failed, report.diagnostic),
                },
            },
        };
        Self {
            online,
            provider_ready,
            state,
            diagnostic,
        }
    }
}

/// How many nodes are in each bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct RolloutNodes {
    pub(crate) ready: u64,
    pub(crate) preparing: u64,
    pub(crate) failed: u64,
    pub(crate) update_required: u64,
    pub(crate) unknown: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RolloutState {
    /// An online node is still preparing, or has not said how it stands.
    Preparing,
    Settled,
}

/// The buckets, and the state that follows from them.
pub(crate) fn summarize<'a>(
    nodes: impl IntoIterator<Item = &'a NodeReadiness>,
) -> (RolloutState, RolloutNodes) {
    let mut counts = RolloutNodes::default();
    let mut state = RolloutState::Settled;
    for node in nodes {
        let bucket = match node.state {
            ReadinessState::Ready => &mut counts.ready,
            ReadinessState::Preparing => &mut counts.preparing,
            ReadinessState::Failed => &mut counts.failed,
            ReadinessState::UpdateRequired => &mut counts.update_required,
            ReadinessState::Unknown => &mut counts.unknown,
        };
        *bucket += 1;
        if node.online && matches!(node.state, ReadinessState::Preparing | ReadinessState::Unknown) {
            state = RolloutState::Preparing;
        }
    }
    (state, counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(online: bool, state: ReadinessState) -> NodeReadiness {
        NodeReadiness {
            online,
            provider_ready: false,
            state,
            diagnostic: None,
        }
    }

    #[test]
    fn only_online_nodes_that_prepare_or_have_not_reported_keep_a_rollout_going() {
        use ReadinessState::{Failed, Preparing, Ready, Unknown, UpdateRequired};
        let settled = [
            node(false, Unknown),
            node(true, Ready),
            node(true, Failed),
            node(true, UpdateRequired),
        ];
        let (state, counts) = summarize(&settled);
        assert_eq!(state, RolloutState::Settled);
        let expected = RolloutNodes {
            ready: 1,
            preparing: 0,
            failed: 1,
            update_required: 1,
            unknown: 1,
        };
        assert_eq!(counts, expected);
        assert_eq!(summarize(&[node(true, Preparing)]).0, RolloutState::Preparing);
        assert_eq!(summarize(&[node(true, Unknown)]).0, RolloutState::Preparing);
    }
}
