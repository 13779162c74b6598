use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    sync::watch,
};

/// The bytes of every connection through one thing in between.
#[derive(Debug, Clone)]
pub struct Passage(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: watch::Sender<State>,
    /// Bytes that passed, of all connections and both ways.
    passed: watch::Sender<u64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    frozen: bool,
    cuts: u64,
    /// Time that passed, in milliseconds. Only a test lets it pass.
    now: u64,
    /// A connection on which nothing passes for this long is cut.
    idle: Option<u64>,
}

impl Default for Passage {
    fn default() -> Self {
        Self(Arc::new(Shared {
            state: watch::Sender::new(State::default()),
            passed: watch::Sender::new(0),
        }))
    }
}

impl Passage {
    /// From now on nothing passes, ends neither: to both sides the other one is silent.
    pub fn freeze(&self) {
        self.0.state.send_modify(|state| state.frozen = true);
    }

    pub fn thaw(&self) {
        self.0.state.send_modify(|state| state.frozen = false);
    }

    /// Ends every connection there is, for both sides.
    pub fn cut(&self) {
        self.0.state.send_modify(|state| state.cuts += 1);
    }

    /// Cuts a connection on which nothing passes for this long.
    pub fn cut_idle_after(&self, time: Duration) {
        self.0
            .state
            .send_modify(|state| state.idle = Some(time.as_millis() as u64));
    }

    /// Lets time pass.
    pub fn skip(&self, time: Duration) {
        self.0
            .state
            .send_modify(|state| state.now += time.as_millis() as u64);
    }

    /// Bytes that passed so far.
    pub fn passed(&self) -> u64 {
        *self.0.passed.borrow()
    }

    /// Resolves when more than `bytes` have passed in all.
    pub async fn more_than(&self, bytes: u64) {
        let mut passed = self.0.passed.subscribe();
        // The sender lives in `self`.
        let _ = passed.wait_for(|passed| *passed > bytes).await;
    }

    /// Passes on what comes, until both ends have ended or the passage ends it.
    pub(super) async fn pass(
        &self,
        one: impl AsyncRead + AsyncWrite + Unpin,
        other: impl AsyncRead + AsyncWrite + Unpin,
    ) {
        let last = AtomicU64::new(self.0.state.borrow().now);
        let ((one_reads, one_writes), (other_reads, other_writes)) = (split(one), split(other));
        let there = self.copy(one_reads, other_writes, &last);
        let back = self.copy(other_reads, one_writes, &last);
        tokio::select! {
            _ = async { tokio::join!(there, back) } => {}
            () = self.ended(&last) => {}
        }
    }

    async fn copy(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        last: &AtomicU64,
    ) {
        let mut buffer = vec![0; 64 << 10];
        let mut state = self.0.state.subscribe();
        loop {
            let _ = state.wait_for(|state| !state.frozen).await;
            let read = from.read(&mut buffer).await.unwrap_or(0);
            // What was read when the line went dead stays here.
            let _ = state.wait_for(|state| !state.frozen).await;
            if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
                let _ = to.shutdown().await;
                return;
            }
            last.store(self.0.state.borrow().now, Ordering::Relaxed);
            self.0.passed.send_modify(|passed| *passed += read as u64);
        }
    }

    async fn ended(&self, last: &AtomicU64) {
        let mut state = self.0.state.subscribe();
        let cuts = state.borrow().cuts;
        let ended = state.wait_for(|state| {
            let idle = state.now.saturating_sub(last.load(Ordering::Relaxed));
            state.cuts > cuts || state.idle.is_some_and(|limit| idle >= limit)
        });
        let _ = ended.await;
    }
}
