//! The order in which the streams of a link send: control, Turn output, then files and ports (sessions.md section 6).
//!
//! yamux sends what its streams gave it in the order of their turns, each stream one frame a turn. So what decides is
//! what it is given: a stream gives it nothing while a frame of a higher class waits to leave, and the streams of a lower
//! class together have only a few frames waiting. A status call therefore leaves behind a bounded number of frames,
//! however many files are moved ([`limits::BULK_FRAMES_QUEUED`]). Frames are counted when yamux takes them and again when
//! it writes them to the link's byte stream.

use std::{
    collections::{HashMap, VecDeque},
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, Waker, ready},
};

use futures_util::{AsyncRead, AsyncWrite};

use crate::{exchange::StreamClass, limits};

const CLASSES: usize = 3;

/// Counts the frames of one link that wait to leave; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Frames that yamux has and has not written, by class.
    queued: [usize; CLASSES],
    /// The same by stream.
    of: HashMap<u32, (usize, usize)>,
    /// Streams that may not give it more now.
    waiting: [VecDeque<(u32, Waker)>; CLASSES],
}

const QUEUED: [usize; CLASSES] = [
    usize::MAX,
    limits::OUTPUT_FRAMES_QUEUED,
    limits::BULK_FRAMES_QUEUED,
];

impl State {
    fn admits(&self, class: usize) -> bool {
        self.queued[class] < QUEUED[class] && self.queued[..class].iter().all(|queued| *queued == 0)
    }

    /// Streams that have waited longest, as many as there are places for. When nothing of a class is left that will tell
    /// of its leaving, all: one that is woken may not care any more.
    fn next(&mut self, class: usize) -> Vec<(u32, Waker)> {
        if !self.admits(class) {
            return Vec::new();
        }
        let waiting = self.waiting[class].len();
        let count = match self.queued[class] {
            0 => waiting,
            queued => waiting.min(QUEUED[class] - queued),
        };
        self.waiting[class].drain(..count).collect()
    }
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one frame, taken before yamux has it: the link may write it before this returns to its caller.
    fn poll_take(&self, stream: u32, class: usize, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if !state.admits(class) {
            let waiting = &mut state.waiting[class];
            match waiting.iter_mut().find(|(id, _)| *id == stream) {
                Some((_, waker)) => waker.clone_from(cx.waker()),
                None => waiting.push_back((stream, cx.waker().clone())),
            }
            return Poll::Pending;
        }
        let (before, count) = state.of.get(&stream).copied().unwrap_or((class, 0));
        // A stream's class is known once its request was read.
        state.queued[before] -= count;
        state.queued[class] += count + 1;
        state.of.insert(stream, (class, count + 1));
        Poll::Ready(())
    }

    /// A frame with bytes was written to the link, or yamux did not take it.
    pub(crate) fn left(&self, stream: u32) {
        let mut awake = Vec::new();
        {
            let mut state = self.lock();
            let Some((class, count)) = state.of.get(&stream).copied() else {
                return;
            };
            state.queued[class] -= 1;
            match count {
                1 => drop(state.of.remove(&stream)),
                count => drop(state.of.insert(stream, (class, count - 1))),
            }
            for class in 0..CLASSES {
                awake.append(&mut state.next(class));
            }
        }
        for (_, waker) in awake {
            waker.wake();
        }
    }

    fn forget(&self, stream: u32) {
        for waiting in &mut self.lock().waiting {
            waiting.retain(|(id, _)| *id != stream);
        }
    }
}

/// What a stream is for, known later at the end that does not open it.
#[derive(Clone)]
pub(crate) struct Class(Arc<AtomicU8>);

impl Class {
    pub(crate) fn new(class: StreamClass) -> Self {
        Self(Arc::new(AtomicU8::new(rank(class) as u8)))
    }

    /// As the path of the stream's request says.
    pub(crate) fn learn(&self, path: &str) {
        let class = match path.strip_prefix("/v1/").unwrap_or_default() {
            path if path.starts_with("files") || path.starts_with("ports/") => StreamClass::Bulk,
            path if path.starts_with("turns/") && path.ends_with("/output") => StreamClass::Output,
            _ => StreamClass::Control,
        };
        self.0.store(rank(class) as u8, Ordering::Relaxed);
    }

    fn rank(&self) -> usize {
        usize::from(self.0.load(Ordering::Relaxed))
    }
}

fn rank(class: StreamClass) -> usize {
    match class {
        StreamClass::Control => 0,
        StreamClass::Output => 1,
        StreamClass::Bulk => 2,
    }
}

/// A stream of a link that keeps the order.
pub(crate) struct LinkStream {
    stream: yamux::Stream,
    id: u32,
    class: Class,
    gate: Gate,
}

impl LinkStream {
    pub(crate) fn new(stream: yamux::Stream, class: Class, gate: Gate) -> Self {
        // The library shows the number and keeps it otherwise to itself.
        let id = stream.id().to_string().parse().unwrap_or(0);
        Self {
            stream,
            id,
            class,
            gate,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.stream.is_closed()
    }
}

impl Drop for LinkStream {
    fn drop(&mut self) {
        self.gate.forget(self.id);
    }
}

impl AsyncRead for LinkStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for LinkStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.stream.is_closed() {
            // It says so without waiting.
            return Pin::new(&mut self.stream).poll_write(cx, buf);
        }
        ready!(self.gate.poll_take(self.id, self.class.rank(), cx));
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        if !matches!(written, Poll::Ready(Ok(1..))) {
            self.gate.left(self.id);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_waits_for_every_higher_one_and_has_few_frames_of_its_own() {
        let gate = Gate::default();
        let cx = Context::from_waker(Waker::noop());
        let take = |stream, class| gate.poll_take(stream, class, &cx).is_ready();
        for stream in 0..limits::BULK_FRAMES_QUEUED as u32 {
            assert!(take(stream, 2));
        }
        assert!(!take(90, 2), "files have their share");
        assert!(take(91, 1), "output goes before files");
        gate.left(0);
        assert!(!take(90, 2), "output waits");
        gate.left(91);
        assert!(take(90, 2));
        gate.left(90);
        assert!(take(92, 0));
        assert!(!take(91, 1) && !take(90, 2), "control goes before all");
        assert!(take(93, 0));
        gate.left(92);
        gate.left(93);
        assert!(take(91, 1));
        gate.left(91);
        // A stream whose class was learned takes its frames with it.
        assert!(take(94, 0));
        gate.left(1);
        gate.left(2);
        assert!(!take(94, 2), "its own head goes first");
        gate.left(94);
        assert!(take(94, 2));
        assert_eq!(gate.lock().queued, [0, 0, limits::BULK_FRAMES_QUEUED - 2]);
    }

    #[test]
    fn the_path_of_a_request_tells_its_class() {
        for (path, expected) in [
            ("/v1/status", 0),
            ("/v1/turns/x", 0),
            ("/v1/turns/x/ack", 0),
            ("/v1/quiesce", 0),
            ("/v1/turns/x/output", 1),
            ("/v1/files", 2),
            ("/v1/files/list", 2),
            ("/v1/ports/80", 2),
            ("nonsense", 0),
        ] {
            let class = Class::new(StreamClass::Control);
            class.learn(path);
            assert_eq!(class.rank(), expected, "{path}");
        }
    }
}
