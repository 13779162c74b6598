//! One Turn from its process's start to its durable exit: reads both pipes into the log, ends the process when asked,
//! and tells how far it is. What happens is an event; what follows from it is decided in [`Course::apply`], which never
//! waits.

use std::{future::pending, io, pin::Pin, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use oac_link::service::{Exit, OutputStreamName, Run};
use oac_model::TurnId;
use rustix::process::Signal;
use tokio::{
    io::AsyncWriteExt,
    net::unix::pipe,
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::{
    limits,
    process::{Ended, Group, Reaper, Started},
    task,
    turns::{
        log::{Batch, Chunk, LogWriter},
        pipes::Pipes,
    },
};

/// How far a Turn is; what is in it is durable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    pub written: u64,
    pub acked: u64,
    /// Where the log's last segment begins.
    pub segment: u64,
    pub exit: Option<Exit>,
}

/// What a Turn's task and its callers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub id: TurnId,
    pub progress: watch::Sender<Progress>,
    /// When asked to end: the moment at which SIGKILL follows SIGTERM.
    pub cancel: watch::Sender<Option<Instant>>,
}

enum Event {
    /// Bytes of one pipe, empty at its end.
    Read(OutputStreamName, Bytes),
    Fed,
    Ended(Ended),
    Flushed(LogWriter, Batch, io::Result<()>),
    CancelAsked(Instant),
    LimitReached,
    KillDue,
    /// The pipes did not end in time; this is what they still held.
    Drained(Vec<Chunk>),
    CommitDue,
    RetryDue,
    Acknowledged,
}

enum Log {
    Idle(LogWriter),
    Writing,
    /// Tried again then, with the same batch.
    Failed(Instant, LogWriter, Batch),
}

/// A running Turn as data.
struct Course {
    shared: Arc<Shared>,
    group: Group,
    drained: bool,
    limit_at: Option<Instant>,
    kill_at: Option<Instant>,
    drain_until: Option<Instant>,
    ended: Option<Ended>,
    timed_out: bool,
    canceled: bool,
    log: Log,
    /// Read and not yet given to the log.
    pending: Vec<Chunk>,
    pending_bytes: u64,
    /// In the log, flushed.
    written: u64,
    /// When what is pending goes to the log at the latest.
    commit_at: Option<Instant>,
    exit_given: bool,
    done: bool,
}

impl Course {
    fn unacknowledged(&self) -> u64 {
        (self.written + self.pending_bytes).saturating_sub(self.shared.progress.borrow().acked)
    }

    /// The end of the process bounds what can still come, and all of it is read, however much is unacknowledged.
    fn may_read(&self) -> bool {
        self.pending_bytes < limits::PENDING_BYTES
            && (self.ended.is_some() || self.unacknowledged() < limits::UNACKNOWLEDGED_BYTES)
    }

    fn take(&mut self, stream: OutputStreamName, data: Bytes, now: Instant) {
        self.pending_bytes += data.len() as u64;
        self.commit_at.get_or_insert(now + limits::GROUP_COMMIT);
        match self.pending.last_mut() {
            Some(last) if last.stream == stream && last.data.len() + data.len() <= limits::RECORD_BYTES => {
                let mut joined = BytesMut::with_capacity(last.data.len() + data.len());
                joined.extend_from_slice(&last.data);
                joined.extend_from_slice(&data);
                last.data = joined.freeze();
            }
            _ => self.pending.push(Chunk { stream, data }),
        }
    }

    fn apply(&mut self, event: Event, now: Instant, reaper: &Reaper) {
        match event {
            Event::Read(stream, data) => self.take(stream, data, now),
            Event::Fed | Event::Acknowledged => {}
            Event::CommitDue => self.commit_at = Some(now),
            Event::RetryDue => {}
            Event::Ended(ended) => {
                self.ended = Some(ended);
                (self.limit_at, self.kill_at) = (None, None);
                self.drain_until = Some(now + limits::DRAIN_TIMEOUT);
            }
            Event::Drained(chunks) => {
                for chunk in chunks {
                    self.take(chunk.stream, chunk.data, now);
                }
            }
            // A process that ended by itself first is neither timed out nor canceled; its end is on its way.
            Event::LimitReached => {
                self.limit_at = None;
                if reaper.is_alive(self.group) {
                    self.timed_out = true;
                    self.group.signal(Signal::KILL);
                }
            }
            Event::CancelAsked(kill_at) => {
                if reaper.is_alive(self.group) {
                    if !self.canceled {
                        self.group.signal(Signal::TERM);
                    }
                    self.canceled = true;
                    self.kill_at = Some(self.kill_at.map_or(kill_at, |at| at.min(kill_at)));
                }
            }
            Event::KillDue => {
                self.kill_at = None;
                self.group.signal(Signal::KILL);
            }
            Event::Flushed(writer, batch, Ok(())) => {
                self.written = writer.offset();
                let segment = writer.segment_start();
                self.log = Log::Idle(writer);
                self.done = batch.exit.is_some();
                self.shared.progress.send_modify(|progress| {
                    progress.written = self.written;
                    progress.segment = segment;
                    progress.exit = batch.exit;
                });
            }
            Event::Flushed(writer, batch, Err(error)) => {
                crate::report(format_args!(
                    "output of Turn {} cannot be written, trying again: {error}",
                    self.shared.id
                ));
                self.log = Log::Failed(now + limits::WRITE_RETRY, writer, batch);
            }
        }
    }

    /// What goes to the log now, if anything.
    fn next_write(&mut self, now: Instant) -> Option<(LogWriter, Batch)> {
        match std::mem::replace(&mut self.log, Log::Writing) {
            Log::Idle(writer) => match self.next_batch(now) {
                Some(batch) => return Some((writer, batch)),
                None => self.log = Log::Idle(writer),
            },
            Log::Failed(at, writer, batch) if at <= now => return Some((writer, batch)),
            other => self.log = other,
        }
        None
    }

    fn next_batch(&mut self, now: Instant) -> Option<Batch> {
        let finishing = self.ended.filter(|_| self.drained && !self.exit_given);
        let due =
            self.commit_at.is_some_and(|at| at <= now) || self.pending_bytes >= limits::RECORD_BYTES as u64;
        if finishing.is_none() && (self.pending.is_empty() || !due) {
            return None;
        }
        self.commit_at = None;
        self.pending_bytes = 0;
        self.exit_given |= finishing.is_some();
        Some(Batch {
            chunks: std::mem::take(&mut self.pending),
            exit: finishing.map(|ended| Exit {
                code: ended.code.into(),
                signal: ended.signal.into(),
                timed_out: self.timed_out,
                canceled: self.canceled && !self.timed_out,
                error: None.into(),
            }),
        })
    }

    fn retry_at(&self) -> Option<Instant> {
        match &self.log {
            Log::Failed(at, ..) => Some(*at),
            _ => None,
        }
    }

    fn commit_at(&self) -> Option<Instant> {
        self.commit_at.filter(|_| matches!(self.log, Log::Idle(_)))
    }
}

type Flush = Pin<Box<dyn Future<Output = (LogWriter, Batch, io::Result<()>)> + Send>>;

/// Follows a started process to its durable exit.
pub(crate) async fn follow(shared: Arc<Shared>, started: Started, run: Run, log: LogWriter, reaper: Reaper) {
    let mut progress = shared.progress.subscribe();
    let mut cancel = shared.cancel.subscribe();
    // A request that came before the process started counts from now on.
    cancel.mark_changed();
    let mut course = Course {
        group: started.group,
        drained: false,
        limit_at: Some(Instant::now() + Duration::from_millis(run.timeout_ms)),
        kill_at: None,
        drain_until: None,
        ended: None,
        timed_out: false,
        canceled: false,
        pending: Vec::new(),
        pending_bytes: 0,
        written: log.offset(),
        log: Log::Idle(log),
        commit_at: None,
        exit_given: false,
        done: false,
        shared,
    };
    let mut ended = started.ended;
    let mut pipes = Pipes::new(started.stdout, started.stderr);
    let mut feeding = Box::pin(feed(started.stdin, run.stdin.0));
    let mut fed = false;
    let mut flush: Option<Flush> = None;
    while !course.done {
        course.drained = !pipes.are_open();
        if let Some((writer, batch)) = course.next_write(Instant::now()) {
            flush = Some(Box::pin(write(writer, batch, course.ended.is_some())));
        }
        let may_read = course.may_read();
        let event = tokio::select! {
            biased;
            (writer, batch, result) = finished(&mut flush) => {
                flush = None;
                Event::Flushed(writer, batch, result)
            }
            Ok(how) = &mut ended, if course.ended.is_none() => Event::Ended(how),
            Ok(()) = cancel.changed(), if course.ended.is_none() => match *cancel.borrow_and_update() {
                Some(kill_at) => Event::CancelAsked(kill_at),
                None => continue,
            },
            () = at(course.limit_at) => Event::LimitReached,
            () = at(course.kill_at) => Event::KillDue,
            () = at(course.drain_until), if pipes.are_open() => Event::Drained(pipes.finish()),
            (stream, data) = pipes.read(), if may_read && pipes.are_open() => match data {
                Some(data) => Event::Read(stream, data),
                None => continue,
            },
            () = &mut feeding, if !fed => {
                fed = true;
                Event::Fed
            }
            () = at(course.commit_at()) => Event::CommitDue,
            () = at(course.retry_at()) => Event::RetryDue,
            Ok(()) = progress.changed(), if !may_read => Event::Acknowledged,
        };
        course.apply(event, Instant::now(), &reaper);
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => pending().await,
    }
}

async fn finished(flush: &mut Option<Flush>) -> (LogWriter, Batch, io::Result<()>) {
    match flush {
        Some(flush) => flush.await,
        None => pending().await,
    }
}

async fn write(mut writer: LogWriter, batch: Batch, ended: bool) -> (LogWriter, Batch, io::Result<()>) {
    task::blocking(move || {
        let result = match ended {
            true => writer.append_at_end(&batch),
            false => writer.append(&batch),
        };
        (writer, batch, result)
    })
    .await
}

/// Gives the process its input and closes it; a process that does not want all of it is no error.
async fn feed(stdin: Option<pipe::Sender>, bytes: Vec<u8>) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(&bytes).await;
    }
}
