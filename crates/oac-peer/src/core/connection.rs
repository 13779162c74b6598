use oac_model::{ConnectionId, Generation, OwnerEpoch, RequestId};
use oac_wire::{
    CoreFrame, NodeFrame,
    frames::{Hello, Welcome},
};

use super::{
    Action, Call, CloseReason, Event, Presence, Recorded, Registered, Unsent,
    calls::{Calls, Sender},
    live::{Live, Report, claims_readiness},
};
use crate::{
    Moment,
    limits::{HELLO_MILLIS, REMOVAL_MILLIS, SILENCE_MILLIS},
};

/// One node connection at Core (protocol.md sections 4 to 6 and 12).
///
/// | state | event | next | actions |
/// |---|---|---|---|
/// | Opening | valid hello of the authenticated node | Opening | RecordPresence |
/// | Opening | PresenceRecorded(Done) | Live | Send welcome, Live |
/// | Opening | 15 s without hello, any other frame, Lost, a failure | Closing | Close; no frame |
/// | Live | Bytes, Message | Live | restarts the 35 s silence |
/// | Live | heartbeat | Live | RecordHealth |
/// | Live | HealthRecorded(Done) | Live | Send heartbeat_ack |
/// | Live | response | Live | Resolve |
/// | Live | retention of a managing node | Live | AnswerRetention |
/// | Live | RetentionAnswered(Done) | Live | Send retention_ack |
/// | Live | any condition of section 12 | Closing | Resolve all as uncertain, Close, RemovePresence |
/// | Closing | PresenceRecorded (late) | Closing | RemovePresence |
/// | Closing | PresenceRemoved, or 5 s | Freed | Free |
/// | Opening, Live, Closing | EpochLost | Freed | Close, Free; nothing is written any more |
/// | Freed | PresenceRecorded (late) | Freed | RemovePresence |
///
/// A connection that never had its presence recorded passes through Closing at once. Callers that give
/// up, and their deadlines, move no state. Every other pair is ignored.
#[derive(Debug)]
pub struct Connection {
    pub(super) state: State,
    pub(super) registered: Registered,
    pub(super) connection_id: ConnectionId,
    pub(super) owner_epoch: OwnerEpoch,
    pub(super) calls: Calls,
}

#[derive(Debug)]
pub(super) enum State {
    /// Until hello, which is due 15 s after `since`.
    AwaitingHello {
        since: Moment,
    },
    /// Presence is being recorded.
    Recording {
        heard: Moment,
        managing: bool,
        report: Report,
    },
    Live(Live),
    Closing {
        since: Moment,
        removal: Removal,
    },
    /// The late answer about presence may still ask for its removal.
    Freed {
        removal: Removal,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removal {
    /// Recording presence has not answered; a removal now could run before it.
    AfterRecording,
    Asked,
    /// Not needed, done, or forbidden.
    Over,
}

/// The name of a state, for logs and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateName {
    Opening,
    Live,
    Closing,
    Freed,
}

impl Connection {
    /// A connection whose identity was just reserved. `connection_id` is fresh.
    pub fn open(
        registered: Registered,
        connection_id: ConnectionId,
        owner_epoch: OwnerEpoch,
        now: Moment,
    ) -> Self {
        Self {
            state: State::AwaitingHello { since: now },
            registered,
            connection_id,
            owner_epoch,
            calls: Calls::default(),
        }
    }

    pub fn state(&self) -> StateName {
        match self.state {
            State::AwaitingHello { .. } | State::Recording { .. } => StateName::Opening,
            State::Live(_) => StateName::Live,
            State::Closing { .. } => StateName::Closing,
            State::Freed { .. } => StateName::Freed,
        }
    }

    pub fn connection_id(&self) -> ConnectionId {
        self.connection_id
    }

    pub fn registered(&self) -> &Registered {
        &self.registered
    }

    /// Requests without an answer, those whose caller gave up included.
    pub fn pending(&self) -> usize {
        self.calls.pending()
    }

    /// When `Tick` is due at the latest.
    pub fn next_wakeup(&self) -> Option<Moment> {
        let of_state = match &self.state {
            State::AwaitingHello { since } => Some(since.plus_millis(HELLO_MILLIS)),
            State::Recording { heard, .. } => Some(heard.plus_millis(SILENCE_MILLIS)),
            State::Live(live) => Some(live.heard.plus_millis(SILENCE_MILLIS)),
            State::Closing { since, .. } => Some(since.plus_millis(REMOVAL_MILLIS)),
            State::Freed { .. } => None,
        };
        of_state.into_iter().chain(self.calls.next_deadline()).min()
    }

    /// Whether what is last recorded says that the node is ready for this generation.
    pub fn is_ready(&self, generation: Generation) -> bool {
        matches!(&self.state, State::Live(live) if live.readiness.is_ready(generation))
    }

    /// The caller of this request waits no longer; the request stays pending. No action follows, so none can be lost.
    pub fn give_up(&mut self, id: RequestId) {
        self.calls.give_up(id);
    }

    /// Sends one request. The frame goes out before any later action, in the order of the sequences.
    pub fn call(&mut self, call: Call, now: Moment) -> Result<Action, Unsent> {
        let State::Live(live) = &self.state else {
            return Err(Unsent::NotConnected);
        };
        let sender = Sender {
            connection_id: self.connection_id,
            owner_epoch: self.owner_epoch,
            readiness: &live.readiness,
        };
        self.calls.send(&sender, call, now).map(Action::Send)
    }

    /// Takes one event. `now` never runs backward.
    pub fn apply(&mut self, event: Event<'_>, now: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        self.calls.expire(now, &mut actions);
        match (&mut self.state, event) {
            (State::Freed { removal }, Event::PresenceRecorded(_)) if *removal == Removal::AfterRecording => {
                *removal = Removal::Asked;
                actions.push(Action::RemovePresence(self.connection_id));
            }
            (State::Freed { removal }, Event::EpochLost) => *removal = Removal::Over,
            (State::Freed { .. }, _) => {}
            (_, Event::EpochLost) => self.abandon(&mut actions),
            (State::Closing { removal, .. }, Event::PresenceRecorded(_))
                if *removal == Removal::AfterRecording =>
            {
                *removal = Removal::Asked;
                actions.push(Action::RemovePresence(self.connection_id));
            }
            (State::Closing { .. }, Event::PresenceRemoved) => {
                self.state = State::Freed {
                    removal: Removal::Over,
                };
                actions.push(Action::Free);
            }
            (State::Closing { since, removal }, Event::Tick)
                if now.millis_since(*since) >= REMOVAL_MILLIS =>
            {
                self.state = State::Freed { removal: *removal };
                actions.push(Action::Free);
            }
            (State::Closing { .. }, _) => {}
            (_, Event::Stop) => self.close(CloseReason::Stopping, now, &mut actions),
            (_, Event::Lost) => self.close(CloseReason::Lost, now, &mut actions),
            (_, Event::Unreadable) => self.close(CloseReason::Unreadable, now, &mut actions),
            (State::AwaitingHello { since }, Event::Tick) if now.millis_since(*since) >= HELLO_MILLIS => {
                self.close(CloseReason::HelloLate, now, &mut actions);
            }
            (State::Recording { heard, .. }, Event::Tick) if now.millis_since(*heard) >= SILENCE_MILLIS => {
                self.close(CloseReason::Silence, now, &mut actions);
            }
            (State::Live(live), Event::Tick) if now.millis_since(live.heard) >= SILENCE_MILLIS => {
                self.close(CloseReason::Silence, now, &mut actions);
            }
            (State::Recording { heard, .. }, Event::Bytes(at)) => *heard = (*heard).max(at.min(now)),
            (State::Live(live), Event::Bytes(at)) => live.heard = live.heard.max(at.min(now)),
            (State::AwaitingHello { .. }, Event::Message(text, _)) => match self.hello(text) {
                Ok(presence) => {
                    self.state = State::Recording {
                        heard: now,
                        managing: presence.managing,
                        report: Report::of(&presence.health),
                    };
                    actions.push(Action::RecordPresence(presence));
                }
                Err(reason) => self.close(reason, now, &mut actions),
            },
            // The node waits for welcome before it says more.
            (State::Recording { .. }, Event::Message(..)) => {
                self.close(CloseReason::UnexpectedFrame, now, &mut actions);
            }
            (State::Recording { managing, report, .. }, Event::PresenceRecorded(recorded)) => {
                let (managing, report) = (*managing, std::mem::take(report));
                self.presence_recorded(recorded, managing, &report, now, &mut actions);
            }
            (State::Live(live), Event::Message(text, wall)) => {
                live.heard = now;
                if let Err(reason) = self.message(text, wall, &mut actions) {
                    self.close(reason, now, &mut actions);
                }
            }
            (State::Live(_), Event::HealthRecorded(recorded)) => {
                if let Err(reason) = self.health_recorded(recorded, &mut actions) {
                    self.close(reason, now, &mut actions);
                }
            }
            (State::Live(_), Event::RetentionAnswered(answer)) => {
                if let Err(reason) = self.retention_answered(answer, &mut actions) {
                    self.close(reason, now, &mut actions);
                }
            }
            _ => {}
        }
        actions
    }

    fn hello(&self, text: &[u8]) -> Result<Box<Presence>, CloseReason> {
        if text.len() > oac_wire::limits::CONTROL_FRAME_BYTES {
            return Err(CloseReason::Unreadable);
        }
        let hello = match NodeFrame::decode(text) {
            Ok(NodeFrame::Hello(hello)) => hello,
            Ok(_) => return Err(CloseReason::NotHello),
            Err(error) => return Err(CloseReason::InvalidFrame(error)),
        };
        let Hello {
            identity,
            health,
            generation_management,
        } = *hello;
        let r = &self.registered;
        let same = identity.node_id == r.node_id
            && identity.installation_id == r.installation_id
            && identity.provider == r.provider
            && identity.backend_fingerprint == r.backend_fingerprint
            && identity.deployment_generation == r.deployment_generation
            && identity.specification_digest == r.specification_digest;
        let managing = generation_management == Some(true);
        if !same {
            Err(CloseReason::Identity)
        } else if r.managing && !managing {
            Err(CloseReason::Management)
        } else if managing && claims_readiness(&health) {
            Err(CloseReason::ManagedReadiness)
        } else {
            Ok(Box::new(Presence {
                connection_id: self.connection_id,
                owner_epoch: self.owner_epoch,
                identity,
                health,
                managing,
            }))
        }
    }

    fn presence_recorded(
        &mut self,
        recorded: Recorded,
        managing: bool,
        report: &Report,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        let enrolled = self.registered.deployment_generation;
        let mut live = Live::new(managing, enrolled, now);
        let noted = live.note(report, recorded);
        // Whatever the answer, presence may have been written: from here on it has to be removed.
        self.state = State::Live(live);
        let deployment = match noted {
            Ok(deployment) => deployment,
            Err(failure) => return self.close(CloseReason::Presence(failure), now, actions),
        };
        let welcome = CoreFrame::Welcome(Welcome {
            connection_id: self.connection_id,
            owner_epoch: self.owner_epoch,
            deployment,
        });
        match welcome.encode() {
            Ok(text) => actions.extend([Action::Send(text), Action::Live]),
            Err(error) => self.close(CloseReason::OwnFrame(error), now, actions),
        }
    }

    fn close(&mut self, reason: CloseReason, now: Moment, actions: &mut Vec<Action>) {
        self.calls.disconnect(actions);
        actions.push(Action::Close(reason));
        let removal = match self.state {
            State::AwaitingHello { .. } => Removal::Over,
            State::Recording { .. } => Removal::AfterRecording,
            _ => Removal::Asked,
        };
        self.state = match removal {
            Removal::Over => State::Freed { removal },
            removal => State::Closing { since: now, removal },
        };
        match removal {
            Removal::Over => actions.push(Action::Free),
            Removal::Asked => actions.push(Action::RemovePresence(self.connection_id)),
            Removal::AfterRecording => {}
        }
    }

    /// The epoch is lost: presence belongs to its next owner.
    fn abandon(&mut self, actions: &mut Vec<Action>) {
        self.calls.disconnect(actions);
        if !matches!(self.state, State::Closing { .. }) {
            actions.push(Action::Close(CloseReason::EpochLost));
        }
        self.state = State::Freed {
            removal: Removal::Over,
        };
        actions.push(Action::Free);
    }
}
