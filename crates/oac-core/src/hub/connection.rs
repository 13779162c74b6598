//! One node connection: an event loop around `oac_peer::core::Connection`.
//!
//! Every source becomes a [`Happened`]; the state machine turns it into actions; the actions that need the database run
//! beside the loop and come back as events, so that a slow database delays neither answers nor silence.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures_util::{
    FutureExt as _, SinkExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{FuturesUnordered, SplitSink, SplitStream},
};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use oac_model::{ConnectionId, Digest, Generation, ProviderKind, RequestId, Time};
use oac_peer::{
    Moment,
    core::{Action, Call, CallOutcome, Connection, Event, Recorded, Registered, RetentionAnswer, Unsent},
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
use crate::{Core, clock::Clock, presence};

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
    pub(super) connection_id: ConnectionId,
    machine: Mutex<Machine>,
    /// A call changed when the next tick is due.
    called: Notify,
    clock: Arc<Clock>,
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
        }
    }

    pub(super) fn is_ready(&self, generation: Generation) -> bool {
        self.machine.lock().connection.is_ready(generation)
    }

    /// `wait` from now on this connection's clock.
    pub(super) fn deadline(&self, wait: Duration) -> Moment {
        self.clock.now().plus_millis(wait.as_millis() as u64)
    }

    /// Sends, or proves that nothing was sent; `fenced` is the last look at whether this Core may.
    pub(super) fn send(
        &self,
        call: Call,
        fenced: impl FnOnce() -> bool,
    ) -> Result<oneshot::Receiver<CallOutcome>, Unsent> {
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
            if !fenced() {
                return Err(Unsent::NotOwner);
            }
            if let Action::Send(text) = connection.call(call, self.clock.now())? {
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
            // Giving up asks for no action; what is due meanwhile the loop is woken for.
            machine.connection.give_up(id);
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
    Presence(Recorded),
    Health(Recorded),
    Retention(RetentionAnswer),
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
    let clock = core.hub.clock.clone();
    let (node_id, provider) = (registered.node_id, registered.provider);
    let (outgoing, queued) = mpsc::channel(limits::OUTGOING);
    let epoch = ownership.epoch;
    let connection = Connection::open(registered, connection_id, epoch, clock.now());
    let peer = Arc::new(Peer {
        ownership,
        provider,
        connection_id,
        machine: Mutex::new(Machine {
            connection,
            waiting: HashMap::new(),
            outgoing: Some(outgoing),
        }),
        called: Notify::new(),
        clock: clock.clone(),
    });
    let (sink, reader) = socket.split();
    let writer = write(sink, queued, meter.clone(), clock.clone()).boxed();
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
            () = clock.until(wakeup) => Happened::Woken,
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
        let now = clock.now();
        let mut machine = peer.machine.lock();
        let mut actions = VecDeque::new();
        let event = match happened {
            Happened::Received(Some(Ok(Message::Text(text)))) => {
                let event = Event::Message(text.as_bytes(), wall());
                actions.extend(machine.connection.apply(event, now));
                None
            }
            Happened::Received(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => None,
            Happened::Received(
                None
                | Some(Ok(Message::Close(_)))
                | Some(Err(WebSocketError::ConnectionClosed | WebSocketError::Io(_))),
            )
            | Happened::WriteEnded => Some(Event::Lost),
            Happened::Received(Some(Ok(Message::Binary(_) | Message::Frame(_)) | Err(_))) => {
                Some(Event::Unreadable)
            }
            Happened::Woken => {
                // Pieces of a frame that is still arriving are signs of life at the moment they came.
                let received = Event::Bytes(meter.received_at());
                actions.extend(machine.connection.apply(received, now));
                Some(Event::Tick)
            }
            Happened::Closing => {
                let owns = core.owner.ownership() == Some(ownership);
                Some(if owns { Event::Stop } else { Event::EpochLost })
            }
            Happened::Stored(done) => Some(match done {
                Stored::Presence(recorded) => Event::PresenceRecorded(recorded),
                Stored::Health(recorded) => Event::HealthRecorded(recorded),
                Stored::Retention(answer) => Event::RetentionAnswered(answer),
                Stored::Removed => Event::PresenceRemoved,
                Stored::Forbidden => Event::EpochLost,
            }),
        };
        if let Some(event) = event {
            actions.extend(machine.connection.apply(event, now));
        }
        while let Some(action) = actions.pop_front() {
            match action {
                Action::Send(text) => {
                    let sent = machine
                        .outgoing
                        .as_ref()
                        .is_some_and(|out| out.try_send(text).is_ok());
                    if !sent && machine.outgoing.is_some() {
                        // The node takes nothing: a frame that finds no place is a write that failed.
                        actions.extend(machine.connection.apply(Event::Lost, now));
                    }
                }
                Action::Live => {
                    core.hub.live.lock().insert(node_id, peer.clone());
                    core.pokes.allocations.notify_one();
                    tracing::info!(event = "node_connected", %node_id, %connection_id, "node connected");
                }
                Action::Resolve(id, outcome) => {
                    if let Some(waiting) = machine.waiting.remove(&id) {
                        // A caller that is gone needs no answer.
                        let _ = waiting.send(outcome);
                    }
                }
                Action::Close(reason) => {
                    tracing::info!(event = "node_disconnected", %node_id, %connection_id, reason = %crate::http::error::Chain(&reason), "node connection closed");
                    core.hub.remove_live(node_id, connection_id);
                    machine.outgoing = None;
                    wire = None;
                    core.pokes.allocations.notify_one();
                }
                Action::RecordPresence(report) => {
                    let (core, subject) = (core.clone(), subject.clone());
                    stored.push(
                        async move { Stored::Presence(presence::record(&core, &subject, report).await) }
                            .boxed(),
                    );
                }
                Action::RecordHealth(health) => {
                    let (core, subject) = (core.clone(), subject.clone());
                    stored.push(
                        async move { Stored::Health(presence::heartbeat(&core, &subject, health).await) }
                            .boxed(),
                    );
                }
                Action::AnswerRetention(asked) => {
                    let (core, subject) = (core.clone(), subject.clone());
                    stored.push(
                        async move {
                            Stored::Retention(presence::answer_retention(&core, &subject, &asked).await)
                        }
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

/// Core's wall clock.
fn wall() -> Time {
    let millis = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64);
    Time::from_millis(millis).unwrap_or_else(|| unreachable!("the clock is between 1970 and 9999"))
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

/// Writes what is queued; ends when nothing more will be, a write fails, or one makes no progress for 10 s.
async fn write(
    mut sink: SplitSink<Stream, Message>,
    mut queued: mpsc::Receiver<String>,
    meter: Arc<Meter>,
    clock: Arc<Clock>,
) {
    while let Some(text) = queued.recv().await {
        let mut sending = std::pin::pin!(sink.send(Message::Text(Utf8Bytes::from(text))));
        loop {
            tokio::select! {
                sent = &mut sending => match sent {
                    Ok(()) => break,
                    Err(_) => return,
                },
                () = clock.until(Some(meter.patience())) => {
                    if meter.stalled_for() >= limits::WRITE_PROGRESS {
                        return;
                    }
                }
            }
        }
    }
}

/// Retried until done, the epoch is lost or Core stops: presence that stays is of an epoch that ended, and counts no more.
async fn remove(core: Arc<Core>, subject: presence::Subject) -> Stored {
    loop {
        match presence::remove(&core, &subject).await {
            Ok(()) => return Stored::Removed,
            Err(presence::RemoveError::EpochLost) => return Stored::Forbidden,
            Err(presence::RemoveError::Storage) => {
                tracing::warn!(node_id = %subject.node_id, "presence is not removed yet");
                let pause = tokio::time::sleep(limits::REMOVAL_RETRY);
                let stopping = core.tasks.stopping();
                if stopping.run_until_cancelled(pause).await.is_none() {
                    return Stored::Forbidden;
                }
            }
        }
    }
}
