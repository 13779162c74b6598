//! Where a new sandbox goes (core.md section 7).
//!
//! `place` is a pure function of a request, the deployment and the nodes as the owner remembers them. Its answer never
//! rests on that memory alone: the placing transaction locks the chosen node, reads it again and calls `recheck`
//! (INV-C10, INV-C32).

use std::{cmp::Reverse, collections::BTreeMap};

use oac_model::{Digest, Generation, NodeId, StoreId, Time};

use crate::limits::{LABEL_BYTES, LABEL_PAIRS};

/// What a caller may ask of a node: never its name, only its labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// Each must be present on the node with exactly this value.
    pub required_labels: BTreeMap<String, String>,
}

/// Whether these are labels that a node may carry or a Session ask for: at most 32, each key `[a-z0-9][a-z0-9._/-]{0,62}`,
/// each value at most 63 bytes (core.md section 15).
pub fn are_labels(labels: &BTreeMap<String, String>) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_label = |(key, value): (&String, &String)| {
        key.len() <= LABEL_BYTES
            && key.bytes().next().is_some_and(plain)
            && key.bytes().all(|b| plain(b) || b"._/-".contains(&b))
            && value.len() <= LABEL_BYTES
            && !value.contains('\0')
    };
    labels.len() <= LABEL_PAIRS && labels.iter().all(is_label)
}

/// How the deployment runs sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// No provider is selected.
    Unset,
    /// Docker or microsandbox, on nodes.
    Nodes,
    /// E2B, from Core itself.
    Direct {
        /// E2B reaches Core at an https public address.
        address_usable: bool,
        active: u32,
        max_active: u32,
        retained: u32,
        max_retained: u32,
    },
}

/// The installation's selection, as far as placement depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    pub reset_in_progress: bool,
    /// The stored specification of the target decodes and matches its digest.
    pub specification_valid: bool,
    /// The stored installation is the one this Core serves.
    pub installation_matches: bool,
    pub mode: Mode,
    /// The newest generation; nodes that report it `preparing` turn "unavailable" into "preparing".
    pub target: Option<Generation>,
    /// Core's origin; a node enrolled under another one receives no placement.
    pub public_url: Option<String>,
}

/// What a node last reported of the target generation on its current connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetStatus {
    Ready,
    Preparing,
    Failed,
}

/// One node as placement sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub id: NodeId,
    pub created_at: Time,
    /// Connected under the current epoch, last heartbeat under 45 s old.
    pub online: bool,
    /// Online, and its pin is `ready` on the current connection and epoch.
    pub provider_ready: bool,
    /// The serving generation; for a node without generation management the enrolled one.
    pub pin: Option<Generation>,
    /// The origin the node enrolled under.
    pub core_url: String,
    pub cordoned: bool,
    pub draining: bool,
    pub labels: BTreeMap<String, String>,
    /// Unreleased placements that hold an active slot.
    pub active: u32,
    /// Unreleased placements.
    pub retained: u32,
    pub max_active: u32,
    pub max_retained: u32,
    pub target_status: Option<TargetStatus>,
    /// The store where it keeps checkpoints, as last reported.
    pub checkpoint_store: Option<StoreId>,
    /// Kernel and CPU that its checkpoints depend on, as last reported.
    pub execution_class: Option<Digest>,
}

/// Where the sandbox goes, or why nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// 503 `sandbox_reset_in_progress`
    Reset,
    /// The stored selection cannot be trusted: 503 `runtime_node_unavailable`.
    Closed,
    /// 503 `runtime_node_unavailable`
    Unavailable,
    /// Room is being prepared: 503 `sandbox_nodes_preparing`.
    Preparing,
    /// Core runs the sandbox itself.
    Direct,
    /// This node, under the generation it serves.
    Node { id: NodeId, pin: Generation },
}

/// A node's turn among those that could take a sandbox now, the lowest first: highest pin, fewest active, earliest
/// created, lowest id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    pin: Reverse<Generation>,
    active: u32,
    created_at: Time,
    id: NodeId,
}

impl Rank {
    pub fn node(&self) -> NodeId {
        self.id
    }
}

impl Node {
    /// `None` of a node that takes no sandbox now, whoever asks. One with a rank may still lack a request's labels or the
    /// current address.
    pub fn rank(&self) -> Option<Rank> {
        let takes = self.online && self.provider_ready && !self.cordoned && !self.draining && self.has_room();
        self.pin.filter(|_| takes).map(|pin| Rank {
            pin: Reverse(pin),
            active: self.active,
            created_at: self.created_at,
            id: self.id,
        })
    }

    /// Nothing an operator set or the public address forbids a placement here.
    pub(crate) fn admits(&self, request: &Request, public_url: &str) -> bool {
        self.core_url == public_url
            && !self.cordoned
            && !self.draining
            && request
                .required_labels
                .iter()
                .all(|(key, value)| self.labels.get(key) == Some(value))
    }

    fn has_room(&self) -> bool {
        self.active < self.max_active && self.retained < self.max_retained
    }
}

/// Chooses a node. The same inputs give the same answer, in whatever order `nodes` come (INV-C9).
pub fn place<'a>(
    request: &Request,
    deployment: &Deployment,
    nodes: impl IntoIterator<Item = &'a Node>,
) -> Answer {
    if deployment.reset_in_progress {
        return Answer::Reset;
    }
    if deployment.mode != Mode::Unset && !(deployment.specification_valid && deployment.installation_matches)
    {
        return Answer::Closed;
    }
    match deployment.mode {
        Mode::Unset => Answer::Unavailable,
        Mode::Direct {
            address_usable,
            active,
            max_active,
            retained,
            max_retained,
        } => {
            if address_usable && active < max_active && retained < max_retained {
                Answer::Direct
            } else {
                Answer::Unavailable
            }
        }
        Mode::Nodes => choose(request, deployment, nodes),
    }
}

fn choose<'a>(
    request: &Request,
    deployment: &Deployment,
    nodes: impl IntoIterator<Item = &'a Node>,
) -> Answer {
    let Some(public_url) = deployment.public_url.as_deref() else {
        return Answer::Unavailable;
    };
    let mut best: Option<Rank> = None;
    let mut preparing = false;
    for node in nodes {
        if !node.online || !node.has_room() || !node.admits(request, public_url) {
            continue;
        }
        preparing |= node.target_status == Some(TargetStatus::Preparing);
        let Some(rank) = node.rank() else { continue };
        if best.is_none_or(|best| rank < best) {
            best = Some(rank);
        }
    }
    match best {
        Some(rank) => Answer::Node {
            id: rank.id,
            pin: rank.pin.0,
        },
        None if preparing => Answer::Preparing,
        None => Answer::Unavailable,
    }
}

/// Why the chosen node, read again under its lock, is not the one the answer was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Recheck {
    #[error("the node is no longer connected or its provider is not ready")]
    NotReady,
    #[error("the node serves another generation now")]
    PinMoved,
    #[error("the node was cordoned, drained, relabelled or enrolled under another address")]
    NotAdmitted,
    #[error("the node is full")]
    Full,
}

/// Checks the chosen node as the placing transaction reads it, with its counts of that transaction.
pub fn recheck(request: &Request, public_url: &str, pin: Generation, node: &Node) -> Result<(), Recheck> {
    if !node.online || !node.provider_ready {
        return Err(Recheck::NotReady);
    }
    if node.pin != Some(pin) {
        return Err(Recheck::PinMoved);
    }
    if !node.admits(request, public_url) {
        return Err(Recheck::NotAdmitted);
    }
    if node.has_room() {
        Ok(())
    } else {
        Err(Recheck::Full)
    }
}
