//! What Sessions have open at their sandboxes beside Turns: file transfers and port streams.
//!
//! Each is counted against its limit, and is activity for as long as it is open (sessions.md section 4). A transaction
//! for each small file would cost more than the file, so one row of `file_operations` stands for all that a Session has
//! open of one kind: it is stored before the first of them begins and removed, with the time as the Session's last
//! activity, once none has been open for [`limits::ACCESS_LINGER`]. Whoever suspends or resets reads the row under the
//! Session's lock and is never told less than the truth. The rows of an earlier owner are removed by the next one, whose
//! takeover has ended that owner's connections.

use std::{collections::HashMap, sync::Arc};

use oac_model::{FileOperationId, SessionId};
use oac_store::{FileOperationKind, Ownership, StoreError};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    Core,
    http::{ApiError, error::Chain},
    limits,
    task::Kind as TaskKind,
};

/// Everything open at sandboxes, of all Sessions.
#[derive(Default)]
pub struct Accesses(Arc<Shared>);

#[derive(Default)]
struct Shared {
    open: Mutex<HashMap<Key, Entry>>,
    /// The ownership under which the rows of earlier ones were removed.
    cleared: tokio::sync::Mutex<Option<Ownership>>,
}

type Key = (SessionId, FileOperationKind);

#[derive(Default)]
struct Entry {
    count: usize,
    /// A task watches for the end.
    kept: bool,
    row: Arc<Row>,
}

#[derive(Default)]
struct Row {
    stored: tokio::sync::Mutex<Option<Stored>>,
    /// The last one ended.
    idle: Notify,
}

#[derive(Clone, Copy)]
struct Stored {
    under: Ownership,
    id: FileOperationId,
    /// Its commit was confirmed.
    sure: bool,
}

/// One thing that is open; it ends when this is dropped.
pub(crate) struct Access {
    key: Key,
    shared: Arc<Shared>,
}

fn limit(kind: FileOperationKind) -> (&'static [FileOperationKind], usize) {
    match kind {
        FileOperationKind::Read | FileOperationKind::Write => (
            &[FileOperationKind::Read, FileOperationKind::Write],
            limits::FILE_TRANSFERS_PER_SESSION,
        ),
        FileOperationKind::Port => (&[FileOperationKind::Port], limits::PORT_STREAMS_PER_SESSION),
    }
}

impl Accesses {
    /// Opens one more; `None` when the Session has as many as it may. Nothing is stored yet.
    pub(super) fn open(&self, session: SessionId, kind: FileOperationKind) -> Option<Access> {
        let (together, limit) = limit(kind);
        let mut open = self.0.open.lock();
        let count: usize = together
            .iter()
            .filter_map(|kind| open.get(&(session, *kind)))
            .map(|entry| entry.count)
            .sum();
        if count >= limit {
            return None;
        }
        open.entry((session, kind)).or_default().count += 1;
        Some(Access {
            key: (session, kind),
            shared: self.0.clone(),
        })
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        let mut open = self.shared.open.lock();
        if let Some(entry) = open.get_mut(&self.key) {
            entry.count -= 1;
            match (entry.count, entry.kept) {
                (0, true) => entry.row.idle.notify_one(),
                (0, false) => drop(open.remove(&self.key)),
                _ => {}
            }
        }
    }
}

impl Access {
    /// Sees to it that the row is stored. 409 for a Session that was archived meanwhile, 503 without ownership.
    pub(super) async fn store(&self, core: &Arc<Core>) -> Result<(), ApiError> {
        let ownership = core.owner.ownership().ok_or_else(ApiError::standby)?;
        clear(core, &self.shared, &ownership).await?;
        let row = {
            let open = self.shared.open.lock();
            open.get(&self.key).map(|entry| entry.row.clone())
        };
        let row = row.unwrap_or_else(|| unreachable!("an entry lives as long as something of it is open"));
        let mut stored = row.stored.lock().await;
        if stored.is_some_and(|row| row.under == ownership && row.sure) {
            return Ok(());
        }
        let (session, kind) = self.key;
        let tx = core.store.begin(&ownership).await?;
        let locked = tx.lock_session(session).await?.ok_or_else(ApiError::not_found)?;
        if locked.archived_at.is_some() {
            return Err(ApiError::session_archived());
        }
        if let Some(unsure) = *stored {
            tx.end_file_operation(unsure.id).await?;
        }
        let id = tx.begin_file_operation(session, kind).await?.id;
        tx.touch_session(session).await?;
        // From here on the row is looked after, also if the caller goes away during the commit or the commit fails.
        let new = Stored {
            under: ownership,
            id,
            sure: false,
        };
        *stored = Some(new);
        self.keep(core, row.clone());
        tx.commit().await?;
        *stored = Some(Stored { sure: true, ..new });
        Ok(())
    }

    fn keep(&self, core: &Arc<Core>, row: Arc<Row>) {
        let mut open = self.shared.open.lock();
        let Some(entry) = open.get_mut(&self.key).filter(|entry| !entry.kept) else {
            return;
        };
        entry.kept = true;
        let (this, shared, key) = (core.clone(), self.shared.clone(), self.key);
        core.tasks
            .spawn(TaskKind::Connection, "open files and ports", async move {
                keep(&this, &shared, key, &row).await;
            });
    }
}

/// Until nothing of the key is open and its row is gone. Renews the Session's last activity meanwhile.
async fn keep(core: &Core, shared: &Shared, key: Key, row: &Row) {
    let open = || shared.open.lock().get(&key).map_or(0, |entry| entry.count);
    loop {
        tokio::select! {
            () = row.idle.notified() => tokio::time::sleep(limits::ACCESS_LINGER).await,
            () = tokio::time::sleep(limits::ACCESS_RENEWAL) => {
                let stored = *row.stored.lock().await;
                if let Some(stored) = stored {
                    write(core, key.0, &stored.under, None).await;
                }
            }
        }
        if open() > 0 {
            continue;
        }
        // Whoever opens now waits here and stores a row anew.
        let mut stored = row.stored.lock().await;
        if open() > 0 {
            continue;
        }
        if let Some(stored) = stored.take() {
            write(core, key.0, &stored.under, Some(stored.id)).await;
        }
        let mut entries = shared.open.lock();
        if let Some(entry) = entries.get_mut(&key) {
            if entry.count == 0 {
                entries.remove(&key);
            } else {
                entry.kept = false;
            }
        }
        return;
    }
}

/// Notes activity, and the end of a row; again while the database does not carry it, for as long as the ownership lasts.
async fn write(core: &Core, session: SessionId, under: &Ownership, ended: Option<FileOperationId>) {
    while core.owner.ownership().as_ref() == Some(under) {
        let written: Result<(), StoreError> = async {
            let tx = core.store.begin(under).await?;
            if tx
                .lock_session(session)
                .await?
                .is_some_and(|row| row.archived_at.is_none())
            {
                tx.touch_session(session).await?;
            }
            if let Some(id) = ended {
                tx.end_file_operation(id).await?;
            }
            tx.commit().await
        }
        .await;
        match written {
            Ok(()) | Err(StoreError::NotOwner { .. }) => {
                core.pokes.reset_may_go_on(session);
                return;
            }
            Err(error) => {
                tracing::warn!(session_id = %session, error = %Chain(&error), "activity of files or ports is not stored");
                tokio::time::sleep(limits::ACCESS_RETRY).await;
            }
        }
    }
}

/// Removes the rows of earlier owners, once per ownership.
async fn clear(core: &Core, shared: &Shared, ownership: &Ownership) -> Result<(), StoreError> {
    let mut cleared = shared.cleared.lock().await;
    if cleared.as_ref() != Some(ownership) {
        let tx = core.store.begin(ownership).await?;
        tx.end_all_file_operations().await?;
        tx.commit().await?;
        *cleared = Some(*ownership);
    }
    Ok(())
}

/// Removes what earlier owners left, whether or not anybody uses files or ports under this one.
pub fn start(core: &Arc<Core>) {
    let this = core.clone();
    core.tasks
        .spawn(TaskKind::Worker, "open files and ports", async move {
            let mut changes = this.owner.subscribe();
            loop {
                let ownership = this.owner.owned().await;
                match clear(&this, &this.accesses.0, &ownership).await {
                    Ok(()) => drop(changes.changed().await),
                    Err(error) => {
                        tracing::warn!(error = %Chain(&error), "file operations of earlier owners are not removed");
                        tokio::time::sleep(limits::ACCESS_RETRY).await;
                    }
                }
            }
        });
}

#[cfg(test)]
mod tests {
    use FileOperationKind::{Port, Read, Write};

    use super::*;

    #[test]
    fn reads_and_writes_share_eight_places_and_ports_have_thirty_two_of_their_own() {
        let accesses = Accesses::default();
        let (one, other) = (SessionId::random(), SessionId::random());
        let mut open: Vec<_> = (0..4)
            .flat_map(|_| [Read, Write])
            .map(|kind| accesses.open(one, kind).unwrap())
            .collect();
        assert!(accesses.open(one, Read).is_none());
        assert!(accesses.open(one, Write).is_none());
        let ports: Vec<_> = (0..32).map(|_| accesses.open(one, Port).unwrap()).collect();
        assert!(accesses.open(one, Port).is_none());
        open.push(accesses.open(other, Read).unwrap());
        open.remove(0);
        open.push(accesses.open(one, Write).unwrap());
        drop((open, ports));
        assert!(accesses.0.open.lock().is_empty());
    }
}
