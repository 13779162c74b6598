//! What Core stores of its nodes: presence, health, statuses, pins, and what it keeps (`oac-core`'s `presence`).

use oac_model::{ConnectionId, Generation, NodeId, OwnerEpoch};
use oac_peer::core::{Facts, RecordFailure, Recorded, RetentionAnswer, StateName};
use oac_wire::{
    Nullable,
    frames::{Deployment, GenerationState, Health, RetentionReference},
};

use super::transaction::Purpose;
use crate::{
    database::{NodeRow, StatusRow},
    defect::Defect,
    invariant::Invariant,
    world::World,
};

impl World {
    /// A hello names whether the node manages generations; a heartbeat does not.
    pub(crate) fn record(
        &mut self,
        id: NodeId,
        connection: ConnectionId,
        epoch: OwnerEpoch,
        health: &Health,
        hello: Option<bool>,
    ) -> Recorded {
        let now = self.now;
        let Some(before) = self.db.nodes.get(&id).cloned() else {
            return Recorded::Failed(RecordFailure::Credential);
        };
        if before.retired && !(hello.is_none() && self.has(Defect::HeartbeatWithoutCredential)) {
            return Recorded::Failed(RecordFailure::Credential);
        }
        self.demand(!before.retired, Invariant::P26, || {
            "a removed node's report is stored".to_owned()
        });
        if hello.is_none() && before.connection != Some((connection, epoch)) {
            return Recorded::Failed(RecordFailure::Epoch);
        }
        let mut row = before.clone();
        row.last_seen = self.db.time(now);
        if let Some(managing) = hello {
            row.connection = Some((connection, epoch));
            row.managing |= managing;
            row.statuses.clear();
            let link = self
                .network
                .links
                .values_mut()
                .find(|link| link.connection == connection);
            if let Some(link) = link {
                link.presence = true;
                let said = link.hello;
                self.demand(said, Invariant::P4, || {
                    "presence is stored before a hello".to_owned()
                });
            }
        }
        let mut ignored = Vec::new();
        if row.managing {
            for status in health.generations.iter().flatten() {
                let generation = status.generation;
                if !self.db.is_kept(generation) {
                    ignored.push(generation);
                    continue;
                }
                if self.db.digest(generation) != Some(status.specification_digest) {
                    return Recorded::Failed(RecordFailure::Digest);
                }
                let ready = status.state == GenerationState::Ready;
                let wanted = generation == self.db.target || self.has(Defect::PinAnyReady);
                if ready && wanted {
                    row.pin = Some(generation);
                }
                self.set_status(&mut row, generation, status.state, connection, epoch);
            }
        } else {
            let state = match health.provider_ready {
                true => GenerationState::Ready,
                false => GenerationState::Failed,
            };
            let enrolled = row.enrolled;
            self.set_status(&mut row, enrolled, state, connection, epoch);
        }
        let named = |g: &Generation| health.generations.iter().flatten().any(|s| s.generation == *g);
        if self.has(Defect::OmissionForgets) && row.managing {
            row.statuses.retain(|g, _| named(g));
        }
        if hello.is_none() {
            let kept = before
                .statuses
                .keys()
                .filter(|g| !named(g))
                .all(|g| row.statuses.contains_key(g));
            self.demand(kept, Invariant::P15, || {
                "a report forgets what it omits".to_owned()
            });
        }
        if row.pin != before.pin {
            self.check_pin(&row, connection, epoch, health);
            self.reach("a pin moved");
        }
        let deployment = Deployment {
            generation: self.db.target,
            specification_digest: crate::host::digest(self.db.target),
            serving_generation: Nullable(row.pin),
        };
        let managing = row.managing;
        self.db.nodes.insert(id, row);
        Recorded::Done(managing.then_some(Facts { deployment, ignored }))
    }

    fn set_status(
        &mut self,
        row: &mut NodeRow,
        generation: Generation,
        state: GenerationState,
        connection: ConnectionId,
        epoch: OwnerEpoch,
    ) {
        let status = StatusRow {
            state,
            connection,
            epoch,
        };
        row.statuses.insert(generation, status);
    }

    fn check_pin(&mut self, row: &NodeRow, connection: ConnectionId, epoch: OwnerEpoch, health: &Health) {
        let current = self.db.owner.map(|owner| owner.epoch) == Some(epoch)
            && row.connection == Some((connection, epoch));
        let mut said = health.generations.iter().flatten();
        let ready = said.any(|s| Some(s.generation) == row.pin && s.state == GenerationState::Ready);
        let (pin, target) = (row.pin, self.db.target);
        self.demand(pin == Some(target) && ready && current, Invariant::P17, || {
            format!("the pin becomes {pin:?}, the target is {target}, ready {ready}, current {current}")
        });
    }

    pub(crate) fn remove_presence(&mut self, id: NodeId, connection: ConnectionId) {
        let unfenced = self.has(Defect::UnfencedRemoval);
        let Some(row) = self.db.nodes.get_mut(&id) else {
            return;
        };
        let before = row.connection;
        let mine = before.is_some_and(|(at, _)| at == connection);
        if mine || unfenced {
            row.connection = None;
            row.statuses.clear();
        }
        let erased = before.filter(|_| mine || unfenced).map(|(at, _)| at);
        let stands = erased.is_some_and(|erased| self.stands(erased));
        self.demand(!stands, Invariant::P5, || {
            format!("a removal for {connection} erases {before:?}, which stands")
        });
    }

    /// Whether a hub's machine still opens or keeps the connection, whatever the rows say.
    fn stands(&self, connection: ConnectionId) -> bool {
        let lives = self.cores.iter().filter_map(|core| core.life.as_ref());
        lives
            .filter_map(|life| life.connections.get(&connection))
            .any(|conn| matches!(conn.machine.state(), StateName::Opening | StateName::Live))
    }

    /// In one statement for all entries.
    pub(crate) fn answer_retention(
        &mut self,
        asked: &[RetentionReference],
        purpose: Purpose,
    ) -> RetentionAnswer {
        let forgets = self.has(Defect::RetentionForgetsPlacements);
        let mut keep = Vec::new();
        for reference in asked {
            let generation = reference.generation;
            let kept = match forgets {
                true => self.db.is_named_otherwise(generation),
                false => self.db.is_kept(generation),
            };
            let digest = self.db.digest(generation);
            if kept && digest != Some(reference.specification_digest) {
                return RetentionAnswer::Failed(RecordFailure::Digest);
            }
            if !kept {
                self.history.given_up.insert(generation);
                if let Purpose::Retention(connection) = purpose {
                    let node = self
                        .db
                        .nodes
                        .values_mut()
                        .find(|node| node.connection.is_some_and(|(at, _)| at == connection));
                    if let Some(node) = node {
                        node.statuses.remove(&generation);
                    }
                }
            }
            keep.push(kept);
        }
        RetentionAnswer::Done {
            keep,
            deployment: Deployment {
                generation: self.db.target,
                specification_digest: crate::host::digest(self.db.target),
                serving_generation: Nullable(self.pin_of(purpose)),
            },
        }
    }

    fn pin_of(&self, purpose: Purpose) -> Option<Generation> {
        let Purpose::Retention(connection) = purpose else {
            return None;
        };
        let mut nodes = self.db.nodes.values();
        nodes
            .find(|node| node.connection.is_some_and(|(at, _)| at == connection))?
            .pin
    }
}
