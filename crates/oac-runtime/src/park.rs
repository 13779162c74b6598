//! From quiescing over parked to awake again (sessions.md section 9).
//!
//! | state | quiesce(id) | link closed `link_parked` | wake(id) | linked |
//! | --- | --- | --- | --- | --- |
//! | awake | quiesced(id) | parked | awake | awake |
//! | quiesced(id) | quiesced(id), another id refused | parked | waking | awake |
//! | parked | refused | parked | waking, another id refused | awake |
//! | waking | refused | waking | waking | awake |
//!
//! Guarantees. From *quiesced* on nothing begins: no Turn, no file operation, no port stream. *Parked*, the program waits
//! for one thing, a word on its socket: it dials nobody, sets no timer, changes no file and starts no process (INV-S14).
//! A link that is welcomed ends all of it, since whoever welcomes it wants the sandbox: a quiesced program whose link
//! broke off before it was parked dials again like any other.
//!
//! A program that nobody could wake refuses to be quiesced, and takes `link_parked` for an ordinary end.

use oac_model::OperationId;
use tokio::sync::watch;

use crate::{activity::Activity, turns::Turns};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Awake,
    Quiesced(OperationId),
    /// By the suspension, if one was under way.
    Parked(Option<OperationId>),
    Waking(Option<OperationId>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Quiesce(OperationId),
    ClosedToPark,
    Wake(OperationId),
    Linked,
}

/// What a state does not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refused;

impl State {
    /// Every transition there is.
    fn after(self, event: Event) -> Result<Self, Refused> {
        use State::{Awake, Parked, Quiesced, Waking};
        Ok(match (self, event) {
            (_, Event::Linked) => Awake,
            (Awake, Event::Quiesce(id)) => Quiesced(id),
            (Quiesced(by), Event::Quiesce(id)) if by == id => self,
            (_, Event::Quiesce(_)) => return Err(Refused),
            (Awake, Event::ClosedToPark) => Parked(None),
            (Quiesced(by), Event::ClosedToPark) => Parked(Some(by)),
            (Parked(_) | Waking(_), Event::ClosedToPark) => self,
            (Awake, Event::Wake(_)) => Awake,
            (Quiesced(by), Event::Wake(id)) if by == id => Waking(Some(by)),
            (Parked(by) | Waking(by), Event::Wake(id)) if by.is_none_or(|by| by == id) => Waking(by),
            (_, Event::Wake(_)) => return Err(Refused),
        })
    }
}

/// The answer to `POST /v1/quiesce`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quiesce {
    Quiesced,
    Busy(&'static str),
    /// Nothing could wake this program.
    NotSupported,
}

/// What a wake found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    /// It does not rest, or no longer.
    Awake,
    /// It rests for another suspension.
    OtherSuspension,
}

/// What wakes have done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wakes {
    /// How often a program that rests, or is waking, was asked.
    pub asked: u64,
    /// How often that began a waking: connections of before lead nowhere. Asked again, it goes on with what it has begun.
    pub begun: u64,
}

/// The rest of one program; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Park {
    state: watch::Sender<State>,
    wakes: watch::Sender<Wakes>,
    turns: Turns,
    activity: Activity,
    can_wake: bool,
}

impl Park {
    /// `can_wake`: somebody can reach the program while it is parked.
    pub(crate) fn new(turns: Turns, activity: Activity, can_wake: bool) -> Self {
        Self {
            state: watch::Sender::new(State::Awake),
            wakes: watch::Sender::default(),
            turns,
            activity,
            can_wake,
        }
    }

    /// Whether the state changed.
    fn step(&self, event: Event) -> Result<bool, Refused> {
        let mut result = Ok(false);
        self.state.send_if_modified(|state| match state.after(event) {
            Ok(next) => {
                let changed = next != *state;
                *state = next;
                result = Ok(changed);
                changed
            }
            Err(refused) => {
                result = Err(refused);
                false
            }
        });
        result
    }

    /// Lets nothing begin any more, if nothing is under way.
    pub(crate) fn quiesce(&self, suspend_id: OperationId) -> Quiesce {
        if *self.state.borrow() == State::Quiesced(suspend_id) {
            return Quiesce::Quiesced;
        }
        if !matches!(*self.state.borrow(), State::Awake) {
            return Quiesce::Busy("another suspension is under way");
        }
        if let Err(why) = self.turns.close() {
            return Quiesce::Busy(why);
        }
        if !self.activity.close() {
            self.turns.reopen();
            return Quiesce::Busy("a file operation is open or a port stream exists");
        }
        if !self.can_wake {
            self.reopen();
            return Quiesce::NotSupported;
        }
        match self.step(Event::Quiesce(suspend_id)) {
            Ok(_) => Quiesce::Quiesced,
            Err(Refused) => {
                self.reopen();
                Quiesce::Busy("another suspension is under way")
            }
        }
    }

    fn reopen(&self) {
        self.turns.reopen();
        self.activity.reopen();
    }

    /// Whether nothing begins.
    pub(crate) fn is_quiesced(&self) -> bool {
        *self.state.borrow() != State::Awake
    }

    /// A link was welcomed.
    pub(crate) fn linked(&self) {
        let rested = self.is_quiesced();
        let _ = self.step(Event::Linked);
        if rested {
            self.reopen();
        }
    }

    /// The link was closed for parking. False when that is an ordinary end here: nobody could wake the program, or
    /// somebody just has.
    pub(crate) fn closed_to_park(&self) -> bool {
        self.can_wake
            && self.step(Event::ClosedToPark).is_ok()
            && matches!(*self.state.borrow(), State::Parked(_))
    }

    /// Asks the program to link again.
    pub(crate) fn wake(&self, suspend_id: OperationId) -> Result<(), Wake> {
        let begins = self
            .step(Event::Wake(suspend_id))
            .map_err(|Refused| Wake::OtherSuspension)?;
        if !self.is_quiesced() {
            return Err(Wake::Awake);
        }
        self.wakes.send_modify(|wakes| {
            wakes.asked += 1;
            wakes.begun += u64::from(begins);
        });
        Ok(())
    }

    /// Changes with each wake of a program that rests.
    pub(crate) fn wakes(&self) -> watch::Receiver<Wakes> {
        self.wakes.subscribe()
    }

    /// Resolves while nothing rests.
    pub(crate) async fn awake(&self) {
        let _ = self
            .state
            .subscribe()
            .wait_for(|state| *state == State::Awake)
            .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_takes_every_event_as_the_table_says() {
        use State::{Awake, Parked, Quiesced, Waking};
        let (one, two) = (OperationId::random(), OperationId::random());
        let events = [
            Event::Quiesce(one),
            Event::Quiesce(two),
            Event::ClosedToPark,
            Event::Wake(one),
            Event::Wake(two),
            Event::Linked,
        ];
        let no = None;
        for (state, after) in [
            (
                Awake,
                [
                    Some(Quiesced(one)),
                    Some(Quiesced(two)),
                    Some(Parked(None)),
                    Some(Awake),
                    Some(Awake),
                    Some(Awake),
                ],
            ),
            (
                Quiesced(one),
                [
                    Some(Quiesced(one)),
                    no,
                    Some(Parked(Some(one))),
                    Some(Waking(Some(one))),
                    no,
                    Some(Awake),
                ],
            ),
            (
                Parked(Some(one)),
                [
                    no,
                    no,
                    Some(Parked(Some(one))),
                    Some(Waking(Some(one))),
                    no,
                    Some(Awake),
                ],
            ),
            (
                Parked(None),
                [
                    no,
                    no,
                    Some(Parked(None)),
                    Some(Waking(None)),
                    Some(Waking(None)),
                    Some(Awake),
                ],
            ),
            (
                Waking(Some(one)),
                [
                    no,
                    no,
                    Some(Waking(Some(one))),
                    Some(Waking(Some(one))),
                    no,
                    Some(Awake),
                ],
            ),
        ] {
            for (event, expected) in events.into_iter().zip(after) {
                assert_eq!(state.after(event).ok(), expected, "{state:?} {event:?}");
            }
        }
    }
}
