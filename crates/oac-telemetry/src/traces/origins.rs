//! Which step a sandbox comes from.

use std::collections::{HashMap, VecDeque};

use uuid::Uuid;

use super::Context;

/// Sandboxes remembered: the latest so many. Those that are forgotten are traced all the same, without the link.
const ORIGINS: usize = 4096;

#[derive(Default)]
pub(super) struct Origins {
    of: HashMap<Uuid, Context>,
    /// Oldest first.
    order: VecDeque<Uuid>,
}

impl Origins {
    pub(super) fn remember(&mut self, sandbox: Uuid, context: Context) {
        if self.of.insert(sandbox, context).is_none() {
            self.order.push_back(sandbox);
        }
        if self.order.len() > ORIGINS
            && let Some(oldest) = self.order.pop_front()
        {
            self.of.remove(&oldest);
        }
    }

    pub(super) fn of(&self, sandbox: Uuid) -> Option<Context> {
        self.of.get(&sandbox).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_sandboxes_are_remembered_and_no_more() {
        let mut origins = Origins::default();
        let context = Context {
            trace: Uuid::new_v4(),
            span: [1; 8],
        };
        let ids: Vec<_> = (0..ORIGINS + 10).map(|_| Uuid::new_v4()).collect();
        for id in &ids {
            origins.remember(*id, context);
            origins.remember(*id, context);
        }
        assert_eq!(origins.of(ids[9]), None);
        assert_eq!(origins.of(ids[10]), Some(context));
        assert_eq!(origins.of(ids[ORIGINS + 9]), Some(context));
        assert_eq!((origins.of.len(), origins.order.len()), (ORIGINS, ORIGINS));
    }
}
