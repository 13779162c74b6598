//! What one owner remembers of an allocation that can be suspended.

use std::collections::{BTreeMap, BTreeSet};

use oac_model::{ComputePhase, ConnectionId, NodeId, OperationId};

use super::{Answer, Held, Observation};
use crate::{
    Millis,
    allocation::{self, Presence},
    limits,
};

/// What the current compute was last seen to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    Running,
    Paused,
    Dead,
}

/// What may be done at one node, and when.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    on: Option<ConnectionId>,
    look_at: Millis,
    act_at: Millis,
    attempts: u32,
}

/// What one owner has seen of an allocation since it took over. Losing it only makes Core look again and wait longer.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// Looks by `info`, losses, and the end of a cleanup.
    pub base: allocation::Watch,
    phase: Option<ComputePhase>,
    /// Since when this owner knows of the present phase.
    since: Millis,
    /// Time in the present phase during which the node was online.
    online: Millis,
    online_at: Option<Millis>,
    pub(super) seen: Option<Seen>,
    /// A wake command exited 0 then, and no link came since.
    pub(super) woken: Option<Millis>,
    pace: BTreeMap<NodeId, Pace>,
    pub(super) restore_at: Millis,
    /// Nodes that did not take the checkpoint when they were asked to: how often, and until when they are passed over.
    declined: BTreeMap<NodeId, (u32, Millis)>,
    /// The latest suspend that was begun, and how many were since one succeeded.
    suspend: Option<OperationId>,
    suspends: u32,
    /// No other one begins before.
    pub(super) suspend_at: Millis,
}

impl Watch {
    /// Takes the passing of time into account. Called before every `plan`, with the base's snapshot.
    pub fn tick(
        &mut self,
        held: &Held,
        base: &allocation::Snapshot,
        connected: &BTreeMap<NodeId, ConnectionId>,
        now: Millis,
    ) {
        self.base.tick(base, now);
        let phase = held.phase();
        self.count_suspends(held, now);
        if self.phase != phase {
            self.phase = phase;
            self.since = now;
            self.online = 0;
            self.online_at = None;
            self.seen = None;
            self.woken = None;
            self.restore_at = now;
            self.declined.clear();
            for pace in self.pace.values_mut() {
                pace.look_at = now;
            }
        }
        let online = matches!(base.node, Presence::Online { .. });
        if let (Some(before), true) = (self.online_at, online) {
            self.online += (now - before).max(0);
        }
        self.online_at = online.then_some(now);
        let concerned: BTreeSet<NodeId> = held.computes.iter().map(|c| c.node).chain([held.node]).collect();
        self.pace.retain(|node, _| concerned.contains(node));
        for node in concerned {
            let on = connected.get(&node).copied();
            let pace = self.pace.entry(node).or_default();
            // Another connection starts afresh; none keeps what was earned.
            if on.is_some() && pace.on != on {
                *pace = Pace {
                    on,
                    look_at: now,
                    act_at: now,
                    attempts: 0,
                };
            }
        }
    }

    /// Each suspend has an id that is stored, so every one that was begun is seen here, however it ended. What did not end
    /// in a checkpoint repeats with backoff, counted from when the sandbox goes on: it takes the runtime away from what it
    /// does, and its node the time of a capture.
    fn count_suspends(&mut self, held: &Held, now: Millis) {
        let phase = held.phase();
        let begun = self.suspend != held.suspend;
        if begun {
            self.suspend = held.suspend;
            self.suspends = self.suspends.saturating_add(1);
        }
        if held.checkpoint.is_some() {
            self.suspends = 0;
        }
        let goes_on = phase == Some(ComputePhase::Running) && (begun || self.phase != phase);
        if goes_on && self.suspends > 0 {
            self.suspend_at = now + backoff(self.suspends - 1);
        }
    }

    /// No suspend is begun before, after those that ended without a checkpoint.
    pub fn suspends_at(&self) -> Millis {
        self.suspend_at
    }

    /// The wake or restore has failed by its time (core.md section 12).
    pub(super) fn waited_long(&self) -> bool {
        self.online >= limits::WAKE_FAILED
    }

    /// When that will be, while the node stays online.
    pub(super) fn waited_long_at(&self, now: Millis) -> Millis {
        now + limits::WAKE_FAILED - self.online
    }

    /// How long the phase has lasted at least. The database's clock knows of the time before a takeover, and may be set back;
    /// what this owner saw pass has passed.
    pub(super) fn lasted(&self, stored: Millis, now: Millis) -> Millis {
        stored.max(now - self.since)
    }

    pub(super) fn look_at(&self, node: NodeId, now: Millis) -> Millis {
        self.pace.get(&node).map_or(now, |pace| pace.look_at)
    }

    pub(super) fn act_at(&self, node: NodeId, now: Millis) -> Millis {
        self.pace.get(&node).map_or(now, |pace| pace.act_at)
    }

    /// A mutation begins at a node.
    pub fn began(&mut self) {
        self.base.trust();
    }

    /// An observation came back, or did not.
    pub fn observed(&mut self, held: &Held, node: NodeId, of: Observation, answer: Answer, now: Millis) {
        let pace = self.pace.entry(node).or_default();
        pace.look_at = now + limits::OBSERVE_UNRESOLVED;
        if !answer.is_definite() {
            back_off(pace, now);
        }
        let current = held.current().map(|c| (c.generation, c.node));
        let about_current = match of {
            Observation::Compute(generation) => current == Some((generation, node)),
            Observation::Resume => held.replaceable(),
            Observation::Suspend | Observation::Info => false,
        };
        if about_current {
            self.saw(answer);
        }
    }

    fn saw(&mut self, answer: Answer) {
        self.seen = match answer {
            Answer::Running => Some(Seen::Running),
            Answer::Paused => Some(Seen::Paused),
            answer if answer.is_dead() => Some(Seen::Dead),
            _ => None,
        };
    }

    /// A mutation at `node` was answered so that nothing is unknown of it.
    pub fn settled(&mut self, node: NodeId, answer: Answer) {
        let pace = self.pace.entry(node).or_default();
        pace.attempts = 0;
        if answer != Answer::Done {
            self.saw(answer);
        }
    }

    /// The wake command exited 0: the link is next.
    pub fn woke(&mut self, now: Millis) {
        self.woken = Some(now);
        self.seen = None;
    }

    /// A mutation was sent to `node` and has no usable answer: look, and wait before another.
    pub fn answer_lost(&mut self, node: NodeId, now: Millis) {
        let pace = self.pace.entry(node).or_default();
        pace.look_at = now;
        back_off(pace, now);
        self.seen = None;
        self.woken = None;
    }

    /// A mutation could not be sent.
    pub fn not_sent(&mut self, node: NodeId, now: Millis) {
        let pace = self.pace.entry(node).or_default();
        pace.act_at = now + limits::UNSENT_RETRY;
    }

    /// A node that was chosen did not take the checkpoint: others are asked at once, and it again with backoff. What it
    /// refused was no attempt to restore, so it counts for nothing else.
    pub fn declined(&mut self, node: NodeId, now: Millis) {
        let (times, until) = self.declined.entry(node).or_default();
        *until = now + backoff(*times);
        *times = times.saturating_add(1);
    }

    /// The nodes that are not asked now.
    pub fn passed_over(&self, now: Millis) -> BTreeSet<NodeId> {
        let recent = self.declined.iter().filter(|(_, (_, until))| *until > now);
        recent.map(|(node, _)| *node).collect()
    }

    /// No node takes the checkpoint now.
    pub fn no_target(&mut self, now: Millis) {
        self.restore_at = now + limits::RESTORE_RETRY;
    }
}

fn back_off(pace: &mut Pace, now: Millis) {
    pace.act_at = now + backoff(pace.attempts);
    pace.attempts += 1;
}

/// What is unresolved repeats after this, the more often it was tried.
pub(super) fn backoff(attempts: u32) -> Millis {
    (limits::CLEANUP_BACKOFF_FIRST << attempts.min(16)).min(limits::CLEANUP_BACKOFF_LAST)
}
