//! Dials and connections: two directions each, which delay, end, or fall silent on their own.
//!
//! A direction keeps its order. Nothing is duplicated or lost inside a connection that lives; a dial may arrive twice.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use oac_model::{AllocationId, ConnectionId, RequestId};
use oac_wire::shapes::Operation;

use crate::agenda::Millis;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkId(pub(crate) u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DialId(pub(crate) u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Core,
    Node,
}

/// Who dials, and where it arrives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dial {
    pub(crate) host: usize,
    /// Of the process.
    pub(crate) run: u64,
    pub(crate) core: usize,
    /// Its answer reaches nobody.
    pub(crate) duplicate: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum DialAnswer {
    Upgraded(LinkId),
    /// 401 of Core, or of something between.
    Unauthorized,
    /// Any other answer, or none.
    Failed,
}

/// What the world knows of a frame beside its text.
#[derive(Debug, Clone)]
pub(crate) enum Note {
    Request(Asked),
    Plain,
    /// Changed on its way.
    Tampered(crate::fault::Tamper, Option<Asked>),
}

/// A request as Core sent it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) id: RequestId,
    pub(crate) sequence: i64,
    pub(crate) allocation: AllocationId,
    pub(crate) operation: Operation,
    pub(crate) timeout: Millis,
}

pub(crate) enum Item {
    Frame(String, Note),
    End,
}

#[derive(Default)]
pub(crate) struct Pipe {
    pub(crate) queue: VecDeque<Item>,
    /// When the last of it arrives.
    pub(crate) last: Millis,
    /// Whatever is sent is dropped.
    pub(crate) mute: bool,
}

/// A request at the node that has no answer yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delivered {
    pub(crate) asked: Asked,
    pub(crate) deadline: Millis,
    pub(crate) started: bool,
}

pub(crate) struct Link {
    pub(crate) host: usize,
    /// Of the node's process; `None` when nobody reads at its end.
    pub(crate) run: Option<u64>,
    pub(crate) core: usize,
    pub(crate) core_run: u64,
    pub(crate) connection: ConnectionId,
    pub(crate) to_core: Pipe,
    pub(crate) to_node: Pipe,
    pub(crate) core_open: bool,
    pub(crate) node_open: bool,
    // What the checks remember.
    pub(crate) hello: bool,
    pub(crate) presence: bool,
    /// Of the last request sent.
    pub(crate) sequence: i64,
    /// Sent and not answered.
    pub(crate) pending: BTreeSet<RequestId>,
    /// Of the last request the node may accept.
    pub(crate) accepted: i64,
    pub(crate) delivered: Vec<Delivered>,
    /// No frame of it is accepted any more.
    pub(crate) violated: bool,
    /// Somebody changed a frame: its ends may find fault with each other.
    pub(crate) dishonest: bool,
    /// How much later requests are numbered, by a planted defect.
    pub(crate) shifted: i64,
}

impl Link {
    pub(crate) fn pipe(&mut self, to: End) -> &mut Pipe {
        match to {
            End::Core => &mut self.to_core,
            End::Node => &mut self.to_node,
        }
    }

    pub(crate) fn is_open(&self, end: End) -> bool {
        match end {
            End::Core => self.core_open,
            End::Node => self.node_open,
        }
    }
}

#[derive(Default)]
pub(crate) struct Network {
    pub(crate) links: BTreeMap<LinkId, Link>,
    pub(crate) dials: BTreeMap<DialId, Dial>,
    serial: u64,
}

impl Network {
    pub(crate) fn dial(&mut self, dial: Dial) -> DialId {
        self.serial += 1;
        let id = DialId(self.serial);
        self.dials.insert(id, dial);
        id
    }

    pub(crate) fn open(&mut self, link: Link) -> LinkId {
        self.serial += 1;
        let id = LinkId(self.serial);
        self.links.insert(id, link);
        id
    }

    /// Links that have an open end at this host.
    pub(crate) fn of_host(&self, host: usize) -> Vec<LinkId> {
        let here = self.links.iter().filter(|(_, link)| link.host == host);
        here.filter(|(_, link)| link.node_open || link.core_open)
            .map(|(id, _)| *id)
            .collect()
    }
}

/// The text or number of a member of a frame that the codec wrote.
pub(crate) fn member<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let key = format!("\"{name}\":");
    let rest = &text[text.find(&key)? + key.len()..];
    let rest = rest.strip_prefix('"').unwrap_or(rest);
    rest.split(['"', ',', '}']).next()
}

pub(crate) fn number(text: &str, name: &str) -> Option<i64> {
    member(text, name)?.parse().ok()
}
