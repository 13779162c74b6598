//! Requests on their way into transactions that they share.
//!
//! A database makes each transaction durable on its own, which takes far longer than what one request writes. So one task
//! at a time stores what waits: while a transaction is under way whatever arrives is gathered, and goes into the next one
//! together. Nothing waits for company: a request that comes when nothing is under way begins at once, unless its kind
//! asks for a [`Shared::PACE`].
//!
//! A request may need a row that another transaction holds. Such requests wait apart, so that however many there are they
//! take up no more than their share of a transaction that others wait for; and where nobody else waits, nothing is asked of
//! the database for [`HELD_PAUSE`].

use std::{
    collections::{HashSet, VecDeque},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use crate::{Core, limits::HELD_PAUSE, task::Kind};

/// A kind of request whose transactions are shared.
pub trait Shared: Send + Sized + 'static {
    type Answer: Send + 'static;
    /// Requests of one transaction are of one scope.
    type Scope: PartialEq;
    /// No two requests of one transaction have the same: the later one is about what becomes of the earlier.
    type Key: Eq + Hash;

    /// Of the task that stores them.
    const NAME: &'static str;
    /// Requests of one transaction at most.
    const MOST: usize;
    /// Requests that may wait for a transaction; a further one is told so at once. What is put back always has its place.
    const WAITING: usize;
    /// From the begin of one transaction to that of the next, unless [`Self::MOST`] wait.
    const PACE: Duration;

    fn gathering(core: &Core) -> &Gathering<Self>;

    fn scope(&self) -> Self::Scope;

    fn key(&self) -> Option<Self::Key>;

    /// Stores requests and answers them, but for those it gives back.
    fn store(core: &Core, requests: Vec<Waiting<Self>>) -> impl Future<Output = Left<Self>> + Send;
}

/// Requests that a transaction left without an answer.
pub struct Left<R: Shared> {
    /// They go into the next transaction, before all others.
    pub(crate) again: Vec<Waiting<R>>,
    /// What they need is held by another transaction: they try again beside others, or after a pause.
    pub(crate) held: Vec<Waiting<R>>,
}

impl<R: Shared> Default for Left<R> {
    fn default() -> Self {
        Self {
            again: Vec::new(),
            held: Vec::new(),
        }
    }
}

/// One request, and who waits for its answer.
pub struct Waiting<R: Shared> {
    pub(crate) request: R,
    answer: oneshot::Sender<R::Answer>,
}

impl<R: Shared> Waiting<R> {
    /// Nobody waits for the answer any more.
    pub(crate) fn is_left(&self) -> bool {
        self.answer.is_closed()
    }

    pub(crate) fn answer(self, answer: R::Answer) {
        // Whoever left needs none.
        let _ = self.answer.send(answer);
    }
}

/// The requests of one kind that wait.
pub struct Gathering<R: Shared> {
    inner: Mutex<Inner<R>>,
    /// A transaction may be due earlier than it was.
    earlier: Notify,
}

struct Inner<R: Shared> {
    waiting: VecDeque<Waiting<R>>,
    /// Those that wait for what another transaction holds. No two are of one key, and none of `waiting` is of an earlier
    /// request of its key.
    held: VecDeque<Waiting<R>>,
    /// A task is storing.
    storing: bool,
    /// Requests of the transaction that was begun last.
    under_way: usize,
    began: Option<Instant>,
    ended: Option<Instant>,
}

impl<R: Shared> Default for Gathering<R> {
    fn default() -> Self {
        Self {
            inner: Mutex::new(Inner::default()),
            earlier: Notify::new(),
        }
    }
}

impl<R: Shared> Default for Inner<R> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            held: VecDeque::new(),
            storing: false,
            under_way: 0,
            began: None,
            ended: None,
        }
    }
}

/// Why a request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// As many wait as may, and nothing was done for it.
    Full,
    /// What stored it ended without an answer: what became of it is not known.
    Lost,
}

/// Has a request stored.
///
/// # Errors
/// See [`Unanswered`].
pub(crate) async fn answered<R: Shared>(core: &Arc<Core>, request: R) -> Result<R::Answer, Unanswered> {
    let (answer, answered) = oneshot::channel();
    let gathering = R::gathering(core);
    if gathering.add(Waiting { request, answer })? {
        let core_ = core.clone();
        core.tasks.spawn(Kind::Finish, R::NAME, async move {
            let storing = Storing(R::gathering(&core_));
            while let Some(requests) = storing.0.next().await {
                let left = R::store(&core_, requests).await;
                storing.0.put_back(left);
            }
            // The queue was found empty and given up under its lock.
            std::mem::forget(storing);
        });
    }
    answered.await.map_err(|_| Unanswered::Lost)
}

/// Of a task that panicked: whoever waits is told, and another task stores what comes.
struct Storing<'a, R: Shared>(&'a Gathering<R>);

impl<R: Shared> Drop for Storing<'_, R> {
    fn drop(&mut self) {
        let mut inner = self.0.inner.lock();
        inner.storing = false;
        inner.under_way = 0;
        inner.waiting.clear();
        inner.held.clear();
    }
}

impl<R: Shared> Gathering<R> {
    /// Requests that wait for a transaction, those in the one that runs not counted.
    pub fn waiting(&self) -> usize {
        self.inner.lock().count()
    }

    /// Of these, those that wait for what another transaction holds.
    pub fn held(&self) -> usize {
        self.inner.lock().held.len()
    }

    /// Requests of the transaction that runs.
    pub fn under_way(&self) -> usize {
        self.inner.lock().under_way
    }

    /// Requests that have no answer yet.
    pub fn unanswered(&self) -> usize {
        let inner = self.inner.lock();
        inner.count() + inner.under_way
    }

    /// True when the caller has to start what stores.
    fn add(&self, waiting: Waiting<R>) -> Result<bool, Unanswered> {
        let mut inner = self.inner.lock();
        if inner.count() >= R::WAITING {
            return Err(Unanswered::Full);
        }
        inner.waiting.push_back(waiting);
        let others = inner.waiting.len();
        if others == R::MOST || others == 1 && !inner.held.is_empty() {
            self.earlier.notify_one();
        }
        Ok(!std::mem::replace(&mut inner.storing, true))
    }

    /// After a transaction.
    fn put_back(&self, left: Left<R>) {
        let mut inner = self.inner.lock();
        inner.under_way = 0;
        inner.ended = Some(Instant::now());
        inner.put_back(left.again);
        inner.held.extend(left.held);
    }

    /// The requests of the next transaction; `None` when nothing waits, and then storing is over.
    async fn next(&self) -> Option<Vec<Waiting<R>>> {
        loop {
            let due = {
                let mut inner = self.inner.lock();
                if inner.count() == 0 {
                    inner.storing = false;
                    return None;
                }
                inner.due()
            };
            let Some(due) = due.filter(|due| *due > Instant::now()) else {
                break;
            };
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                () = self.earlier.notified() => {}
            }
        }
        // Whoever was just answered and asks again at once is in the next transaction, not in the one after it.
        tokio::task::yield_now().await;
        let mut inner = self.inner.lock();
        inner.began = Some(Instant::now());
        Some(inner.take())
    }
}

impl<R: Shared> Inner<R> {
    fn count(&self) -> usize {
        self.waiting.len() + self.held.len()
    }

    /// When the next transaction is due; `None` at once.
    fn due(&self) -> Option<Instant> {
        if self.waiting.len() >= R::MOST {
            return None;
        }
        let paced = self.began.map(|began| began + R::PACE);
        let rested = self.ended.filter(|_| self.waiting.is_empty());
        paced.max(rested.map(|ended| ended + HELD_PAUSE))
    }

    /// Requests of one scope and no two of one key, the held ones first, all in the order they came. Half of a transaction
    /// is for those that are not held, as far as they need it.
    fn take(&mut self) -> Vec<Waiting<R>> {
        let mut taking = Taking {
            taken: Vec::new(),
            keys: HashSet::new(),
        };
        let room = R::MOST - self.waiting.len().min(R::MOST / 2);
        let left = taking.take(&mut self.held, room);
        self.held.extend(left);
        taking
            .keys
            .extend(self.held.iter().filter_map(|w| w.request.key()));
        let left = taking.take(&mut self.waiting, R::MOST);
        self.put_back(left);
        self.under_way = taking.taken.len();
        taking.taken
    }

    fn put_back(&mut self, left: Vec<Waiting<R>>) {
        for waiting in left.into_iter().rev() {
            self.waiting.push_front(waiting);
        }
    }
}

/// What a transaction takes.
struct Taking<R: Shared> {
    taken: Vec<Waiting<R>>,
    keys: HashSet<R::Key>,
}

impl<R: Shared> Taking<R> {
    /// Takes of a queue until there are `most`; those that cannot share the transaction are left.
    fn take(&mut self, queue: &mut VecDeque<Waiting<R>>, most: usize) -> Vec<Waiting<R>> {
        let mut left = Vec::new();
        while self.taken.len() < most
            && let Some(next) = queue.pop_front()
        {
            let first = self.taken.first();
            let shares = first.is_none_or(|first| first.request.scope() == next.request.scope());
            // A key's later request waits behind its earlier one, whatever that waits for.
            let first_of_key = next.request.key().is_none_or(|key| self.keys.insert(key));
            if shares && first_of_key {
                self.taken.push(next);
            } else {
                left.push(next);
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scope, key, and what tells it from others.
    struct Asked(u8, Option<u8>, usize);

    impl Shared for Asked {
        type Answer = ();
        type Scope = u8;
        type Key = u8;
        const NAME: &'static str = "asked";
        const MOST: usize = 4;
        const WAITING: usize = 8;
        const PACE: Duration = Duration::ZERO;

        fn gathering(_: &Core) -> &Gathering<Self> {
            unreachable!("no Core takes part")
        }

        fn scope(&self) -> u8 {
            self.0
        }

        fn key(&self) -> Option<u8> {
            self.1
        }

        async fn store(_: &Core, _: Vec<Waiting<Self>>) -> Left<Self> {
            Left::default()
        }
    }

    fn waiting(number: usize, scope: u8, key: Option<u8>) -> Waiting<Asked> {
        Waiting {
            request: Asked(scope, key, number),
            answer: oneshot::channel().0,
        }
    }

    fn gathered(asked: impl IntoIterator<Item = (u8, Option<u8>)>) -> Inner<Asked> {
        let asked = asked.into_iter().enumerate();
        let asked = asked.map(|(number, (scope, key))| waiting(number, scope, key));
        Inner {
            waiting: asked.collect(),
            storing: true,
            ..Inner::default()
        }
    }

    fn again(left: Vec<Waiting<Asked>>) -> Left<Asked> {
        Left {
            again: left,
            ..Left::default()
        }
    }

    fn held(left: Vec<Waiting<Asked>>) -> Left<Asked> {
        Left {
            held: left,
            ..Left::default()
        }
    }

    fn taken(inner: &mut Inner<Asked>) -> Vec<usize> {
        inner.take().iter().map(|w| w.request.2).collect()
    }

    #[test]
    fn a_transaction_is_of_one_scope_and_has_one_request_of_a_key_in_the_order_they_came() {
        let said = [(1, 1), (1, 1), (2, 2), (1, 3), (1, 2), (1, 1)];
        let mut inner = gathered(said.map(|(scope, key)| (scope, Some(key))));
        assert_eq!(taken(&mut inner), [0, 3]);
        assert_eq!(taken(&mut inner), [1]);
        assert_eq!(taken(&mut inner), [2]);
        assert_eq!(taken(&mut inner), [4, 5]);
        assert!(taken(&mut inner).is_empty());
    }

    #[tokio::test]
    async fn no_more_wait_than_may_and_there_is_room_again_once_a_transaction_took_some() {
        let gathering = Gathering::<Asked>::default();
        let ask = |number| gathering.add(waiting(number, 1, None));
        assert_eq!(ask(0), Ok(true), "the first one starts what stores");
        for number in 1..Asked::WAITING {
            assert_eq!(ask(number), Ok(false));
        }
        assert_eq!(ask(Asked::WAITING), Err(Unanswered::Full));
        assert_eq!(gathering.waiting(), Asked::WAITING);
        let taken = gathering.next().await.unwrap();
        assert_eq!(
            (taken.len(), gathering.unanswered()),
            (Asked::MOST, Asked::WAITING)
        );
        assert_eq!(ask(Asked::WAITING), Ok(false));
        // What is put back lost no place.
        gathering.put_back(again(taken));
        assert_eq!(gathering.unanswered(), Asked::WAITING + 1);
        assert_eq!(ask(0), Err(Unanswered::Full));
    }

    #[test]
    fn a_transaction_takes_no_more_than_its_share_and_what_is_put_back_comes_first() {
        let mut inner = gathered((0..6).map(|_| (1, None)));
        let mut first = inner.take();
        assert_eq!(first.len(), Asked::MOST);
        inner.put_back(first.split_off(2));
        assert_eq!(taken(&mut inner), [2, 3, 4, 5]);
    }

    #[test]
    fn held_requests_however_many_leave_half_of_a_transaction_to_others_and_take_turns_in_the_rest() {
        let gathering = Gathering::<Asked>::default();
        for number in 0..6 {
            gathering.add(waiting(number, 1, None)).unwrap();
        }
        let take = || taken(&mut gathering.inner.lock());
        let put_held = |numbers: &[usize]| {
            gathering.put_back(held(numbers.iter().map(|n| waiting(*n, 1, None)).collect()));
        };
        assert_eq!(take(), [0, 1, 2, 3]);
        put_held(&[0, 1, 2, 3]);
        // Nobody is passed by who is not held, and nobody else is behind them.
        assert_eq!(take(), [0, 1, 4, 5]);
        put_held(&[0, 1, 4, 5]);
        assert_eq!(gathering.held(), 6);
        gathering.add(waiting(6, 1, None)).unwrap();
        assert_eq!(take(), [2, 3, 0, 6]);
        put_held(&[2, 3, 0]);
        assert_eq!(take(), [1, 4, 5, 2]);
    }

    #[test]
    fn what_is_held_has_its_keys_later_requests_wait_behind_it_though_it_is_in_no_transaction() {
        let mut inner = gathered([(1, Some(8)), (1, Some(9)), (1, None), (1, Some(9)), (1, None)]);
        let of_key = |number, key| waiting(number, 1, Some(key));
        inner.held.extend([of_key(10, 1), of_key(11, 7), of_key(12, 9)]);
        // The last of the held ones finds no room.
        assert_eq!(taken(&mut inner), [10, 11, 0, 2]);
        assert_eq!(taken(&mut inner), [12, 4]);
        assert_eq!(taken(&mut inner), [1]);
        assert_eq!(taken(&mut inner), [3]);
    }

    #[tokio::test(start_paused = true)]
    async fn where_nothing_but_held_requests_waits_a_pause_comes_first_and_whoever_comes_ends_it() {
        let gathering = Gathering::<Asked>::default();
        gathering.add(waiting(0, 1, None)).unwrap();
        let first = gathering.next().await.unwrap();
        gathering.put_back(held(first));
        let began = Instant::now();
        let second = gathering.next().await.unwrap();
        let waited = began.elapsed();
        assert_eq!(second.len(), 1);
        // A timer is as fine as a millisecond.
        assert!(
            (HELD_PAUSE..HELD_PAUSE + Duration::from_millis(2)).contains(&waited),
            "{waited:?}"
        );
        gathering.put_back(held(second));
        let began = Instant::now();
        let (third, _) = tokio::join!(gathering.next(), async { gathering.add(waiting(1, 1, None)) });
        assert_eq!((third.unwrap().len(), began.elapsed()), (2, Duration::ZERO));
    }
}
