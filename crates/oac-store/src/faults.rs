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
    dies: Option<Death>,
    dead: bool,
    hold: Option<(Side, Arc<Gate>)>,
    counts: Vec<(&'static str, u64)>,
    loses: Option<Loss>,
}

/// The commit that is a Core's last.
#[derive(Debug)]
struct Death {
    /// Commits until then, this one included; only those that are counted.
    left: u64,
    side: Side,
    /// Those are counted that follow a statement with this text; without one, all.
    text: Option<&'static str>,
    /// That statement was made: the next commit counts.
    met: bool,
}

/// A commit whose answer is lost.
#[derive(Debug)]
struct Loss {
    /// In a statement of its transaction.
    text: &'static str,
    side: Side,
    /// That statement was made: the next commit is the one.
    met: bool,
}

/// What a test does to a store.
#[derive(Debug, Default)]
pub struct Faults(Mutex<State>);

impl Faults {
    /// The `n`th commit of an owner from now on, counted from 1, is its last.
    pub fn die_at(&self, n: u64, side: Side) {
        self.die(n, None, side);
    }

    /// As [`Self::die_at`], of those commits alone that follow a statement that holds this text: whatever else an owner
    /// stores meanwhile does not count. For a database that writes one transaction at a time.
    pub fn die_at_write(&self, n: u64, text: &'static str, side: Side) {
        self.die(n, Some(text), side);
    }

    fn die(&self, left: u64, text: Option<&'static str>, side: Side) {
        self.0.lock().dies = Some(Death {
            left,
            side,
            text,
            met: text.is_none(),
        });
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

    /// The answer to the next commit after a statement that holds this text is lost; its owner lives on. For a database
    /// that writes one transaction at a time.
    pub fn lose(&self, text: &'static str, side: Side) {
        let met = false;
        self.0.lock().loses = Some(Loss { text, side, met });
    }

    /// Whether no answer is left to be lost.
    pub fn has_lost(&self) -> bool {
        self.0.lock().loses.is_none()
    }

    pub(crate) fn asked(&self, sql: &str) {
        let mut state = self.0.lock();
        for (text, count) in &mut state.counts {
            *count += u64::from(sql.contains(*text));
        }
        if let Some(death) = &mut state.dies {
            death.met |= death.text.is_some_and(|text| sql.contains(text));
        }
        if let Some(loss) = &mut state.loses {
            loss.met |= sql.contains(loss.text);
        }
    }

    fn answer(&self, side: Side) -> Result<(), StoreError> {
        let lost = self.0.lock().loses.take_if(|loss| loss.met && loss.side == side);
        match lost {
            Some(_) => Err(unanswered("the answer to a commit is lost")),
            None => Ok(()),
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
        if let Some(death) = &mut state.dies
            && death.met
        {
            death.left = death.left.saturating_sub(1);
            death.met = death.text.is_none();
            if (death.left, death.side) == (0, Side::Before) {
                state.dead = true;
            }
        }
        drop(state);
        self.alive()?;
        self.answer(Side::Before)
    }

    pub(crate) async fn after_commit(&self) -> Result<(), StoreError> {
        self.wait(Side::After).await;
        let mut state = self.0.lock();
        let last = |death: &Death| (death.left, death.side) == (0, Side::After);
        state.dead |= state.dies.as_ref().is_some_and(last);
        drop(state);
        self.alive()?;
        self.answer(Side::After)
    }

    pub(crate) fn alive(&self) -> Result<(), StoreError> {
        if self.is_dead() {
            return Err(unanswered("this Core is dead"));
        }
        Ok(())
    }
}

fn unanswered(why: &str) -> StoreError {
    let source = DbErr::Custom(why.to_owned());
    StoreError::Unknown { source }
}

impl Store {
    /// This store's faults; none until asked for.
    pub fn faults(&self) -> &Arc<Faults> {
        &self.inner.faults
    }
}
