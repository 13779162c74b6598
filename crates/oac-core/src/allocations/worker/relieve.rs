//! Room for demands that fit nowhere.

use oac_store::StoreError;

use super::{Worker, held, limits};

impl Worker {
    /// Begins to make room for what fits nowhere: one sandbox at a time for each demand. One that is no longer idle, or is
    /// not suspended in time, counts no more.
    pub(super) async fn relieve(&mut self) -> Result<(), StoreError> {
        if self.now() < self.relieve_at || !self.core.pokes.pressure.is_felt() {
            return Ok(());
        }
        let relieved = self.relieve_each().await;
        // From its end: what takes long leaves room for the rest.
        self.relieve_at = self.now() + limits::RELIEF_MILLIS;
        relieved
    }

    async fn relieve_each(&mut self) -> Result<(), StoreError> {
        let now = self.now();
        let (relieving, tracked) = (&mut self.relieving, &self.tracked);
        relieving.retain(|_, id| {
            let early = tracked.get(id).and_then(|tracked| tracked.early);
            early.is_some_and(|until| now < until)
        });
        let mut demands = self.core.pokes.pressure.take();
        if !held::makes_room(&self.core).await? {
            return Ok(());
        }
        let mut looked = held::Looked::default();
        while let Some(wanted) = demands.pop_front() {
            if self.relieving.contains_key(&wanted) {
                continue;
            }
            let tracked = &self.tracked;
            let passed_over = |id| {
                tracked
                    .get(&id)
                    .is_none_or(|tracked| !tracked.may_come_early(now))
            };
            let id = match held::relief(&self.core, &wanted, &mut looked, passed_over).await? {
                held::Relief::Suspend(id) => id,
                held::Relief::Nothing => continue,
                held::Relief::Unlooked => {
                    demands.push_front(wanted);
                    break;
                }
            };
            if let Some(tracked) = self.tracked.get_mut(&id) {
                tracing::info!(allocation_id = %id, "suspending an idle sandbox early: a demand fits nowhere");
                tracked.early = Some(now + limits::RELIEF_WAIT_MILLIS);
                tracked.tried = now + limits::RELIEF_AGAIN_MILLIS;
                tracked.due = now;
                (self.next_due, self.scan_at) = (now, now);
                self.relieving.insert(wanted, id);
            }
        }
        // Those that this pass did not come to are the first of the next one.
        self.core.pokes.pressure.put_back(demands);
        Ok(())
    }
}
