//! One lane per reference: operations of a reference run strictly one after the other (INV-V11).
//!
//! The work runs in a task of its own that owns the lane, so neither a caller that goes away nor a deadline can end
//! native work half way or let the next operation start beside it. `by` ends only the wait. Work whose turn has not
//! come by then is never started.

use std::{collections::HashMap, future::Future, sync::Arc, time::Instant};

use oac_model::Reference;
use parking_lot::Mutex;
use tokio::sync::{Mutex as Lane, OwnedMutexGuard};

/// The lanes of one provider. Lanes exist only while someone holds or awaits them.
#[derive(Default)]
pub struct Lanes {
    lanes: Arc<Mutex<HashMap<Reference, Arc<Lane<()>>>>>,
}

/// Why a wait ended without the work's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The deadline passed before the operation's turn came; it never started.
    #[error("the deadline passed before the operation could start")]
    NotStarted,
    /// The deadline passed; the work goes on and keeps the lane.
    #[error("the deadline passed while the operation was under way")]
    UnderWay,
    /// The work panicked.
    #[error("the operation ended abnormally")]
    Broken,
}

struct Turn {
    reference: Reference,
    lanes: Arc<Mutex<HashMap<Reference, Arc<Lane<()>>>>>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut lanes = self.lanes.lock();
        self.guard = None;
        // Only the map itself still knows this lane: nobody holds it and nobody waits for it.
        if lanes
            .get(&self.reference)
            .is_some_and(|lane| Arc::strong_count(lane) == 1)
        {
            lanes.remove(&self.reference);
        }
    }
}

impl Lanes {
    /// Runs `work` when all earlier operations of `reference` have ended, and waits for it until `by`.
    pub async fn run<T: Send + 'static>(
        &self,
        reference: Reference,
        by: Instant,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let by = tokio::time::Instant::from_std(by);
        let turn = tokio::time::timeout_at(by, self.turn(reference))
            .await
            .map_err(|_| NoAnswer::NotStarted)?;
        if tokio::time::Instant::now() >= by {
            return Err(NoAnswer::NotStarted);
        }
        // The one detached task of this crate: it must outlive its caller, and it ends with its native work.
        #[allow(clippy::disallowed_methods)]
        let task = tokio::spawn(async move {
            let result = work.await;
            drop(turn);
            result
        });
        match tokio::time::timeout_at(by, task).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(_)) => Err(NoAnswer::Broken),
            Err(_) => Err(NoAnswer::UnderWay),
        }
    }

    /// Resolves when all work of `reference` that was under way or waiting has ended.
    pub async fn idle(&self, reference: Reference) {
        let known = self.lanes.lock().contains_key(&reference);
        if known {
            drop(self.turn(reference).await);
        }
    }

    async fn turn(&self, reference: Reference) -> Turn {
        let lane = self.lanes.lock().entry(reference).or_default().clone();
        // Made before the wait, so that a caller that goes away while waiting also cleans up.
        let mut turn = Turn {
            reference,
            lanes: self.lanes.clone(),
            guard: None,
        };
        turn.guard = Some(lane.lock_owned().await);
        turn
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;
    use crate::receipt::tests::reference;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    // inv: INV-V11
    #[tokio::test]
    async fn a_deadline_ends_the_wait_but_the_next_operation_starts_only_after_the_work() {
        let lanes = Arc::new(Lanes::default());
        let (release, released) = oneshot::channel::<()>();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (first_log, second_log) = (log.clone(), log.clone());
        let by = tokio::time::Instant::now().into_std() + Duration::from_millis(10);
        let first = lanes
            .run(reference(1), by, async move {
                released.await.unwrap();
                first_log.lock().push("first ended");
            })
            .await;
        assert_eq!(first, Err(NoAnswer::UnderWay));

        let late = tokio::time::Instant::now().into_std() + Duration::from_millis(10);
        let never = log.clone();
        let queued = lanes
            .run(reference(1), late, async move { never.lock().push("never") })
            .await;
        assert_eq!(queued, Err(NoAnswer::NotStarted));

        let by = tokio::time::Instant::now().into_std() + Duration::from_secs(30);
        let other = lanes.run(reference(2), by, async { 2 }).await;
        assert_eq!(other, Ok(2), "another reference is not delayed");

        let second = lanes.run(reference(1), by, async move { second_log.lock().push("second") });
        let (second, ()) = tokio::join!(second, async move { release.send(()).unwrap() });
        assert_eq!(second, Ok(()));
        assert_eq!(*log.lock(), ["first ended", "second"]);
        assert!(lanes.lanes.lock().is_empty(), "idle lanes are forgotten");
    }

    // inv: INV-V11
    #[tokio::test]
    async fn work_goes_on_when_its_caller_is_dropped_and_idle_waits_for_it() {
        let lanes = Lanes::default();
        let (release, released) = oneshot::channel::<()>();
        let (done, mut is_done) = oneshot::channel::<()>();
        let mut call = Box::pin(lanes.run(reference(1), soon(), async move {
            released.await.unwrap();
            done.send(()).unwrap();
        }));
        tokio::select! {
            biased;
            _ = &mut call => panic!("it cannot have ended"),
            () = tokio::task::yield_now() => {}
        }
        drop(call);
        let mut idle = Box::pin(lanes.idle(reference(1)));
        tokio::select! {
            biased;
            () = &mut idle => panic!("work is still under way"),
            () = tokio::task::yield_now() => {}
        }
        release.send(()).unwrap();
        idle.await;
        assert_eq!(is_done.try_recv(), Ok(()));
    }
}
