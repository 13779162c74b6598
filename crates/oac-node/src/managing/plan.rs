//! What a managing node does next with its generations: a table of what is known, and `plan`, which reads it and says
//! what is to be done. No file, no process, no clock.
//!
//! | what happened | what the planner does with it |
//! | --- | --- |
//! | records were loaded | their readiness begins; nothing is ready by its files |
//! | a deployment was adopted | the target is wanted; a changed one cancels the running attempt |
//! | Core keeps a generation no longer | rechecked when its turn comes; then it serves nothing any more |
//! | the connection ended | its grants are void; nothing is prepared or repaired until the next one delivers |
//! | a probe ended | the only way to be ready |
//! | a child ended | what it left is loaded again, whatever it said |
//!
//! One child runs at a time. A collection goes before a preparation: it is short, bounded, and makes room. After one a
//! preparation that is due goes first, and one that failed waits as a failed preparation does.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use oac_generations::{
    Connection, Deployment, Generations, Grant, Identity, Unneeded, Use,
    attempts::{Attempts, Candidate},
    limits::COLLECTION,
    readiness::{Ended, Probed, Readiness, Standing},
    recovery::{self, Recovered, Recovery},
    state::State,
};
use oac_model::{ConnectionId, DiagnosticCode, Generation};
use oac_peer::node::{Local, Standing as Reported};
use oac_wire::frames::{self, RetentionReference};

use crate::limits::{PROBE_TURN, READY_PROBE};

/// What the shell has to do.
#[derive(Debug)]
pub(super) enum Effect {
    /// Start a child that prepares or repairs. The use lasts until it was waited for.
    Prepare(Identity, Use),
    /// Start a child that collects.
    Collect(Grant, Unneeded),
    /// Kill the running child's process group; its end is reported as any other.
    Kill,
    /// Probe the generation's provider. The use lasts until that ended.
    Probe(Generation, Use),
}

/// What was found when a generation was loaded again.
#[derive(Debug)]
pub(super) enum Reloaded {
    Nothing,
    Found(Box<Recovered>),
    /// Its records disagree or cannot be read: it serves nothing until another attempt mends that.
    Unreadable,
}

/// The end of a child.
#[derive(Debug)]
pub(super) struct End {
    pub(super) generation: Generation,
    pub(super) how: Ended,
    pub(super) reloaded: Reloaded,
    /// A provider of it, or a placeholder, is loaded now.
    pub(super) loaded: bool,
}

#[derive(Debug)]
struct Entry {
    identity: Identity,
    /// `None` while it is going and when it is gone.
    readiness: Option<Readiness>,
    loaded: bool,
    probing: bool,
    /// When its last probe began.
    probed: Option<Duration>,
}

/// Of a published generation without a provider.
const NOT_LOADED: Probed = Probed::Failed(DiagnosticCode::ProviderUnavailable);

impl Entry {
    /// Published, and nothing was loaded that could be probed.
    fn lacks_provider(&self) -> bool {
        !self.loaded && self.readiness.is_some_and(Readiness::may_be_probed)
    }

    /// No probe will ever judge what was not loaded: that is its judgement.
    fn judge_load(&mut self) {
        if self.lacks_provider() {
            self.readiness = self.readiness.map(|readiness| readiness.probed(NOT_LOADED));
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Errand {
    Prepare,
    Collect,
}

#[derive(Debug)]
struct Child {
    generation: Generation,
    errand: Errand,
    since: Duration,
    /// As what a kill of ours ends it.
    ends: Option<Ended>,
    killed: bool,
}

/// Whose turn it is to be probed: one turn each second, of which every fourth is the target's and every fourth the
/// serving one's; the others go round.
#[derive(Debug, Default)]
struct Turns {
    turn: u64,
    due: Duration,
    last: Option<Generation>,
}

#[derive(Debug)]
pub(super) struct Planner {
    uses: Generations,
    attempts: Attempts,
    entries: BTreeMap<Generation, Entry>,
    deployment: Option<Deployment>,
    connection: Option<Connection>,
    /// The current connection has delivered a deployment: before that it authorizes no preparation and no repair.
    authorized: bool,
    grants: VecDeque<Grant>,
    child: Option<Child>,
    /// The last child collected: what is due to be prepared goes before the next collection.
    collected: bool,
    turns: Turns,
    stopping: bool,
}

impl Planner {
    /// What a start found; `loaded` says of which generations a provider or placeholder is loaded.
    pub(super) fn new(recovery: &Recovery, loaded: impl Fn(Generation) -> bool) -> Self {
        let mut planner = Self {
            uses: Generations::default(),
            attempts: Attempts::default(),
            entries: BTreeMap::new(),
            deployment: None,
            connection: None,
            authorized: false,
            grants: VecDeque::new(),
            child: None,
            collected: false,
            turns: Turns::default(),
            stopping: false,
        };
        for Recovered { found, standing } in &recovery.held {
            planner.uses.loaded(found.identity, found.state);
            planner.enter(found.identity, Readiness::loaded(standing));
        }
        for identity in &recovery.dropped {
            planner.enter(*identity, None);
        }
        for entry in planner.entries.values_mut() {
            entry.loaded = loaded(entry.identity.generation);
            entry.judge_load();
        }
        planner
    }

    fn enter(&mut self, identity: Identity, readiness: Option<Readiness>) {
        let entry = Entry {
            identity,
            readiness,
            loaded: false,
            probing: false,
            probed: None,
        };
        self.entries.insert(identity.generation, entry);
    }

    pub(super) fn connected(&mut self, id: ConnectionId) {
        self.connection = Some(Connection::new(id));
    }

    /// Grants, and what it authorized, end with their connection; a child that has started may finish.
    pub(super) fn disconnected(&mut self) {
        self.connection = None;
        self.authorized = false;
        self.grants.clear();
    }

    /// A delivery was adopted. `target` is its identity on this host.
    pub(super) fn deployed(&mut self, delivered: &frames::Deployment, target: Identity) {
        let deployment = Deployment {
            target: delivered.generation,
            serving: delivered.serving_generation.0,
        };
        self.deployment = Some(deployment);
        self.authorized = true;
        self.uses.deployed(deployment);
        let canceled = self.attempts.deployed(deployment);
        if let Some(child) = &mut self.child
            && Some(child.generation) == canceled
        {
            child.ends.get_or_insert(Ended::Canceled);
        }
        if !self.entries.contains_key(&target.generation) {
            self.enter(target, Some(Readiness::wanted()));
        }
        self.forget_unwanted();
    }

    /// A former target of which nothing came to this host.
    fn forget_unwanted(&mut self) {
        let target = self.deployment.map(|deployment| deployment.target);
        let child = self.child.as_ref().map(|child| child.generation);
        let uses = &self.uses;
        self.entries.retain(|generation, entry| {
            let here =
                entry.readiness.is_none() || uses.state(*generation).is_some_and(|s| s > State::Unknown);
            here || Some(*generation) == target || Some(*generation) == child
        });
    }

    /// Core keeps these no longer, it said on connection `from`.
    pub(super) fn granted(&mut self, from: ConnectionId, references: &[RetentionReference]) {
        let Some(connection) = &self.connection else {
            return;
        };
        let granted = references
            .iter()
            .filter_map(|r| connection.granted(from, r.generation, r.specification_digest));
        // One for each: what is asked again while it waits is granted again.
        for grant in granted {
            self.grants
                .retain(|other| other.generation() != grant.generation());
            self.grants.push_back(grant);
        }
    }

    /// A use of a published generation by an operation, until its native work ended.
    pub(super) fn acquire(&mut self, generation: Generation) -> Option<Use> {
        self.uses.acquire(generation).ok()
    }

    pub(super) fn probed(&mut self, generation: Generation, how: Probed, now: Duration) {
        if let Some(entry) = self.entries.get_mut(&generation) {
            entry.probing = false;
            entry.readiness = entry.readiness.map(|readiness| readiness.probed(how));
        }
        self.attempts.probed(generation, how, now);
    }

    pub(super) fn ended(&mut self, end: End, now: Duration) {
        let Some(child) = self.child.take() else {
            return;
        };
        let End {
            generation,
            how,
            reloaded,
            loaded,
        } = end;
        let how = match (how, child.ends) {
            // It was done before it could be stopped.
            (Ended::Completed, _) | (_, None) => how,
            (_, Some(ends)) => ends,
        };
        // Status 0 without a published configuration is a defect of the child: no probe could ever judge it.
        let published = matches!(&reloaded, Reloaded::Found(r) if r.found.state.is_published());
        let how = match (how, child.errand) {
            (Ended::Completed, Errand::Prepare) if !published => Ended::Failed,
            (how, _) => how,
        };
        match child.errand {
            Errand::Prepare => self.attempts.ended(generation, how, now),
            Errand::Collect => self.attempts.collected(generation, how, now),
        }
        let Some(entry) = self.entries.get_mut(&generation) else {
            return;
        };
        entry.loaded = loaded;
        let (state, standing) = match reloaded {
            Reloaded::Found(recovered) => {
                let Recovered { found, standing } = *recovered;
                (found.state, standing)
            }
            Reloaded::Nothing => (State::Unknown, recovery::Standing::Unfinished),
            Reloaded::Unreadable => {
                // Something of it may be there: it stays in the table, so that Core is asked about it.
                let state = self.uses.state(generation).unwrap_or(State::Unknown);
                (
                    state.clamp(State::Planned, State::Publishing),
                    recovery::Standing::Unfinished,
                )
            }
        };
        self.uses.loaded(entry.identity, state);
        entry.readiness = entry
            .readiness
            .and_then(|readiness| readiness.ended(how, &standing));
        if how == Ended::Completed && entry.lacks_provider() {
            entry.judge_load();
            self.attempts.probed(generation, NOT_LOADED, now);
        }
        self.forget_unwanted();
    }

    /// The process is to end: the child ends first, and nothing is started.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
        if let Some(child) = &mut self.child {
            child.ends.get_or_insert(Ended::Canceled);
        }
    }

    pub(super) fn has_child(&self) -> bool {
        self.child.is_some()
    }

    /// When `plan` is due at the latest.
    pub(super) fn next_wakeup(&self) -> Duration {
        self.turns.due
    }

    /// What is to be done now. `works_on` says which generations a waiting or running operation needs.
    pub(super) fn plan(&mut self, now: Duration, works_on: &dyn Fn(Generation) -> bool) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.kill_child(now, &mut effects);
        if self.stopping {
            return effects;
        }
        if self.child.is_none() && self.collected {
            effects.extend(self.prepare(now, works_on));
        }
        while self.child.is_none()
            && let Some(grant) = self.grants.pop_front()
        {
            effects.extend(self.collect(grant, now, works_on));
        }
        if self.child.is_none() {
            effects.extend(self.prepare(now, works_on));
        }
        if now >= self.turns.due {
            self.turns.due = now + PROBE_TURN;
            effects.extend(self.probe(now));
            self.turns.turn += 1;
        }
        effects
    }

    fn kill_child(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let overdue = self.attempts.overdue(now);
        let Some(child) = &mut self.child else {
            return;
        };
        let late = match child.errand {
            Errand::Prepare => overdue == Some(child.generation),
            Errand::Collect => now >= child.since + COLLECTION,
        };
        if late {
            child.ends.get_or_insert(Ended::Failed);
        }
        if child.ends.is_some() && !child.killed {
            child.killed = true;
            effects.push(Effect::Kill);
        }
    }

    /// The recheck of a grant. Where it fails a later grant may pass.
    fn collect(
        &mut self,
        grant: Grant,
        now: Duration,
        works_on: &dyn Fn(Generation) -> bool,
    ) -> Option<Effect> {
        let generation = grant.generation();
        if works_on(generation) || !self.attempts.may_collect(generation, now) {
            return None;
        }
        let proof = match self.uses.prove(&grant) {
            Ok(proof) => proof,
            Err(needed) => {
                tracing::debug!(%generation, %needed, "a generation that Core keeps no longer stays for now");
                return None;
            }
        };
        let entry = self.entries.get_mut(&generation)?;
        entry.readiness = None;
        entry.loaded = false;
        self.begin(generation, Errand::Collect, now);
        // Nothing runs: the planner has no other child.
        let _ = self.attempts.start_collection();
        Some(Effect::Collect(grant, proof))
    }

    fn prepare(&mut self, now: Duration, works_on: &dyn Fn(Generation) -> bool) -> Option<Effect> {
        if !self.authorized {
            return None;
        }
        let candidates: Vec<Candidate> = self
            .entries
            .iter()
            .map(|(generation, entry)| Candidate {
                generation: *generation,
                // After an attempt it is loaded again, as often as the backoff allows.
                wanted: entry.lacks_provider() || entry.readiness.is_some_and(Readiness::wants_attempt),
                used: self.uses.is_used(*generation) || works_on(*generation),
                going: entry.readiness.is_none(),
            })
            .collect();
        let generation = self.attempts.due(&candidates, now)?;
        let entry = self.entries.get_mut(&generation)?;
        let kept = self.uses.attempt(entry.identity).ok()?;
        if !self.attempts.start(generation, now) {
            return None;
        }
        entry.readiness = entry.readiness.map(Readiness::attempted);
        let identity = entry.identity;
        self.begin(generation, Errand::Prepare, now);
        Some(Effect::Prepare(identity, kept))
    }

    fn begin(&mut self, generation: Generation, errand: Errand, now: Duration) {
        self.collected = errand == Errand::Collect;
        self.child = Some(Child {
            generation,
            errand,
            since: now,
            ends: None,
            killed: false,
        });
    }

    /// The probe of this turn, if one is due.
    fn probe(&mut self, now: Duration) -> Option<Effect> {
        let deployment = self.deployment;
        let generation = match self.turns.turn % 4 {
            1 => deployment.map(|d| d.target).filter(|g| self.is_due(*g, now)),
            3 => deployment
                .and_then(|d| d.serving)
                .filter(|g| self.is_due(*g, now)),
            _ => {
                let due = self.entries.keys().copied().filter(|g| self.is_due(*g, now));
                let behind = |g: &Generation| (self.turns.last.is_some_and(|last| *g <= last), *g);
                let next = due.min_by_key(behind);
                self.turns.last = next.or(self.turns.last);
                next
            }
        }?;
        let kept = self.uses.acquire(generation).ok()?;
        let entry = self.entries.get_mut(&generation)?;
        entry.probing = true;
        entry.probed = Some(now);
        Some(Effect::Probe(generation, kept))
    }

    /// One that is ready is probed every 10 s, any other at every turn. While a child works on it, its probe comes after.
    fn is_due(&self, generation: Generation, now: Duration) -> bool {
        let Some(entry) = self.entries.get(&generation) else {
            return false;
        };
        let Some(readiness) = entry.readiness else {
            return false;
        };
        let rests = readiness.standing() == Standing::Ready
            && entry.probed.is_some_and(|probed| now < probed + READY_PROBE);
        let worked_on = self
            .child
            .as_ref()
            .is_some_and(|child| child.generation == generation);
        readiness.may_be_probed() && entry.loaded && !entry.probing && !rests && !worked_on
    }

    /// The generations as the connection reports them and asks about them.
    pub(super) fn table(&self) -> Vec<Local> {
        let local = |(generation, entry): (&Generation, &Entry)| Local {
            generation: *generation,
            specification_digest: entry.identity.specification_digest,
            standing: self.standing(*generation, entry),
            acquirable: entry.loaded
                && entry.readiness.is_some()
                && self.uses.state(*generation).is_some_and(State::is_published),
        };
        self.entries.iter().map(local).collect()
    }

    fn standing(&self, generation: Generation, entry: &Entry) -> Reported {
        match entry.readiness.map(Readiness::standing) {
            Some(Standing::Ready) => Reported::Ready,
            Some(Standing::Preparing) => Reported::Preparing,
            Some(Standing::Failed(code)) => Reported::Failed(code),
            None if self
                .child
                .as_ref()
                .is_some_and(|child| child.generation == generation) =>
            {
                Reported::Removing
            }
            None if self.uses.state(generation).is_some() => Reported::Stalled,
            None => Reported::Dropped,
        }
    }

    /// What new sandboxes would be made with is ready: the serving generation, else the target.
    pub(super) fn is_ready(&self) -> bool {
        let serving = self.deployment.map(|d| d.serving.unwrap_or(d.target));
        let entry = serving.and_then(|generation| self.entries.get(&generation));
        entry
            .and_then(|entry| entry.readiness)
            .is_some_and(|readiness| readiness.standing() == Standing::Ready)
    }
}

#[cfg(test)]
mod tests;
