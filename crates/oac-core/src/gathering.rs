//! Requests on their way into transactions that they share.
//!
//! A database makes each transaction durable on its own, which takes far longer than what one request writes. So one task
//! at a time stores what waits: while a transaction is under way whatever arrives is gathered, and goes into the next one
//! together. Nothing waits for company: a request that comes when nothing is under way begins at once, unless its kind
//! asks for a [`Shared::PACE`].

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

use crate::{Core, task::Kind};

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
    /// Requests that may wait for a transaction; a further one is told so at once. What was put back is not counted.
    const WAITING: usize;
    /// From the begin of one transaction to that of the next, unless [`Self::MOST`] wait.
    const PACE: Duration;

    fn gathering(core: &Core) -> &Gathering<Self>;

    fn scope(&self) -> Self::Scope;

    fn key(&self) -> Option<Self::Key>;

    /// Stores requests and answers them. Those it gives back go into the next transaction, before all others.
    fn store(core: &Core, requests: Vec<Waiting<Self>>) -> impl Future<Output = Vec<Waiting<Self>>> + Send;
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
    /// A whole transaction's worth waits.
    full: Notify,
}

struct Inner<R: Shared> {
    waiting: VecDeque<Waiting<R>>,
    /// A task is storing.
    storing: bool,
    /// Requests of the transaction that was begun last.
    under_way: usize,
    began: Option<Instant>,
}

impl<R: Shared> Default for Gathering<R> {
    fn default() -> Self {
        Self {
            inner: Mutex::new(Inner {
                waiting: VecDeque::new(),
                storing: false,
                under_way: 0,
                began: None,
            }),
            full: Notify::new(),
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
    }
}

impl<R: Shared> Gathering<R> {
    /// Requests that wait for a transaction, those in the one that runs not counted.
    pub fn waiting(&self) -> usize {
        self.inner.lock().waiting.len()
    }

    /// Requests of the transaction that runs.
    pub fn under_way(&self) -> usize {
        self.inner.lock().under_way
    }

    /// Requests that have no answer yet.
    pub fn unanswered(&self) -> usize {
        let inner = self.inner.lock();
        inner.waiting.len() + inner.under_way
    }

    /// True when the caller has to start what stores.
    fn add(&self, waiting: Waiting<R>) -> Result<bool, Unanswered> {
        let mut inner = self.inner.lock();
        if inner.waiting.len() >= R::WAITING {
            return Err(Unanswered::Full);
        }
        inner.waiting.push_back(waiting);
        if inner.waiting.len() == R::MOST {
            self.full.notify_one();
        }
        Ok(!std::mem::replace(&mut inner.storing, true))
    }

    /// After a transaction.
    fn put_back(&self, left: Vec<Waiting<R>>) {
        let mut inner = self.inner.lock();
        inner.under_way = 0;
        inner.put_back(left);
    }

    /// The requests of the next transaction; `None` when nothing waits, and then storing is over.
    async fn next(&self) -> Option<Vec<Waiting<R>>> {
        let due = {
            let mut inner = self.inner.lock();
            if inner.waiting.is_empty() {
                inner.storing = false;
                return None;
            }
            let full = inner.waiting.len() >= R::MOST;
            inner.began.filter(|_| !full).map(|began| began + R::PACE)
        };
        match due.filter(|due| *due > Instant::now()) {
            Some(due) => tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                () = self.full.notified() => {}
            },
            // Whoever was just answered and asks again at once is in the next transaction, not in the one after it.
            None => tokio::task::yield_now().await,
        }
        let mut inner = self.inner.lock();
        inner.began = Some(Instant::now());
        Some(inner.take())
    }
}

impl<R: Shared> Inner<R> {
    /// Requests in the order they came, of one scope and no two of one key.
    fn take(&mut self) -> Vec<Waiting<R>> {
        let mut taken: Vec<Waiting<R>> = Vec::new();
        let (mut keys, mut left) = (HashSet::new(), Vec::new());
        while taken.len() < R::MOST
            && let Some(next) = self.waiting.pop_front()
        {
            let shares = taken
                .first()
                .is_none_or(|first| first.request.scope() == next.request.scope());
            // A key's later request waits behind its earlier one, whatever that waits for.
            let first_of_key = next.request.key().is_none_or(|key| keys.insert(key));
            if shares && first_of_key {
                taken.push(next);
            } else {
                left.push(next);
            }
        }
        self.put_back(left);
        self.under_way = taken.len();
        taken
    }

    fn put_back(&mut self, left: Vec<Waiting<R>>) {
        for waiting in left.into_iter().rev() {
            self.waiting.push_front(waiting);
        }
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

        async fn store(_: &Core, _: Vec<Waiting<Self>>) -> Vec<Waiting<Self>> {
            Vec::new()
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
            under_way: 0,
            began: None,
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
        gathering.put_back(taken);
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
}
