//! Where a checkpoint is restored (core.md section 12).

use std::collections::{BTreeMap, BTreeSet};

use oac_model::{Digest, NodeId, StoreId};

use crate::placement::{Node, Request};

/// What a checkpoint asks of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    pub store: StoreId,
    pub class: Digest,
    /// The allocation's node: its own slot for what is retained suffices there, and nothing that keeps others away does.
    pub home: NodeId,
    /// Targets of this checkpoint may still be there; none of these nodes takes another.
    pub haunted: BTreeSet<NodeId>,
    /// They refused or failed this checkpoint and come last.
    pub failed: BTreeSet<NodeId>,
    /// The Session's labels, for every node but home.
    pub labels: BTreeMap<String, String>,
}

/// A node as a restore sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate<'a> {
    pub node: &'a Node,
    /// The allocation's generation is ready there on the current connection.
    pub ready: bool,
    /// A drain of it passed its deadline.
    pub drained: bool,
}

/// Whether the node takes the checkpoint now.
pub fn takes(needs: &Needs, public_url: Option<&str>, candidate: &Candidate<'_>) -> bool {
    let node = candidate.node;
    let able = node.online
        && candidate.ready
        && node.checkpoint_store == Some(needs.store)
        && node.execution_class == Some(needs.class)
        && node.active < node.max_active
        && !needs.haunted.contains(&node.id);
    let welcome = if node.id == needs.home {
        !candidate.drained
    } else {
        let request = Request {
            required_labels: needs.labels.clone(),
        };
        node.retained < node.max_retained && public_url.is_some_and(|url| node.admits(&request, url))
    };
    able && welcome
}

/// The node that is to restore it: home, then the others as a placement orders them, then those that failed it. The same
/// inputs give the same answer, in whatever order the candidates come.
pub fn choose<'a>(
    needs: &Needs,
    public_url: Option<&str>,
    candidates: impl IntoIterator<Item = Candidate<'a>>,
) -> Option<NodeId> {
    candidates
        .into_iter()
        .filter(|candidate| takes(needs, public_url, candidate))
        .min_by_key(|candidate| {
            let node = candidate.node;
            (
                needs.failed.contains(&node.id),
                node.id != needs.home,
                std::cmp::Reverse(node.pin),
                node.active,
                node.created_at,
                node.id,
            )
        })
        .map(|candidate| candidate.node.id)
}
