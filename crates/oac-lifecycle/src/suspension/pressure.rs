//! Early suspension when a demand fits nowhere (core.md section 8).
//!
//! Retention is never ended early; what may come early is the suspension of a sandbox that is idle anyway, on the one node
//! that would be chosen if it had room, and one at a time for each demand.

use std::collections::BTreeSet;

use oac_model::NodeId;

use super::target::{Candidate, Needs, choose};
use crate::placement::{Answer, Deployment, Node, Request, place};

/// The node, if it is full, with one active slot less taken.
fn relieved(node: &Node) -> Option<Node> {
    let full = node.active >= node.max_active && node.active > 0;
    full.then(|| Node {
        active: node.active - 1,
        ..node.clone()
    })
}

/// The node that placement would choose with one active slot more, unless one takes the demand as it is; none of `without`,
/// which have nothing idle.
pub fn place_with_room<'a>(
    request: &Request,
    deployment: &Deployment,
    nodes: impl IntoIterator<Item = &'a Node>,
    without: &BTreeSet<NodeId>,
) -> Option<NodeId> {
    let nodes: Vec<&Node> = nodes.into_iter().collect();
    if let Answer::Node { .. } = place(request, deployment, nodes.iter().copied()) {
        return None;
    }
    let asked = nodes.into_iter().filter(|node| !without.contains(&node.id));
    let relieved: Vec<Node> = asked.filter_map(relieved).collect();
    match place(request, deployment, &relieved) {
        Answer::Node { id, .. } => Some(id),
        _ => None,
    }
}

/// The same for a checkpoint that is to be restored.
pub fn restore_with_room<'a>(
    needs: &Needs,
    public_url: Option<&str>,
    candidates: impl IntoIterator<Item = Candidate<'a>>,
    without: &BTreeSet<NodeId>,
) -> Option<NodeId> {
    let candidates: Vec<_> = candidates.into_iter().collect();
    if choose(needs, public_url, candidates.iter().copied()).is_some() {
        return None;
    }
    let asked = candidates
        .into_iter()
        .filter(|candidate| !without.contains(&candidate.node.id));
    let relieved: Vec<_> = asked
        .filter_map(|candidate| Some((relieved(candidate.node)?, candidate)))
        .collect();
    let candidates = relieved
        .iter()
        .map(|(node, candidate)| Candidate { node, ..*candidate });
    choose(needs, public_url, candidates)
}
