//! Early suspension when a demand fits nowhere (core.md section 8).
//!
//! Retention is never ended early; what may come early is the suspension of a sandbox that is idle anyway, on the one node
//! that placement would choose if that had room, and one at a time for each demand.

use oac_model::{AllocationId, NodeId};

use crate::{
    Millis,
    placement::{Answer, Deployment, Node, Request, place},
};

/// A sandbox that nothing keeps from being suspended but the time since its last activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    pub allocation: AllocationId,
    pub node: NodeId,
    pub idle_for: Millis,
}

/// Which sandbox is suspended early for a demand that fits nowhere: on the node that placement would choose with one active
/// slot more, the one that was idle longest. `None` when that would not help, or there is none.
pub fn relief<'a>(
    request: &Request,
    deployment: &Deployment,
    nodes: impl IntoIterator<Item = &'a Node>,
    idle: &[Idle],
) -> Option<AllocationId> {
    let relieved: Vec<Node> = nodes
        .into_iter()
        .filter(|node| idle.iter().any(|sandbox| sandbox.node == node.id))
        .map(|node| Node {
            active: node.active.saturating_sub(1),
            ..node.clone()
        })
        .collect();
    let Answer::Node { id, .. } = place(request, deployment, &relieved) else {
        return None;
    };
    idle.iter()
        .filter(|sandbox| sandbox.node == id)
        .max_by_key(|sandbox| (sandbox.idle_for, std::cmp::Reverse(sandbox.allocation)))
        .map(|sandbox| sandbox.allocation)
}
