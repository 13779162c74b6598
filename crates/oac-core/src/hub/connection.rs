//! One node connection: an event loop around `oac_peer::core::Connection`.
//!
//! Every source becomes a [`Happened`]; the state machine turns it into actions; the actions that need the database run
//! beside the loop and come back as events, so that a slow database delays neither answers nor silence.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{
    FutureExt as _, SinkExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{FuturesUnordered, SplitSink, SplitStream},
};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use oac_model::{ConnectionId, Digest, ProviderKind, RequestId};
use oac_peer::{
    Moment,
    core::{Action, Call, CallOutcome, Connection, Event, Registered, Unsent},
};
use oac_store::Ownership;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Error as WebSocketError, Message, Utf8Bytes},
};

use super::{
    Connected,
    connect::Reservation,
    limits,
    socket::{Meter, Socket},
};
use crate::{Core, presence};

type Stream = WebSocketStream<Socket<TokioIo<Upgraded>>>;

/// What the opening checks established.
pub(super) struct Opened {
    pub(super) registered: Registered,
    /// SHA-256 of the credential, compared again at every heartbeat.
    pub(super) credential: Digest,
    pub(super) connection_id: ConnectionId,
    pub(super) ownership: Ownership,
    pub(super) closing: watch::Receiver<u64>,
}

/// A connection as the rest of Core reaches it.
pub(super) struct Peer {
    pub(super) ownership: Ownership,
    pub(super) provider: ProviderKind,
    connection_id: ConnectionId,
    machine: Mutex<Machine>,
    ready: AtomicBool,
    /// A call changed when the next tick is due.
    called: Notify,
    started: Instant,
}

struct Machine {
    connection: Connection,
    waiting: HashMap<RequestId, oneshot::Sender<CallOutcome>>,
    /// Bounded; pending requests are bounded below it, so it is full only when the node takes nothing.
    outgoing: Option<mpsc::Sender<String>>,
}

impl Peer {
    pub(super) fn connected(&self) -> Connected {
        Connected {
            connection_id: self.connection_id,
            ready: self.ready.load(Ordering::Relaxed),
        }
    }

    fn now(&self) -> Moment {
        Moment(self.started.elapsed().as_millis() as u64)
    }

    /// `wait` from now on this connection's clock.
    pub(super) fn deadline(&self, wait: Duration) -> Moment {
        self.now().plus_millis(wait.as_millis() as u64)
    }

    /// Sends, or proves that nothing was sent.
    pub(super) fn send(&self, call: Call) -> Result<oneshot::Receiver<CallOutcome>, Unsent> {
        let id = call.id;
        let (answer, answered) = oneshot::channel();
        {
            let mut machine = self.machine.lock();
            let Machine {
                connection,
                waiting,
                outgoing,
            } = &mut *machine;
            let Some(outgoing) = outgoing else {
                return Err(Unsent::NotConnected);
            };
            // A free place first: after the call was numbered its frame must go out.
            let place = outgoing.try_reserve().map_err(|_| Unsent::Full)?;
            if let Action::Send(text) = connection.call(call, self.now())? {
                place.send(text);
            }
            waiting.insert(id, answer);
        }
        self.called.notify_one();
        Ok(answered)
    }

    /// The caller waits no longer; the request stays pending until it is answered.
    pub(super) fn give_up(&self, id: RequestId) {
        let mut machine = self.machine.lock();
        if machine.waiting.remove(&id).is_some() {
            let now = self.now();
            // Giving up asks for no action.
            machine.connection.apply(Event::GaveUp(id), now);
        }
    }
}

/// What the loop waits for.
enum Happened {
    Received(Option<Result<Message, WebSocketError>>),
    WriteEnded,
    Stored(Stored),
    Woken,
    Closing,
}

/// A database action that ended.
enum Stored {
    Presence(presence::Outcome),
    Health(presence::Outcome),
    Removed,
    /// Given up, because the epoch is lost.
    Forbidden,
}

/// The parts of the loop that live as long as the socket.
struct Wire {
    reader: SplitStream<Stream>,
    writer: BoxFuture<'static, ()>,
}

pub(super) async fn run(
    core: Arc<Core>,
    opened: Opened,
    socket: Stream,
    meter: Arc<Meter>,
    held: Reservation,
) {
    let Opened {
        registered,
        credential,
        connection_id,
        ownership,
        mut closing,
    } = opened;
    let started = meter.started();
    let (node_id, provider) = (registered.node_id, registered.provider);
    let (outgoing, queued) = mpsc::channel(limits::OUTGOING);
    let epoch = ownership.epoch;
    let connection = Connection::open(registered, connection_id, epoch, Moment(0));
    let peer = Arc::new(Peer {
        ownership,
        provider,
        connection_id,
        machine: Mutex::new(Machine {
            connection,
            waiting: HashMap::new(),
            outgoing: Some(outgoing),
        }),
        ready: AtomicBool::new(false),
        called: Notify::new(),
        started,
    });
    let (sink, reader) = socket.split();
    let writer = write(sink, queued, meter.clone()).boxed();
    let mut wire = Some(Wire { reader, writer });
    let mut stored: FuturesUnordered<BoxFuture<'static, Stored>> = FuturesUnordered::new();
    let mut held = Some(held);
    let subject = presence::Subject {
        node_id,
        connection_id,
        ownership,
        credential,
    };
    let mut asked_to_close = false;

    while held.is_some() || wire.is_some() || !stored.is_empty() {
        let wakeup = peer.machine.lock().connection.next_wakeup();
        let happened = tokio::select! {
            received = next(&mut wire) => received,
            Some(stored) = stored.next() => Happened::Stored(stored),
            () = until(started, wakeup) => Happened::Woken,
            () = peer.called.notified() => Happened::Woken,
            changed = closing.changed(), if !asked_to_close => {
                asked_to_close = true;
                match changed {
                    Ok(()) | Err(_) => Happened::Closing,
                }
            }
            () = core.tasks.stopping().cancelled_owned(), if !asked_to_close => {
                asked_to_close = true;
                Happened::Closing
            }
        };
        let now = peer.now();
        let mut machine = peer.machine.lock();
        let mut actions = Vec::new();
        match happened {
            Happened::Received(
                None | Some(Err(WebSocketError::ConnectionClosed | WebSocketError::Io(_))),
            ) => {
                actions.extend(machine.connection.apply(Event::Lost, now));
            }
            Happened::Received(Some(Ok(Message::Text(text)))) => {
                actions.extend(machine.connection.apply(Event::Message(text.as_bytes()), now));
            }
            Happened::Received(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {}
            Happened::Received(Some(Ok(Message::Close(_)))) => {
                actions.extend(machine.connection.apply(Event::Lost, now));
            }
            Happened::Received(Some(Ok(Message::Binary(_) | Message::Frame(_)) | Err(_))) => {
                actions.extend(machine.connection.apply(Event::Unreadable, now));
            }
            Happened::WriteEnded => actions.extend(machine.connection.apply(Event::Lost, now)),
            Happened::Woken => {
                // Pieces of a frame that is still arriving are signs of life at the moment they came.
                let received = Moment(meter.received_at());
                actions.extend(machine.connection.apply(Event::Bytes(received), now));
                actions.extend(machine.connection.apply(Event::Tick, now));
            }
            Happened::Closing => {
                let owns = core.owner.ownership() == Some(ownership);
                let event = if owns { Event::Stop } else { Event::EpochLost };
                actions.extend(machine.connection.apply(event, now));
            }
            Happened::Stored(done) => {
                let event = match done {
                    Stored::Presence(outcome) => {
                        peer.note(&outcome);
                        Event::PresenceRecorded(outcome.recorded)
                    }
                    Stored::Health(outcome) => {
                        peer.note(&outcome);
                        Event::HealthRecorded(outcome.recorded)
                    }
                    Stored::Removed => Event::PresenceRemoved,
                    Stored::Forbidden => Event::EpochLost,
                };
                actions.extend(machine.connection.apply(event, now));
            }
        }
        for action in actions {
            match action {
                Action::Send(text) => {
                    // Never full: requests and acknowledgements together have their places.
                    let sent = machine
                        .outgoing
                        .as_ref()
                        .is_some_and(|out| out.try_send(text).is_ok());
                    if !sent {
                        tracing::debug!(%node_id, "a frame found no place");
                    }
                }
                Action::Live => {
                    core.hub.live.lock().insert(node_id, peer.clone());
                    core.pokes.allocations.notify_one();
                    tracing::info!(%node_id, %connection_id, "node connected");
                }
                Action::Resolve(id, outcome) => {
                    if let Some(waiting) = machine.waiting.remove(&id) {
                        // A caller that is gone needs no answer.
                        let _ = waiting.send(outcome);
                    }
                }
                Action::Close(reason) => {
                    tracing::info!(%node_id, %connection_id, reason = %crate::http::error::Chain(&reason), "node connection closed");
                    core.hub.remove_live(node_id, connection_id);
                    machine.outgoing = None;
                    wire = None;
                    core.pokes.allocations.notify_one();
                }
                Action::RecordPresence(report) => {
                    let (core, subject) = (core.clone(), subject.clone());
                    stored.push(
                        async move { Stored::Presence(presence::record(&core, &subject, *report).await) }
                            .boxed(),
                    );
                }
                Action::RecordHealth(health) => {
                    let (core, subject) = (core.clone(), subject.clone());
                    stored.push(
                        async move { Stored::Health(presence::heartbeat(&core, &subject, *health).await) }
                            .boxed(),
                    );
                }
                Action::RemovePresence(_) => {
                    let (core, subject) = (core.clone(), subject.clone());
                    stored.push(remove(core, subject).boxed());
                }
                Action::Free => held = None,
            }
        }
    }
}

impl Peer {
    fn note(&self, outcome: &presence::Outcome) {
        self.ready.store(outcome.ready, Ordering::Relaxed);
    }
}

async fn next(wire: &mut Option<Wire>) -> Happened {
    match wire {
        Some(Wire { reader, writer }) => tokio::select! {
            received = reader.next() => Happened::Received(received),
            () = writer => Happened::WriteEnded,
        },
        None => std::future::pending().await,
    }
}

async fn until(started: Instant, moment: Option<Moment>) {
    match moment {
        Some(Moment(millis)) => {
            tokio::time::sleep_until((started + Duration::from_millis(millis)).into()).await;
        }
        None => std::future::pending().await,
    }
}

/// Writes what is queued; ends when nothing more will be, a write fails, or one makes no progress for 10 s.
async fn write(mut sink: SplitSink<Stream, Message>, mut queued: mpsc::Receiver<String>, meter: Arc<Meter>) {
    while let Some(text) = queued.recv().await {
        let mut sending = std::pin::pin!(sink.send(Message::Text(Utf8Bytes::from(text))));
        loop {
            let patience = limits::WRITE_PROGRESS.saturating_sub(meter.stalled_for());
            match tokio::time::timeout(patience, &mut sending).await {
                Ok(Ok(())) => break,
                Ok(Err(_)) => return,
                Err(_) if meter.stalled_for() >= limits::WRITE_PROGRESS => return,
                Err(_) => {}
            }
        }
    }
}

/// Retried until done or the epoch is lost.
async fn remove(core: Arc<Core>, subject: presence::Subject) -> Stored {
    loop {
        match presence::remove(&core, &subject).await {
            Ok(()) => return Stored::Removed,
            Err(presence::RemoveError::EpochLost) => return Stored::Forbidden,
            Err(presence::RemoveError::Storage(error)) => {
                tracing::warn!(node_id = %subject.node_id, error = %crate::http::error::Chain(&error), "presence is not removed yet");
                tokio::time::sleep(limits::REMOVAL_RETRY).await;
            }
        }
    }
}
