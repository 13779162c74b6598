//! What is stored, as metrics show it.

use std::collections::BTreeMap;

use oac_model::{AllocationState, NodeId, Time};
use oac_store::{AllocationCount, AllocationDiagnostic, NodeRow, SlotCounts};
use oac_telemetry::Gauges;

use super::{NODE_SERIES, table};
use crate::{
    Core,
    http::ApiError,
    routes::{
        deployment::{NodeReadiness, ReadinessState},
        nodes::Context,
    },
};

/// Every status a node can be shown with.
const STATUSES: [&str; 5] = ["offline", "draining", "cordoned", "not_ready", "ready"];

/// One snapshot.
pub(super) struct Stored {
    now: Time,
    statuses: BTreeMap<&'static str, u64>,
    rollout: BTreeMap<&'static str, u64>,
    /// The first [`NODE_SERIES`].
    slots: Vec<(NodeId, [(&'static str, u64); 4])>,
    allocations: Vec<AllocationCount>,
    turns: Vec<(oac_model::TurnState, u64)>,
}

impl Stored {
    pub(super) async fn read(core: &Core) -> Result<Self, ApiError> {
        let read = core.store.read().await?;
        let context = Context::read(&read).await?;
        let nodes = read.nodes_with_counts().await?;
        let allocations = read.allocation_counts().await?;
        let turns = read.unfinished_turn_counts().await?;
        let mut statuses: BTreeMap<_, _> = STATUSES.into_iter().map(|status| (status, 0)).collect();
        let mut rollout: BTreeMap<_, _> = ReadinessState::ALL
            .into_iter()
            .map(|state| (state.as_str(), 0))
            .collect();
        for (node, _) in &nodes {
            let readiness = context.readiness(node);
            *statuses.entry(status(node, &readiness)).or_default() += 1;
            *rollout.entry(readiness.state.as_str()).or_default() += 1;
        }
        let slots = nodes.iter().take(NODE_SERIES);
        Ok(Self {
            now: context.now,
            statuses,
            rollout,
            slots: slots
                .map(|(node, counts)| (node.id, slots_of(node, counts.slots)))
                .collect(),
            allocations,
            turns,
        })
    }

    pub(super) fn show(&self, gauges: &mut Gauges) {
        let by_name = |counts: &BTreeMap<&'static str, u64>| -> Vec<([String; 1], f64)> {
            let one = |(name, count): (&&str, &u64)| ([(*name).to_owned()], *count as f64);
            counts.iter().map(one).collect()
        };
        gauges.many(&table::NODES, by_name(&self.statuses));
        gauges.many(&table::ROLLOUT_NODES, by_name(&self.rollout));
        let slots = self.slots.iter().flat_map(|(node, kinds)| {
            let node = node.to_string();
            kinds.map(|(kind, slots)| ([node.clone(), kind.to_owned()], slots as f64))
        });
        gauges.many(&table::NODE_SLOTS, slots);
        self.show_allocations(gauges);
        let turns = self.turns.iter();
        gauges.many(
            &table::TURNS,
            turns.map(|(state, count)| ([state.as_str().to_owned()], *count as f64)),
        );
    }

    fn show_allocations(&self, gauges: &mut Gauges) {
        let mut by_phase = BTreeMap::<_, u64>::new();
        let mut issues: BTreeMap<_, u64> = AllocationDiagnostic::ALL
            .iter()
            .map(|diagnostic| (diagnostic.as_str(), 0))
            .collect();
        for group in &self.allocations {
            *by_phase
                .entry((group.state.as_str(), group.compute_phase.as_str()))
                .or_default() += group.count;
            if let Some(diagnostic) = group.diagnostic {
                *issues.entry(diagnostic.as_str()).or_default() += group.count;
            }
        }
        let text = |text: &str| text.to_owned();
        gauges.many(
            &table::ALLOCATIONS,
            by_phase
                .into_iter()
                .map(|((state, phase), count)| ([text(state), text(phase)], count as f64)),
        );
        gauges.many(
            &table::ALLOCATION_ISSUES,
            issues
                .into_iter()
                .map(|(diagnostic, count)| ([text(diagnostic)], count as f64)),
        );
        let cleanups = self.allocations.iter();
        let oldest = cleanups
            .filter(|group| group.state == AllocationState::CleanupPending)
            .map(|group| group.oldest.millis())
            .min();
        let age = oldest.map_or(0, |since| (self.now.millis() - since).max(0));
        gauges.one(&table::CLEANUP_OLDEST_SECONDS, age as f64 / 1000.0);
    }
}

/// The first that fits, so that every node is counted once.
fn status(node: &NodeRow, readiness: &NodeReadiness) -> &'static str {
    if !readiness.online {
        "offline"
    } else if node.drain_requested_at.is_some() {
        "draining"
    } else if node.cordoned_at.is_some() {
        "cordoned"
    } else if !readiness.provider_ready {
        "not_ready"
    } else {
        "ready"
    }
}

fn slots_of(node: &NodeRow, taken: SlotCounts) -> [(&'static str, u64); 4] {
    [
        ("active", taken.active),
        ("retained", taken.retained),
        ("max_active", node.max_active.into()),
        ("max_retained", node.max_retained.into()),
    ]
}
