use std::collections::BTreeMap;

use oac_model::{ConnectionId, NodeId};

/// Identities that are opening, live or closing (INV-P3). A second dial is refused and leaves the first untouched.
#[derive(Debug, Default)]
pub struct Reservations {
    held: BTreeMap<NodeId, ConnectionId>,
}

/// The identity is opening, live or closing: 409.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the node is connected already")]
pub struct Reserved;

impl Reservations {
    pub fn reserve(&mut self, node_id: NodeId, connection_id: ConnectionId) -> Result<(), Reserved> {
        match self.held.entry(node_id) {
            std::collections::btree_map::Entry::Occupied(_) => Err(Reserved),
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(connection_id);
                Ok(())
            }
        }
    }

    /// Frees the identity if this connection still holds it.
    pub fn free(&mut self, node_id: NodeId, connection_id: ConnectionId) {
        if self.held.get(&node_id) == Some(&connection_id) {
            self.held.remove(&node_id);
        }
    }

    /// No identity is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub fn holder(&self, node_id: NodeId) -> Option<ConnectionId> {
        self.held.get(&node_id).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: P-018
    // inv: INV-P3
    #[test]
    fn a_second_reservation_is_refused_until_the_first_connection_frees_it() {
        let node: NodeId = "11111111-1111-4111-8111-111111111111".parse().unwrap();
        let [first, second]: [ConnectionId; 2] = [
            "21111111-1111-4111-8111-111111111111".parse().unwrap(),
            "22111111-1111-4111-8111-111111111111".parse().unwrap(),
        ];
        let mut reservations = Reservations::default();
        reservations.reserve(node, first).unwrap();
        assert_eq!(reservations.reserve(node, second), Err(Reserved));
        assert_eq!(reservations.holder(node), Some(first));
        reservations.free(node, second);
        assert_eq!(reservations.holder(node), Some(first), "only the holder frees");
        reservations.free(node, first);
        reservations.reserve(node, second).unwrap();
    }
}
