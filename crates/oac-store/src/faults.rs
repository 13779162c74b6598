//! For tests, behind the feature `faults`: a Core that dies at one of its commits, or waits there, and what it asks the
//! database.
//!
//! A dead store commits nothing and reads nothing, as if its process were gone; the lease alone is still let go, so that a
//! test need not wait for it to expire.

use std::sync::Arc;

use parking_lot::Mutex;
use sea_orm::DbErr;
use tokio::sync::Notify;

use crate::{Store, StoreError};

/// On which side of a commit a Core dies or waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Nothing was stored.
    Before,
    /// Everything was stored, and nobody was told.
    After,
}

/// Where a commit waits.
#[derive(Debug, Default)]
struct Gate {
    reached: Notify,
    opened: Notify,
}

/// A commit that a test holds back until this is dropped.
#[derive(Debug)]
pub struct Hold(Arc<Gate>);

impl Hold {
    /// Waits until the commit is about to be made, or was made.
    pub async fn reached(&self) {
        self.0.reached.notified().await;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.opened.notify_one();
    }
}

#[derive(Debug, Default)]
struct State {
    /// Commits until death, this one included.
    dies: Option<(u64, Side)>,
    dead: bool,
    hold: Option<(Side, Arc<Gate>)>,
    counts: Vec<(&'static str, u64)>,
}

/// What a test does to a store.
#[derive(Debug, Default)]
pub struct Faults(Mutex<State>);

impl Faults {
    /// The `n`th commit of an owner from now on, counted from 1, is its last.
    pub fn die_at(&self, n: u64, side: Side) {
        self.0.lock().dies = Some((n, side));
    }

    /// Nothing more is done to it; a dead one stays dead.
    pub fn spare(&self) {
        self.0.lock().dies = None;
    }

    pub fn is_dead(&self) -> bool {
        self.0.lock().dead
    }

    /// The next commit of an owner waits before it is made, or after that, before anybody is told.
    pub fn hold_next(&self, side: Side) -> Hold {
        let gate = Arc::new(Gate::default());
        self.0.lock().hold = Some((side, gate.clone()));
        Hold(gate)
    }

    /// Counts the statements that hold one of these texts, each text from 0.
    pub fn count(&self, texts: &[&'static str]) {
        self.0.lock().counts = texts.iter().map(|text| (*text, 0)).collect();
    }

    /// How many there were since, in the order of the texts.
    pub fn counted(&self) -> Vec<u64> {
        self.0.lock().counts.iter().map(|(_, count)| *count).collect()
    }

    pub(crate) fn asked(&self, sql: &str) {
        for (text, count) in &mut self.0.lock().counts {
            *count += u64::from(sql.contains(*text));
        }
    }

    async fn wait(&self, side: Side) {
        let held = self.0.lock().hold.take_if(|(at, _)| *at == side);
        if let Some((_, gate)) = held {
            gate.reached.notify_one();
            gate.opened.notified().await;
        }
    }

    pub(crate) async fn before_commit(&self) -> Result<(), StoreError> {
        self.wait(Side::Before).await;
        let mut state = self.0.lock();
        if let Some((n, side)) = &mut state.dies {
            *n = n.saturating_sub(1);
            if (*n, *side) == (0, Side::Before) {
                state.dead = true;
            }
        }
        drop(state);
        self.alive()
    }

    pub(crate) async fn after_commit(&self) -> Result<(), StoreError> {
        self.wait(Side::After).await;
        let mut state = self.0.lock();
        state.dead |= state.dies == Some((0, Side::After));
        drop(state);
        self.alive()
    }

    pub(crate) fn alive(&self) -> Result<(), StoreError> {
        if self.is_dead() {
            let source = DbErr::Custom("this Core is dead".to_owned());
            return Err(StoreError::Unknown { source });
        }
        Ok(())
    }
}

impl Store {
    /// This store's faults; none until asked for.
    pub fn faults(&self) -> &Arc<Faults> {
        &self.inner.faults
    }
}
