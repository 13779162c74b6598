//! Wake-ups by key, for readers that follow something stored: subscribe, read, wait, read again.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch;

/// Tells the subscribers of a key that there may be something new to read. Keys without a subscriber cost nothing.
pub(crate) struct Signals<K: Eq + Hash + Copy>(Arc<Mutex<HashMap<K, watch::Sender<()>>>>);

impl<K: Eq + Hash + Copy> Default for Signals<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Eq + Hash + Copy> Signals<K> {
    /// Everything notified from now on wakes the subscription once.
    pub(crate) fn subscribe(&self, key: K) -> Subscription<K> {
        let receiver = self
            .0
            .lock()
            .entry(key)
            .or_insert_with(|| watch::channel(()).0)
            .subscribe();
        Subscription {
            key,
            receiver,
            signals: self.0.clone(),
        }
    }

    pub(crate) fn notify(&self, key: K) {
        if let Some(sender) = self.0.lock().get(&key) {
            sender.send_replace(());
        }
    }

    pub(crate) fn notify_all(&self) {
        for sender in self.0.lock().values() {
            sender.send_replace(());
        }
    }
}

pub(crate) struct Subscription<K: Eq + Hash + Copy> {
    key: K,
    receiver: watch::Receiver<()>,
    signals: Arc<Mutex<HashMap<K, watch::Sender<()>>>>,
}

impl<K: Eq + Hash + Copy> Subscription<K> {
    /// Resolves once the key was notified since the last time this resolved (or since subscribing).
    pub(crate) async fn changed(&mut self) {
        if self.receiver.changed().await.is_err() {
            // The sender lives as long as this subscription is registered.
            std::future::pending::<()>().await;
        }
    }
}

impl<K: Eq + Hash + Copy> Drop for Subscription<K> {
    fn drop(&mut self) {
        let mut senders = self.signals.lock();
        if senders.get(&self.key).is_some_and(|s| s.receiver_count() <= 1) {
            senders.remove(&self.key);
        }
    }
}

/// How many of something are open per key, with a bound.
pub(crate) struct Counts<K: Eq + Hash + Copy>(Arc<Mutex<HashMap<K, usize>>>);

impl<K: Eq + Hash + Copy> Default for Counts<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Eq + Hash + Copy> Counts<K> {
    /// One more for `key`; `None` when `limit` are open.
    pub(crate) fn open(&self, key: K, limit: usize) -> Option<Counted<K>> {
        let mut counts = self.0.lock();
        let count = counts.entry(key).or_insert(0);
        if *count >= limit {
            return None;
        }
        *count += 1;
        Some(Counted {
            key,
            counts: self.0.clone(),
        })
    }
}

pub(crate) struct Counted<K: Eq + Hash + Copy> {
    key: K,
    counts: Arc<Mutex<HashMap<K, usize>>>,
}

impl<K: Eq + Hash + Copy> Drop for Counted<K> {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_notification_after_subscribing_is_never_lost_and_other_keys_sleep() {
        let signals = Signals::<u8>::default();
        let (mut one, mut two) = (signals.subscribe(1), signals.subscribe(2));
        signals.notify(1);
        one.changed().await;
        assert!(one.changed().now_or_never().is_none());
        assert!(two.changed().now_or_never().is_none());
        let again = signals.subscribe(1);
        drop(one);
        signals.notify(1);
        drop((again, two));
        assert!(signals.0.lock().is_empty());
    }

    #[test]
    fn the_bound_holds_per_key_and_what_closes_makes_room() {
        let counts = Counts::<u8>::default();
        let first = counts.open(1, 2).unwrap();
        let second = counts.open(1, 2).unwrap();
        assert!(counts.open(1, 2).is_none());
        let other = counts.open(2, 2).unwrap();
        drop(first);
        let third = counts.open(1, 2).unwrap();
        drop((second, other, third));
        assert!(counts.0.lock().is_empty());
    }
}
