//! What to do next about one allocation, and what one owner remembers of it.

use oac_model::{AllocationState, ComputePhase, ConnectionId};

use super::{Cause, Kill, Mutation, Sighting, State};
use crate::{Millis, limits};

/// The allocation's node, as the hub sees it now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Offline,
    Online {
        connection: ConnectionId,
        /// The allocation's generation is ready there, so a create may be sent.
        ready: bool,
    },
}

/// Everything one decision looks at, besides the [`Watch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    pub state: State,
    /// A reservation was given up; it is released instead of begun.
    pub given_up: Option<Cause>,
    /// This process is working on the allocation: an operation is between two of its steps.
    pub in_flight: bool,
    pub node: Presence,
    /// The runtime has linked at least once.
    pub initialized: bool,
    /// The runtime is linked now.
    pub linked: bool,
}

/// The next step. Each is one transaction, or one operation with its three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Store the create's intent with a fresh link credential, mark it sent, send it, store its outcome.
    Create,
    /// The same for a kill.
    Kill,
    /// Send `info`; it changes nothing by itself.
    Look,
    /// The open mutation's frame never left: store it as rejected.
    DropIntent,
    /// The open mutation was sent and nobody waits for its answer: store it as unconfirmed.
    GiveUpAnswer,
    /// Enter cleanup, or release when nothing was ever sent.
    GiveUp(Cause),
}

/// What `plan` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Act(Action),
    /// Nothing to do before `until`; without it, before something changes.
    Wait {
        until: Option<Millis>,
    },
}

/// What one owner has seen of an allocation since it took over. Losing it only makes Core look again and wait longer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Watch {
    started: bool,
    kind: Option<AllocationState>,
    /// When this owner first saw the present state.
    since: Millis,
    phase: Option<ComputePhase>,
    /// When this owner first saw the present phase.
    phase_since: Millis,
    /// Time in the present state during which the node was online.
    online: Millis,
    online_at: Option<Millis>,
    away_since: Option<Millis>,
    link_down_since: Option<Millis>,
    looked: Option<(ConnectionId, Millis)>,
    /// The last look found anything but a running sandbox.
    unwell: bool,
    suspected: Option<(ConnectionId, Millis)>,
    /// Since the last mutation of unknown outcome an observation answered definitely.
    definite: bool,
    /// A kill was confirmed, and `info` still does not answer a settled absence.
    kill_again: bool,
    attempts: u32,
    retry_at: Millis,
    /// The connection the present backoff was earned on; another one starts afresh.
    tried_on: Option<ConnectionId>,
}

fn phase_of(state: State) -> Option<ComputePhase> {
    match state {
        State::Running { phase } => Some(phase),
        _ => None,
    }
}

/// The phases in which two answers confirm a loss (core.md section 13).
fn may_be_lost(phase: ComputePhase) -> bool {
    match phase {
        ComputePhase::Disabled
        | ComputePhase::Running
        | ComputePhase::Suspending
        | ComputePhase::Restoring
        | ComputePhase::Waking => true,
        ComputePhase::Quiescing | ComputePhase::Suspended => false,
    }
}

/// What an observation led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    Nothing,
    /// The second qualifying answer: confirm the loss in one transaction that rechecks the preconditions.
    Loss,
}

impl Watch {
    /// Takes the passing of time into account. Called before every `plan`.
    pub fn tick(&mut self, snapshot: &Snapshot, now: Millis) {
        let kind = snapshot.state.kind();
        if !self.started || self.kind != Some(kind) {
            *self = Self {
                started: true,
                kind: Some(kind),
                since: now,
                retry_at: now,
                looked: self.looked,
                link_down_since: self.link_down_since,
                away_since: self.away_since,
                ..Self::default()
            };
        }
        let phase = phase_of(snapshot.state);
        if self.phase != phase {
            self.phase = phase;
            self.phase_since = now;
            self.suspected = None;
        }
        let connection = match snapshot.node {
            Presence::Online { connection, .. } => Some(connection),
            Presence::Offline => None,
        };
        if let (Some(before), Some(_)) = (self.online_at, connection) {
            self.online += (now - before).max(0);
        }
        self.online_at = connection.map(|_| now);
        self.away_since = match connection {
            Some(_) => None,
            None => self.away_since.or(Some(now)),
        };
        if self.suspected.is_some_and(|(on, _)| Some(on) != connection) || !self.may_suspect(snapshot) {
            self.suspected = None;
        }
        if snapshot.linked && self.unwell && self.link_down_since.is_some() {
            // What was found before it linked again no longer holds.
            self.looked = None;
        }
        self.link_down_since = if snapshot.linked {
            None
        } else {
            self.link_down_since.or(Some(now))
        };
        if connection.is_some() && self.tried_on != connection {
            self.tried_on = connection;
            self.attempts = 0;
            self.retry_at = self.retry_at.min(now);
        }
    }

    /// The preconditions of a confirmed loss that one process can see (core.md section 13).
    fn may_suspect(&self, snapshot: &Snapshot) -> bool {
        phase_of(snapshot.state).is_some_and(may_be_lost) && !snapshot.in_flight
    }

    /// The first of two answers that confirm a loss has come.
    pub fn suspects(&self) -> bool {
        self.suspected.is_some()
    }

    /// A mutation begins: what was answered before it confirms nothing after it.
    pub fn trust(&mut self) {
        self.suspected = None;
    }

    /// When the node counts as disconnected, if it does not come back; a restart of either side is shorter.
    pub fn disconnected_at(&self) -> Option<Millis> {
        self.away_since.map(|since| since + limits::ONLINE_WINDOW)
    }

    /// An `info` sent on `connection` came back, or did not.
    pub fn looked(
        &mut self,
        state: State,
        connection: ConnectionId,
        sighting: Sighting,
        now: Millis,
    ) -> Noted {
        self.looked = Some((connection, now));
        self.unwell = sighting != Sighting::Running;
        self.definite |= sighting.is_definite();
        let mut noted = Noted::Nothing;
        match state {
            State::Running { .. } => {
                self.suspected = match (sighting, self.suspected) {
                    (Sighting::Absent { lost: true }, Some((on, first))) if on == connection => {
                        if now - first >= limits::LOSS_GAP {
                            noted = Noted::Loss;
                        }
                        Some((on, first))
                    }
                    (Sighting::Absent { lost: true }, _) => Some((connection, now)),
                    _ => None,
                };
            }
            State::CleanupPending { kill, .. } => {
                let confirmed = kill == Kill::Confirmed;
                self.kill_again |= confirmed && sighting != Sighting::Unanswered;
                if confirmed || !sighting.is_definite() {
                    self.back_off(now);
                }
            }
            State::Reserved | State::Creating(_) | State::Released => {}
        }
        noted
    }

    /// A create was answered on `connection`, which tells as much as an `info` would.
    pub fn create_answered(&mut self, connection: ConnectionId, now: Millis) {
        self.looked = Some((connection, now));
        self.definite = true;
    }

    /// A kill was confirmed; `info` must now say so.
    pub fn kill_answered(&mut self) {
        self.kill_again = false;
        self.definite = true;
    }

    /// A mutation was sent and has no usable answer: look before anything else.
    pub fn answer_lost(&mut self, now: Millis) {
        self.definite = false;
        self.looked = None;
        if self.kind == Some(AllocationState::CleanupPending) {
            self.back_off(now);
        }
    }

    /// A mutation could not be sent.
    pub fn not_sent(&mut self, now: Millis) {
        self.retry_at = now + limits::UNSENT_RETRY;
    }

    fn back_off(&mut self, now: Millis) {
        let doubled = limits::CLEANUP_BACKOFF_FIRST << self.attempts.min(16);
        self.attempts += 1;
        self.retry_at = now + doubled.min(limits::CLEANUP_BACKOFF_LAST);
    }
}

/// Decides the one next step. Needs `watch.tick` for the same snapshot and `now` before it.
pub fn plan(snapshot: &Snapshot, watch: &Watch, now: Millis) -> Next {
    if snapshot.in_flight || snapshot.state == State::Released {
        return Next::Wait { until: None };
    }
    match snapshot.state.open() {
        Some(Mutation::Intent) => return Next::Act(Action::DropIntent),
        Some(_) => return Next::Act(Action::GiveUpAnswer),
        None => {}
    }
    match snapshot.state {
        State::Reserved => reserved(snapshot, watch, now),
        State::Creating(_) => creating(snapshot, watch, now),
        State::Running { phase } => running(snapshot, phase, watch, now),
        State::CleanupPending { create, kill, .. } => {
            let unknown = create == super::CreateProof::Unproven(Mutation::Unconfirmed)
                || kill == Kill::Open(Mutation::Unconfirmed);
            let look = if kill == Kill::Confirmed {
                !watch.kill_again
            } else {
                unknown && !watch.definite
            };
            let action = if look { Action::Look } else { Action::Kill };
            match snapshot.node {
                Presence::Offline => Next::Wait { until: None },
                Presence::Online { .. } => at(watch.retry_at, now, action),
            }
        }
        State::Released => Next::Wait { until: None },
    }
}

fn at(due: Millis, now: Millis, action: Action) -> Next {
    if now >= due {
        Next::Act(action)
    } else {
        Next::Wait { until: Some(due) }
    }
}

/// The earlier of two plans, where an act is earliest.
fn earlier(a: Next, b: Next) -> Next {
    match (a, b) {
        (Next::Act(_), _) => a,
        (_, Next::Act(_)) => b,
        (Next::Wait { until: a }, Next::Wait { until: b }) => Next::Wait {
            until: [a, b].into_iter().flatten().min(),
        },
    }
}

fn reserved(snapshot: &Snapshot, watch: &Watch, now: Millis) -> Next {
    if let Some(cause) = snapshot.given_up {
        return Next::Act(Action::GiveUp(cause));
    }
    let expiry = at(
        watch.since + limits::RESERVED_UNSENT,
        now,
        Action::GiveUp(Cause::Unsent),
    );
    match snapshot.node {
        Presence::Online { ready: true, .. } => earlier(expiry, at(watch.retry_at, now, Action::Create)),
        Presence::Online { .. } | Presence::Offline => expiry,
    }
}

/// Time gives up only what never linked: what did keeps its files, whatever is still unknown of it (INV-C37). A link
/// counts once it is stored, before which it takes no Turn.
fn unlinked(snapshot: &Snapshot, now: Millis, due: Millis, cause: Cause) -> Next {
    if snapshot.initialized {
        Next::Wait { until: None }
    } else {
        at(due, now, Action::GiveUp(cause))
    }
}

fn creating(snapshot: &Snapshot, watch: &Watch, now: Millis) -> Next {
    let Presence::Online { connection, .. } = snapshot.node else {
        return Next::Wait { until: None };
    };
    let expiry = unlinked(
        snapshot,
        now,
        now - watch.online + limits::CREATE_UNRESOLVED,
        Cause::CreateUnresolved,
    );
    let due = match watch.looked {
        Some((on, at)) if on == connection => at + limits::OBSERVE_UNRESOLVED,
        _ => now,
    };
    earlier(expiry, at(due, now, Action::Look))
}

fn running(snapshot: &Snapshot, phase: ComputePhase, watch: &Watch, now: Millis) -> Next {
    let Presence::Online { connection, .. } = snapshot.node else {
        return Next::Wait { until: None };
    };
    if !may_be_lost(phase) {
        return Next::Wait { until: None };
    }
    // A sandbox on its way to or from a checkpoint has no link; what lasts too long is looked into.
    let troubled_since = match phase {
        ComputePhase::Disabled | ComputePhase::Running => watch.link_down_since,
        _ => Some(watch.phase_since),
    };
    let first_link = unlinked(
        snapshot,
        now,
        now - watch.online + limits::FIRST_LINK,
        Cause::NeverLinked,
    );
    let due = match (watch.looked, watch.suspected) {
        (Some((on, last)), suspected) if on == connection => match (suspected, troubled_since) {
            (Some((_, first)), _) => Some((first + limits::LOSS_GAP).max(last + 1)),
            (None, Some(down)) => Some((down + limits::LINK_DOWN).max(last + limits::LINK_DOWN)),
            (None, None) if watch.unwell => Some(last + limits::LINK_DOWN),
            (None, None) => None,
        },
        // A node that connected is asked at once.
        _ => Some(now),
    };
    let look = due.map_or(Next::Wait { until: None }, |due| at(due, now, Action::Look));
    earlier(first_link, look)
}
