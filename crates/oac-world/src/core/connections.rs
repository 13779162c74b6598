//! The hub: dials, machines, and their actions in order (`oac-core`'s `hub`).

use std::collections::{BTreeMap, VecDeque};

use oac_model::{ConnectionId, NodeId, OwnerEpoch, Reference, RequestId};
use oac_peer::core::{Action, CallOutcome, CloseReason, Connection, Event, Recorded, Registered, StateName};

use super::transaction::{Purpose, Reply, TxId, Write, recording_failed, retries};
use crate::{
    agenda::Millis,
    defect::Defect,
    fault::Tamper,
    host::wall,
    ids,
    invariant::Invariant,
    network::{self, DialAnswer, DialId, End, Link, LinkId, Note, Pipe},
    world::{Happening, World},
};

pub(crate) struct Conn {
    pub(crate) machine: Connection,
    pub(crate) node: NodeId,
    pub(crate) epoch: OwnerEpoch,
    pub(crate) link: LinkId,
    pub(crate) open: bool,
    pub(crate) tick_at: Option<Millis>,
    pub(crate) callers: BTreeMap<RequestId, Caller>,
    /// Transactions without an answer.
    pub(crate) owed: u32,
}

/// Who waits for a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) reference: Reference,
    pub(crate) who: Who,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// A step of the worker of this epoch.
    Step(OwnerEpoch),
    /// One of a burst; its command prints this number.
    Burst(u64),
}

impl World {
    /// Checks 1 to 7 of protocol.md section 4.
    pub(crate) fn dial_arrives(&mut self, id: DialId) {
        let Some(dial) = self.network.dials.get(&id).copied() else {
            return;
        };
        let answer = self.admit(&dial);
        if let (DialAnswer::Upgraded(link), true) = (answer, dial.duplicate)
            && let Some(link) = self.network.links.get_mut(&link)
        {
            link.run = None;
        }
        self.after(1, 40, Happening::DialAnswered(id, answer));
    }

    fn admit(&mut self, dial: &network::Dial) -> DialAnswer {
        let core = dial.core;
        let Some(epoch) = self.ownership(core) else {
            return DialAnswer::Failed;
        };
        let (now, run, serial) = (self.now, self.cores[core].run, self.number());
        let host = &self.hosts[dial.host];
        let (node, identity) = (host.id, host.identity.clone());
        let row = &self.db.nodes[&node];
        let (retired, managing) = (row.retired, row.managing);
        let ignores = self.has(Defect::IgnoreReservation);
        let unchecked = self.has(Defect::DialWithoutCredential);
        let cut = self.cores[core].cut_until > now;
        let Some(life) = self.cores[core].life.as_mut() else {
            return DialAnswer::Failed;
        };
        if life.stopping || cut {
            return DialAnswer::Failed;
        }
        if retired && !unchecked {
            self.reach("a removed node's dial was answered 401");
            return DialAnswer::Unauthorized;
        }
        let connection = ids::connection(serial);
        if life.reservations.reserve(node, connection).is_err() {
            self.reach("a dial was answered 409");
            if !ignores {
                return DialAnswer::Failed;
            }
        }
        let removed = self.history.removed.contains(&node);
        self.demand(!removed, Invariant::P26, || {
            "a removed node is upgraded".to_owned()
        });
        let link = self.network.open(Link {
            host: dial.host,
            run: Some(dial.run),
            core,
            core_run: run,
            connection,
            to_core: Pipe::default(),
            to_node: Pipe::default(),
            core_open: true,
            node_open: true,
            hello: false,
            presence: false,
            sequence: 0,
            pending: Default::default(),
            accepted: 0,
            delivered: Vec::new(),
            violated: false,
            dishonest: false,
            shifted: 0,
        });
        let registered = Registered {
            node_id: node,
            installation_id: identity.installation_id,
            provider: identity.provider,
            backend_fingerprint: identity.backend_fingerprint,
            deployment_generation: identity.deployment_generation,
            specification_digest: identity.specification_digest,
            managing,
        };
        let conn = Conn {
            machine: Connection::open(registered, connection, epoch, self.moment()),
            node,
            epoch,
            link,
            open: true,
            tick_at: None,
            callers: BTreeMap::new(),
            owed: 0,
        };
        if let Some(life) = self.cores[core].life.as_mut() {
            life.connections.insert(connection, conn);
        }
        if self.has(Defect::WelcomeBeforeHello) {
            let text = format!(
                "{{\"version\":1,\"type\":\"welcome\",\"connection_id\":\"{connection}\",\"owner_epoch\":{epoch}}}"
            );
            self.core_sends(core, connection, text);
        }
        self.set_connection_tick(core, connection);
        DialAnswer::Upgraded(link)
    }

    pub(crate) fn conn(&mut self, core: usize, connection: ConnectionId) -> Option<&mut Conn> {
        self.cores[core].life.as_mut()?.connections.get_mut(&connection)
    }

    pub(crate) fn frame_at_core(&mut self, id: LinkId, text: &str, note: &Note) {
        let Some(link) = self.network.links.get_mut(&id) else {
            return;
        };
        let (core, run, connection) = (link.core, link.core_run, link.connection);
        match network::member(text, "type") {
            Some("hello") => link.hello = true,
            Some("response") => {
                if let Some(request) = network::member(text, "id").and_then(|id| id.parse().ok()) {
                    link.pending.remove(&request);
                }
            }
            _ => {}
        }
        if !self.cores[core].is(run) {
            return;
        }
        if let (Note::Tampered(Tamper::FailureWithInfo, _), true) = (note, self.has(Defect::TrustFailedInfo))
        {
            return self.believe_failed(core, connection, text);
        }
        let ahead = self.cores[core].clock;
        self.core_takes(
            core,
            connection,
            Event::Message(text.as_bytes(), wall(self.now, ahead)),
        );
    }

    pub(crate) fn connection_ticks(&mut self, core: usize, run: u64, connection: ConnectionId) {
        let now = self.now;
        if !self.cores[core].is(run) {
            return;
        }
        let Some(conn) = self.conn(core, connection) else {
            return;
        };
        conn.tick_at = None;
        if conn.machine.next_wakeup().is_some_and(|due| due.0 <= now) {
            self.core_takes(core, connection, Event::Tick);
        } else {
            self.set_connection_tick(core, connection);
        }
    }

    pub(crate) fn set_connection_tick(&mut self, core: usize, connection: ConnectionId) {
        let (now, run) = (self.now, self.cores[core].run);
        let Some(conn) = self.conn(core, connection) else {
            return;
        };
        let Some(due) = conn.machine.next_wakeup() else {
            return;
        };
        let due = due.0.max(now);
        if conn.tick_at.is_none_or(|at| due < at) {
            conn.tick_at = Some(due);
            self.agenda
                .at(due, Happening::ConnectionTick(core, run, connection));
        }
    }

    /// One event of a connection and its actions.
    pub(crate) fn core_takes(&mut self, core: usize, id: ConnectionId, event: Event<'_>) {
        let now = self.moment();
        let Some(conn) = self.conn(core, id) else {
            return;
        };
        let (node, epoch, link) = (conn.node, conn.epoch, conn.link);
        let mut actions = VecDeque::from(conn.machine.apply(event, now));
        while let Some(action) = actions.pop_front() {
            match action {
                Action::RecordPresence(report) => {
                    if self.has(Defect::WelcomeBeforeCommit) {
                        let facts = report.managing.then(|| oac_peer::core::Facts {
                            deployment: oac_wire::frames::Deployment {
                                generation: self.db.target,
                                specification_digest: crate::host::digest(self.db.target),
                                serving_generation: oac_wire::Nullable(None),
                            },
                            ignored: Vec::new(),
                        });
                        if let Some(conn) = self.conn(core, id) {
                            let event = Event::PresenceRecorded(Recorded::Done(facts));
                            actions.extend(conn.machine.apply(event, now));
                        }
                    }
                    self.owes(
                        core,
                        id,
                        epoch,
                        Write::Presence(node, report),
                        Purpose::Presence(id),
                    );
                }
                Action::RecordHealth(health) => {
                    self.owes(
                        core,
                        id,
                        epoch,
                        Write::Health(node, id, health),
                        Purpose::Health(id),
                    );
                }
                Action::AnswerRetention(asked) => {
                    let full = self
                        .conn(core, id)
                        .is_some_and(|conn| conn.machine.pending() == 32);
                    if full {
                        self.reach("a retention request came while 32 requests were pending");
                    }
                    self.owes(core, id, epoch, Write::Retention(asked), Purpose::Retention(id));
                }
                Action::RemovePresence(connection) => {
                    let write = Write::RemovePresence(node, connection);
                    self.owes(core, id, epoch, write, Purpose::Removal(id));
                }
                Action::Send(text) => self.core_sends(core, id, text),
                Action::Live => {
                    self.say(|| format!("core {core}: node {} is live", ids::number(node.as_uuid())));
                    if let Some(life) = self.cores[core].life.as_mut() {
                        life.live.insert(node, id);
                    }
                    self.poke(core);
                }
                Action::Resolve(request, outcome) => self.resolved(core, id, request, outcome),
                Action::Close(reason) => {
                    self.check_closed(core, link, &reason);
                    if let Some(life) = self.cores[core].life.as_mut()
                        && life.live.get(&node) == Some(&id)
                    {
                        life.live.remove(&node);
                    }
                    if let Some(conn) = self.conn(core, id) {
                        conn.open = false;
                    }
                    self.close_end(link, End::Core, false);
                    self.poke(core);
                }
                Action::Free => {
                    if !self.has(Defect::ReservationLeaks)
                        && let Some(life) = self.cores[core].life.as_mut()
                    {
                        life.reservations.free(node, id);
                    }
                }
            }
        }
        self.forget_freed(core, id);
        self.set_connection_tick(core, id);
    }

    fn forget_freed(&mut self, core: usize, id: ConnectionId) {
        let done = self
            .conn(core, id)
            .is_some_and(|conn| conn.machine.state() == StateName::Freed && conn.owed == 0);
        if done && let Some(life) = self.cores[core].life.as_mut() {
            life.connections.remove(&id);
        }
    }

    fn owes(&mut self, core: usize, id: ConnectionId, epoch: OwnerEpoch, write: Write, purpose: Purpose) {
        if let Some(conn) = self.conn(core, id) {
            conn.owed += 1;
        }
        self.submit(core, Some(epoch), write, purpose);
    }

    /// A frame of the connection's own, requests aside.
    fn core_sends(&mut self, core: usize, id: ConnectionId, mut text: String) {
        let Some((link, true)) = self.conn(core, id).map(|conn| (conn.link, conn.open)) else {
            return;
        };
        if self.has(Defect::BrokenFrame) && self.random.one_in(20) {
            text = text.replacen("\"version\":1", "\"version\":2", 1);
        }
        let kind = network::member(&text, "type").unwrap_or_default().to_owned();
        let shifts = self.has(Defect::RetentionTakesSequence);
        if let Some(at) = self.network.links.get_mut(&link) {
            let (hello, presence) = (at.hello, at.presence);
            if crate::traffic::is_retention_ack(&text) {
                at.shifted += i64::from(shifts);
            }
            self.demand(hello, Invariant::P4, || format!("{kind} is sent before a hello"));
            self.demand(presence || kind != "welcome", Invariant::P5, || {
                "a welcome before presence is committed".to_owned()
            });
        }
        self.transmit(link, End::Node, text, Note::Plain);
    }

    fn check_closed(&mut self, core: usize, link: LinkId, reason: &CloseReason) {
        self.say(|| format!("core {core}: closes: {reason}"));
        let dishonest = self.network.links.get(&link).is_some_and(|link| link.dishonest);
        let faultless = matches!(
            reason,
            CloseReason::HelloLate
                | CloseReason::Silence
                | CloseReason::Lost
                | CloseReason::EpochLost
                | CloseReason::Stopping
                | CloseReason::Presence(_)
                | CloseReason::Health(_)
                | CloseReason::RetentionAnswer(_)
        );
        let digest = oac_peer::core::RecordFailure::Digest;
        let digests = *reason == CloseReason::Health(digest) || *reason == CloseReason::Presence(digest);
        self.demand((faultless && !digests) || dishonest, Invariant::Honest, || {
            format!("Core closes: {reason}")
        });
    }

    /// A transaction's sender learns what became of it.
    pub(crate) fn replied(&mut self, core: usize, run: u64, id: TxId) {
        if !self.cores[core].is(run) {
            self.transactions.remove(&id);
            return;
        }
        let Some(tx) = self.transactions.get(&id) else {
            return;
        };
        let (purpose, tries) = (tx.purpose, tx.tries);
        let reply = tx.reply.clone().unwrap_or(Reply::Failed { transient: false });
        let failed = match reply {
            Reply::Failed { transient } => Some(transient),
            _ => None,
        };
        let removal = matches!(purpose, Purpose::Removal(_));
        if let (Some(transient), Some((most, pause))) = (failed, retries(purpose))
            && (transient || removal)
            && tries < most
        {
            return self.after(pause, pause + 10, Happening::Again(core, run, id));
        }
        self.transactions.remove(&id);
        match purpose {
            Purpose::Nobody => {}
            Purpose::Keeper { asked_at } => {
                let owned = match reply {
                    Reply::Owned(owned) => Some(owned),
                    Reply::NotOwner => Some(None),
                    _ => None,
                };
                self.kept(core, asked_at, owned);
            }
            Purpose::Chore(epoch, chore) => self.chore_stored(core, epoch, chore, &reply),
            Purpose::Step(epoch, allocation) => self.step_stored(core, epoch, allocation, &reply),
            Purpose::Place(epoch) => self.place_stored(core, epoch, &reply),
            Purpose::Presence(connection)
            | Purpose::Health(connection)
            | Purpose::Retention(connection)
            | Purpose::Removal(connection) => {
                if let Some(conn) = self.conn(core, connection) {
                    conn.owed -= 1;
                }
                let recorded = match &reply {
                    Reply::Recorded(recorded) => recorded.clone(),
                    other => recording_failed(other),
                };
                let event = match (purpose, reply) {
                    (Purpose::Presence(_), _) => Event::PresenceRecorded(recorded),
                    (Purpose::Health(_), _) => Event::HealthRecorded(recorded),
                    (Purpose::Retention(_), Reply::Retention(answer)) => Event::RetentionAnswered(answer),
                    (Purpose::Retention(_), Reply::NotOwner) => {
                        let lost = oac_peer::core::RecordFailure::Epoch;
                        Event::RetentionAnswered(oac_peer::core::RetentionAnswer::Failed(lost))
                    }
                    (Purpose::Retention(_), _) => {
                        let storage = oac_peer::core::RecordFailure::Storage;
                        Event::RetentionAnswered(oac_peer::core::RetentionAnswer::Failed(storage))
                    }
                    (_, Reply::Removed) => Event::PresenceRemoved,
                    _ => Event::EpochLost,
                };
                self.core_takes(core, connection, event);
            }
        }
    }

    /// The runtime's own connection to Core, which is no node connection: only whether it stands matters here.
    pub(crate) fn runtime_links(&mut self, allocation: oac_model::AllocationId, link: oac_model::Generation) {
        let Some(core) = (0..self.cores.len())
            .find(|core| self.ownership(*core).is_some() && self.cores[*core].stalled_until <= self.now)
        else {
            return;
        };
        let Some(row) = self.db.allocations.get(&allocation) else {
            return;
        };
        if !row.linkable || row.link_generation != link {
            return;
        }
        let initialized = row.initialized;
        let epoch = self.ownership(core);
        if let Some(life) = self.cores[core].life.as_mut()
            && life.linked.insert(allocation)
            && !initialized
        {
            self.submit(core, epoch, Write::Linked(allocation), Purpose::Nobody);
            self.poke(core);
        }
    }

    /// A planted defect: an info beside an error is taken for a receipt.
    fn believe_failed(&mut self, core: usize, connection: ConnectionId, text: &str) {
        let Ok(oac_wire::NodeFrame::Response(response)) = oac_wire::NodeFrame::decode(text.as_bytes()) else {
            return;
        };
        if let Ok(Some(oac_wire::frames::ResponseResult::Info(info))) = response.result {
            let outcome = oac_peer::Outcome::Failed {
                code: oac_peer::FailureCode::Unconfirmed,
                receipt: Some(info),
            };
            self.resolved(core, connection, response.id, CallOutcome::Answered(outcome));
        }
    }
}
