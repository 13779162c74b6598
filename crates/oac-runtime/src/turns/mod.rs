//! The Turns of this sandbox: each is started at most once for its id, at most one runs, and what it wrote is kept
//! until Core has it.
//!
//! A Turn is a record on disk ([`record`]), a log ([`log`]) and, while it runs, a task ([`turn`]) that no connection
//! owns: a link may break at any moment and nothing stops. Callers see a Turn through two watched values: how far it
//! is, and whether it was asked to end.

mod leftover;
mod log;
mod pipes;
mod record;
mod reserve;
mod turn;

use std::{
    collections::{HashMap, HashSet},
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use oac_link::service::{Ack, Exit, Run, RunState, StatusTurn, TurnRecord};
use oac_model::{BootId, Digest, InstanceId, TurnId};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use self::{
    leftover::ProcessMark,
    log::{Batch, LogWriter},
    record::Records,
    turn::Shared,
};
pub(crate) use self::{
    log::{Chunk, LogCursor},
    record::{boot_id, check_directory, why},
    turn::Progress,
};
use crate::{limits, process::Reaper, task};

/// Why a Turn was not started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PutError {
    DigestDiffers,
    OtherRunning,
    EndedAndAcknowledged,
    Stopping,
    /// The record could not be made durable, and nothing was started.
    Storage(String),
}

/// The answer to a put that is not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    Started,
    Known,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AckError {
    Unknown,
    /// Above what was written.
    OutOfRange,
    /// A final acknowledgement of a Turn that runs.
    Running,
    Storage(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FollowError {
    Unknown,
    OutOfRange,
}

/// How far a start has come, for those who put the same Turn at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Start {
    Pending,
    Done,
    Failed(String),
}

#[derive(Debug)]
struct Turn {
    digest: Digest,
    start: watch::Receiver<Start>,
    shared: Arc<Shared>,
}

impl Turn {
    fn progress(&self) -> Progress {
        self.shared.progress.borrow().clone()
    }
}

#[derive(Debug, Default)]
struct State {
    turns: HashMap<TurnId, Arc<Turn>>,
    ended: HashSet<TurnId>,
    stopping: bool,
    /// The sandbox is quiesced.
    closed: bool,
}

/// Every Turn of this sandbox; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Turns {
    records: Records,
    reaper: Reaper,
    state: Arc<Mutex<State>>,
    /// The Turn that runs, if one does.
    running: watch::Sender<Option<TurnId>>,
    note_processes: bool,
    boot_id: BootId,
}

impl Turns {
    /// Opens the records below `root`; blocking. What an earlier runtime left running is ended first.
    pub(crate) fn open(
        root: PathBuf,
        instance_id: InstanceId,
        boot_id: BootId,
        reaper: Reaper,
    ) -> io::Result<Self> {
        let records = Records::new(root, instance_id, boot_id);
        let found = records.open()?;
        let turns = found.turns.into_iter().map(|turn| {
            let progress = Progress {
                written: turn.written,
                acked: turn.acked,
                segment: turn.segment,
                exit: Some(turn.exit),
            };
            let (_, start) = watch::channel(Start::Done);
            let known = Turn {
                digest: turn.digest,
                start,
                shared: Arc::new(Shared {
                    id: turn.id,
                    progress: watch::Sender::new(progress),
                    cancel: watch::Sender::new(None),
                }),
            };
            (turn.id, Arc::new(known))
        });
        let state = State {
            turns: turns.collect(),
            ended: found.ended,
            stopping: false,
            closed: false,
        };
        Ok(Self {
            records,
            reaper,
            state: Arc::new(Mutex::new(state)),
            running: watch::Sender::new(None),
            // The first process of a namespace takes all others with it.
            note_processes: std::process::id() != 1,
            boot_id,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, id: TurnId) -> Option<Arc<Turn>> {
        self.lock().turns.get(&id).cloned()
    }

    /// Starts `run` under `id`, once. Returns when the process was started or its failure to start is recorded; a
    /// caller that goes away changes nothing.
    pub(crate) async fn put(&self, id: TurnId, digest: Digest, run: Run) -> Result<Put, PutError> {
        let (turn, put) = {
            let mut state = self.lock();
            if state.ended.contains(&id) {
                return Err(PutError::EndedAndAcknowledged);
            }
            if let Some(known) = state.turns.get(&id) {
                if known.digest != digest {
                    return Err(PutError::DigestDiffers);
                }
                (known.clone(), Put::Known)
            } else {
                if state.stopping || state.closed {
                    return Err(PutError::Stopping);
                }
                // One whose exit is told no longer runs, even if its task has a step left.
                let running = self.running.borrow().and_then(|of| state.turns.get(&of));
                if running.is_some_and(|turn| turn.progress().exit.is_none()) {
                    return Err(PutError::OtherRunning);
                }
                let (start, started) = watch::channel(Start::Pending);
                let turn = Arc::new(Turn {
                    digest,
                    start: started,
                    shared: Arc::new(Shared {
                        id,
                        progress: watch::Sender::default(),
                        cancel: watch::Sender::new(None),
                    }),
                });
                state.turns.insert(id, turn.clone());
                self.running.send_replace(Some(id));
                task::spawn(task::Kind::Turn, self.clone().perform(turn.clone(), start, run));
                (turn, Put::Started)
            }
        };
        let mut start = turn.start.clone();
        match start.wait_for(|start| *start != Start::Pending).await.as_deref() {
            Ok(Start::Failed(why)) => Err(PutError::Storage(why.clone())),
            _ => Ok(put),
        }
    }

    /// A Turn's whole life as a task.
    async fn perform(self, turn: Arc<Turn>, start: watch::Sender<Start>, run: Run) {
        let id = turn.shared.id;
        let (records, digest) = (self.records.clone(), turn.digest);
        let log = task::blocking(move || records.create(id, digest)).await;
        match log {
            Err(error) => {
                // Out of the registry before anyone is told: the same id may be put again.
                self.lock().turns.remove(&id);
                self.running.send_replace(None);
                start.send_replace(Start::Failed(why(&error)));
                return;
            }
            Ok(mut log) => match self.reaper.start(&run) {
                Ok(started) => {
                    if self.note_processes
                        && let Some(mark) = ProcessMark::of(started.group.leader(), self.boot_id)
                    {
                        self.records.note_process(&mark);
                    }
                    start.send_replace(Start::Done);
                    turn::follow(turn.shared.clone(), started, run, log, self.reaper.clone()).await;
                }
                Err(error) => {
                    let exit = Exit::failed(error);
                    while let (back, false) = record_exit(log, exit.clone()).await {
                        log = back;
                        tokio::time::sleep(limits::WRITE_RETRY).await;
                    }
                    turn.shared
                        .progress
                        .send_modify(|progress| progress.exit = Some(exit));
                    start.send_replace(Start::Done);
                }
            },
        }
        self.running
            .send_if_modified(|running| running.take_if(|of| *of == id).is_some());
    }

    pub(crate) fn status(&self) -> Vec<StatusTurn> {
        let mut turns: Vec<_> = self
            .lock()
            .turns
            .iter()
            .map(|(id, turn)| {
                let progress = turn.progress();
                StatusTurn {
                    turn_id: *id,
                    state: state_of(&progress),
                    offset: progress.written,
                    acked: progress.acked,
                }
            })
            .collect();
        turns.sort_by_key(|turn| turn.turn_id);
        turns
    }

    pub(crate) fn record(&self, id: TurnId) -> Option<TurnRecord> {
        let progress = self.find(id)?.progress();
        Some(TurnRecord {
            state: state_of(&progress),
            offset: progress.written,
            exit: progress.exit.into(),
        })
    }

    /// A cursor at `offset` and the progress that bounds it.
    pub(crate) fn follow(
        &self,
        id: TurnId,
        offset: u64,
    ) -> Result<(LogCursor, watch::Receiver<Progress>), FollowError> {
        let turn = self.find(id).ok_or(FollowError::Unknown)?;
        let progress = turn.shared.progress.subscribe();
        let (acked, written) = (progress.borrow().acked, progress.borrow().written);
        if offset < acked || offset > written {
            return Err(FollowError::OutOfRange);
        }
        Ok((LogCursor::new(&self.records.directory(id), offset), progress))
    }

    /// Notes what Core has; removes the log's whole segments below it, and at the end everything but the id.
    pub(crate) async fn acknowledge(&self, id: TurnId, ack: Ack) -> Result<(), AckError> {
        let turn = match self.find(id) {
            Some(turn) => turn,
            // A repeated final acknowledgement.
            None if ack.is_final && self.lock().ended.contains(&id) => return Ok(()),
            None => return Err(AckError::Unknown),
        };
        let progress = turn.progress();
        if ack.is_final {
            if progress.exit.is_none() {
                return Err(AckError::Running);
            }
            let records = self.records.clone();
            task::blocking(move || records.end(id))
                .await
                .map_err(|error| AckError::Storage(why(&error)))?;
            let mut state = self.lock();
            state.ended.insert(id);
            state.turns.remove(&id);
            return Ok(());
        }
        if ack.offset > progress.written {
            return Err(AckError::OutOfRange);
        }
        if ack.offset > progress.acked {
            turn.shared.progress.send_modify(|progress| {
                progress.acked = progress.acked.max(ack.offset);
            });
            // Whoever has acknowledged into the last segment has freed all others. What cannot be removed now is removed
            // another time.
            if progress.acked < progress.segment {
                let directory = self.records.directory(id);
                let _ = task::blocking(move || log::discard(&directory, ack.offset)).await;
            }
        }
        Ok(())
    }

    /// Asks a Turn to end; one that has ended stays as it is. `false` when it is unknown.
    pub(crate) fn cancel(&self, id: TurnId, grace: Duration) -> bool {
        let state = self.lock();
        let Some(turn) = state.turns.get(&id) else {
            return state.ended.contains(&id);
        };
        turn.shared.cancel.send_replace(Some(Instant::now() + grace));
        true
    }

    /// Lets no Turn start any more, unless one runs, or has output that Core has not acknowledged.
    pub(crate) fn close(&self) -> Result<(), &'static str> {
        let mut state = self.lock();
        // Its task may have a step left when its exit is told.
        if self.running.borrow().is_some() {
            return Err("a Turn runs");
        }
        let unacknowledged = |turn: &Arc<Turn>| {
            let progress = turn.progress();
            progress.acked < progress.written
        };
        if state.turns.values().any(unacknowledged) {
            return Err("a Turn has unacknowledged output");
        }
        state.closed = true;
        Ok(())
    }

    /// Ends [`Self::close`].
    pub(crate) fn reopen(&self) {
        self.lock().closed = false;
    }

    /// Starts nothing more, asks what runs to end, and waits for its durable exit, grace + 5 s at most.
    pub(crate) async fn stop(&self) {
        self.lock().stopping = true;
        let running = *self.running.borrow();
        if let Some(id) = running {
            self.cancel(id, limits::STOP_GRACE);
        }
        let mut running = self.running.subscribe();
        let until = Instant::now() + limits::STOP_GRACE + limits::STOP_EXTRA;
        let _ = timeout_at(until, running.wait_for(Option::is_none)).await;
    }
}

/// Records the exit of a Turn without a process.
async fn record_exit(mut log: LogWriter, exit: Exit) -> (LogWriter, bool) {
    task::blocking(move || {
        let batch = Batch {
            chunks: Vec::new(),
            exit: Some(exit),
        };
        let recorded = log.append_at_end(&batch).is_ok();
        (log, recorded)
    })
    .await
}

fn state_of(progress: &Progress) -> RunState {
    match progress.exit {
        Some(_) => RunState::Ended,
        None => RunState::Running,
    }
}
