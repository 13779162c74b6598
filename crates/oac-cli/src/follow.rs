//! Following an event stream over lost connections and restarts of Core: resumed where it broke, for a bounded time.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::time::{Instant, sleep_until, timeout};

use crate::{
    Failure,
    client::{Client, turns::StreamPath},
    sse::{self, Event},
};

/// How long a stream is believed in.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Core sends a comment every 15 s; a connection silent for longer is dead.
    pub silence: Duration,
    /// The first pause before the stream is asked for again, and the longest.
    pub pause: (Duration, Duration),
    /// From then on it is worth a word.
    pub notice: Duration,
    /// From then on it is given up.
    pub give_up: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            silence: Duration::from_secs(45),
            pause: (Duration::from_millis(250), Duration::from_secs(5)),
            notice: Duration::from_secs(5),
            give_up: Duration::from_secs(15 * 60),
        }
    }
}

/// So often a stream may tell what does not fit.
const MISFITS: u32 = 20;

/// What the reader of a stream is told.
#[derive(Debug)]
pub enum Told {
    Event(Event),
    /// Everything that Core has stored so far was told.
    CaughtUp,
    /// Core closed the stream: it is over, or this Core stops. It is asked for again.
    Closed,
    /// The stream could not be had for a while; it is still asked for. Told once until it is back.
    Lost,
}

type Body = std::pin::Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>;

/// One event stream, on however many connections.
pub struct Follow<'a> {
    client: &'a Client,
    stream: StreamPath,
    /// The place after the last event that was told.
    at: u64,
    patience: Patience,
    body: Option<(Body, sse::Reader)>,
    pending: VecDeque<sse::Item>,
    trouble: Option<Trouble>,
    misfits: u32,
}

/// The time without a working connection.
struct Trouble {
    since: Instant,
    pause: Duration,
    again: Instant,
    noticed: bool,
    last: Option<Failure>,
}

impl<'a> Follow<'a> {
    pub fn new(client: &'a Client, stream: StreamPath, from: u64) -> Self {
        Self {
            client,
            stream,
            at: from,
            patience: Patience::default(),
            body: None,
            pending: VecDeque::new(),
            trouble: None,
            misfits: 0,
        }
    }

    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// What comes next; pending while there is nothing. Cancel safe: nothing that was read is lost. The caller knows the
    /// stream's last event and asks no more after it.
    pub async fn next(&mut self) -> Result<Told, Failure> {
        loop {
            match self.pending.pop_front() {
                Some(sse::Item::Comment) => return Ok(Told::CaughtUp),
                Some(sse::Item::Event(event)) => {
                    if let Some(at) = event.id.as_ref().and_then(|id| id.parse().ok()) {
                        self.at = at;
                    }
                    return Ok(Told::Event(event));
                }
                None => {}
            }
            if self.body.is_some() {
                if self.read().await {
                    return Ok(Told::Closed);
                }
                continue;
            }
            if let Some(trouble) = &mut self.trouble {
                // However long a request took, it is told before it is given up.
                if !trouble.noticed && trouble.since.elapsed() >= self.patience.notice {
                    trouble.noticed = true;
                    return Ok(Told::Lost);
                }
                if trouble.since.elapsed() >= self.patience.give_up {
                    let last = trouble.last.take();
                    return Err(last.unwrap_or_else(|| {
                        Failure::Unfinished(
                            "the stream from Core keeps breaking off: look at the proxies on the way"
                                .to_owned(),
                        )
                    }));
                }
                let notice = trouble.since + self.patience.notice;
                if !trouble.noticed && notice < trouble.again {
                    // The pause goes on after the word.
                    sleep_until(notice).await;
                    continue;
                }
                sleep_until(trouble.again).await;
            }
            match self.client.stream(&self.stream, self.at).await {
                Ok(response) => {
                    self.body = Some((response.bytes_stream().boxed(), sse::Reader::default()));
                }
                Err(failure) if failure.is_passing() => self.broke(Some(failure)),
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Goes back to `at` on a new connection: what came does not fit there.
    pub fn back_to(&mut self, at: u64) -> Result<(), Failure> {
        self.misfits += 1;
        if self.misfits == MISFITS {
            return Err(self.client.not_core(200));
        }
        self.at = at;
        self.pending.clear();
        self.broke(None);
        Ok(())
    }

    /// Reads on, until something is pending or the connection is found broken. Whether Core closed it.
    async fn read(&mut self) -> bool {
        let Some((body, reader)) = &mut self.body else {
            return false;
        };
        let (items, closed) = match timeout(self.patience.silence, body.next()).await {
            Ok(Some(Ok(chunk))) => (reader.push(&chunk), false),
            Ok(None) => (Err(sse::NotEvents), true),
            _ => (Err(sse::NotEvents), false),
        };
        match items {
            Ok(items) => {
                if !items.is_empty() {
                    self.trouble = None;
                }
                self.pending.extend(items);
            }
            Err(_) => self.broke(None),
        }
        closed
    }

    fn broke(&mut self, why: Option<Failure>) {
        self.body = None;
        let now = Instant::now();
        let (first, longest) = self.patience.pause;
        let trouble = self.trouble.get_or_insert(Trouble {
            since: now,
            pause: first / 2,
            again: now,
            noticed: false,
            last: None,
        });
        trouble.pause = (trouble.pause * 2).min(longest);
        trouble.again = now + trouble.pause;
        trouble.last = why.or(trouble.last.take());
    }
}
