//! One demand's way from transaction to transaction, until it is stored or nothing more is tried.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use oac_lifecycle::placement::Answer;
use oac_model::NodeId;
use tokio::time::Instant;

use super::PlaceError;
use crate::limits::HELD_SHORTLY;

/// Transactions tried for one demand; each failed one teaches memory about one node, or passes over one.
const ATTEMPTS: usize = 64;

/// Why a demand is not stored where it was to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// The deployment is not as remembered, which is corrected.
    Changed,
    /// The row of this node was free, and the node is not as remembered, which is corrected.
    Unfit(NodeId),
    /// Another transaction holds the row of this node.
    Held(NodeId),
}

/// When another transaction is due for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GoOn {
    AtOnce,
    /// It would find the same row held: others go first, or a pause is made.
    Later,
}

#[derive(Debug)]
pub(crate) struct Search {
    /// So long a row that others hold is waited for.
    patience: Duration,
    /// Transactions in which what was chosen for it no longer fitted.
    misfits: usize,
    /// Nodes whose rows others held when they were last looked at, and since when they did.
    held: BTreeMap<NodeId, Instant>,
}

impl Search {
    pub(crate) fn with_patience(patience: Duration) -> Self {
        Self {
            patience,
            misfits: 0,
            held: BTreeMap::new(),
        }
    }

    /// Another transaction is due.
    ///
    /// # Errors
    /// Enough were tried.
    pub(crate) fn go_on(&mut self, misfit: Misfit) -> Result<GoOn, PlaceError> {
        if let Misfit::Held(node) = misfit {
            return self.find_held(node);
        }
        if let Misfit::Unfit(node) = misfit {
            self.held.remove(&node);
        }
        self.misfits += 1;
        if self.misfits == ATTEMPTS {
            tracing::warn!("a demand found no node that still fits after {ATTEMPTS} attempts");
            return Err(PlaceError::Refused(Answer::Unavailable));
        }
        Ok(GoOn::AtOnce)
    }

    fn find_held(&mut self, node: NodeId) -> Result<GoOn, PlaceError> {
        if let Some(since) = self.held.get(&node) {
            // Nothing but what is held takes it.
            return match since.elapsed() >= self.patience {
                true => Err(PlaceError::Held),
                false => Ok(GoOn::Later),
            };
        }
        self.held.insert(node, Instant::now());
        if self.held.len() == ATTEMPTS {
            return Err(PlaceError::Held);
        }
        match self.patience.is_zero() {
            true => Ok(GoOn::AtOnce),
            false => Ok(GoOn::Later),
        }
    }

    /// Nodes that are not waited for while there are others.
    pub(super) fn passed_over(&self) -> BTreeSet<NodeId> {
        let enough = HELD_SHORTLY.min(self.patience);
        let held = self.held.iter().filter(|(_, since)| since.elapsed() >= enough);
        held.map(|(node, _)| *node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(3);

    fn held(search: &mut Search, node: NodeId) -> Option<GoOn> {
        search.go_on(Misfit::Held(node)).ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_is_waited_for_shortly_then_passed_over_and_given_up_when_it_stays_held() {
        let mut search = Search::with_patience(PATIENCE);
        let node = NodeId::random();
        assert_eq!(held(&mut search, node), Some(GoOn::Later));
        assert!(search.passed_over().is_empty());
        tokio::time::advance(HELD_SHORTLY).await;
        assert_eq!(search.passed_over(), BTreeSet::from([node]));
        assert_eq!(held(&mut search, node), Some(GoOn::Later));
        tokio::time::advance(PATIENCE - HELD_SHORTLY).await;
        assert!(matches!(search.go_on(Misfit::Held(node)), Err(PlaceError::Held)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_that_was_free_meanwhile_is_held_from_the_next_time_on() {
        let mut search = Search::with_patience(PATIENCE);
        let (node, other) = (NodeId::random(), NodeId::random());
        held(&mut search, node);
        held(&mut search, other);
        tokio::time::advance(PATIENCE).await;
        assert_eq!(search.go_on(Misfit::Unfit(node)).ok(), Some(GoOn::AtOnce));
        assert_eq!(search.passed_over(), BTreeSet::from([other]));
        assert_eq!(held(&mut search, node), Some(GoOn::Later));
        assert_eq!(held(&mut search, other), None);
    }

    #[test]
    fn without_patience_each_node_is_looked_at_once() {
        let mut search = Search::with_patience(Duration::ZERO);
        let nodes = [NodeId::random(), NodeId::random()];
        for node in nodes {
            assert_eq!(held(&mut search, node), Some(GoOn::AtOnce));
        }
        assert_eq!(search.passed_over(), BTreeSet::from(nodes));
        assert_eq!(held(&mut search, nodes[0]), None);
    }

    #[test]
    fn no_more_than_so_many_transactions_are_tried() {
        let mut search = Search::with_patience(Duration::ZERO);
        let tried = (0..).take_while(|_| held(&mut search, NodeId::random()).is_some());
        assert_eq!(tried.count(), ATTEMPTS - 1);
        let mut search = Search::with_patience(PATIENCE);
        let tried = (0..).take_while(|_| search.go_on(Misfit::Changed).is_ok());
        assert_eq!(tried.count(), ATTEMPTS - 1);
    }
}
