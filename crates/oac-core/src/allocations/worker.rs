//! The pass: what is due, what is next for it, and who does it.
//!
//! One task holds the watches and starts steps; each step is a task of its own, so that no node waits for another. A
//! pass takes no argument: poked or by timer it reads what is stored and plans. There may be 100,000 allocations, so one is
//! read only when it was told of, a step of it ended, its time came, its node connected or its link went; now and then all
//! are looked through that something is to be done for, whoever told of them.

mod plan;
mod relieve;
mod unreadable;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{FutureExt as _, future::BoxFuture};
use oac_lifecycle::{
    Millis,
    allocation::Noted,
    suspension::{self, Answer},
};
use oac_model::{AllocationId, AllocationState, ConnectionId, Generation, NodeId, SessionId};
use oac_store::{AllocationRow, Ownership, StoreError};

use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    demand::{self, Waiting},
    limits,
    places::{Place, Places},
    steps::{self, Done},
    suspension::{self as held, Told},
};
use crate::{Core, http::error::Chain, placement::pressure::Wanted, task::Kind};
use unreadable::Unreadable;

/// What one owner remembers of one allocation.
struct Tracked {
    /// For one that cannot be suspended, its base alone.
    watch: suspension::Watch,
    session_id: SessionId,
    /// The nodes that hold it or one of its computes, its own first, with the connections it was last planned with.
    nodes: Vec<(NodeId, Option<ConnectionId>)>,
    /// Whether it was linked then.
    linked: bool,
    planned: Planned,
    due: Millis,
    sampled: Millis,
    /// Until then it is suspended as soon as it is idle: a demand fits nowhere else.
    early: Option<Millis>,
    /// Before, it is not chosen for that again: it was tried, and others may do better.
    tried: Millis,
}

/// What an allocation was last planned with.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Planned {
    revision: i64,
    node: Option<NodeId>,
    generation: Generation,
    /// Whether its node was ready for it.
    ready: bool,
}

impl Tracked {
    /// It may be suspended for a demand: it is not being for another, and nothing says that it would not be.
    fn may_come_early(&self, now: Millis) -> bool {
        self.early.is_none() && now >= self.tried.max(self.watch.suspends_at())
    }
}

struct Worker {
    core: Arc<Core>,
    started: Instant,
    tracked: BTreeMap<AllocationId, Tracked>,
    in_flight: HashSet<AllocationId>,
    /// Told of, or ended with a step: planned with the next pass.
    fresh: BTreeSet<AllocationId>,
    places: Arc<Places>,
    ended: mpsc::Receiver<Finished>,
    /// Given to each step; bounded, a step that ended waits for its place.
    ending: mpsc::Sender<Finished>,
    /// Ends the steps of this ownership with it.
    _stop: DropGuard,
    stopping: CancellationToken,
    waiting: Waiting,
    unreadable: Unreadable,
    /// Demands that fit nowhere, each with the one sandbox that is being suspended for it.
    relieving: BTreeMap<Wanted, AllocationId>,
    /// Demands are looked at no earlier.
    relieve_at: Millis,
    /// The earliest `due` of all tracked, or earlier.
    next_due: Millis,
    /// Tracked allocations are looked through no earlier.
    scan_at: Millis,
    /// Stored ones are looked through no earlier.
    find_at: Millis,
}

struct Finished {
    row: AllocationRow,
    done: Done,
}

/// Runs as long as Core; acts only while it owns the installation.
pub(super) async fn run(core: Arc<Core>) {
    loop {
        let ownership = core.owner.owned().await;
        let mut worker = Worker::new(core.clone());
        worker.serve(&ownership).await;
    }
}

async fn failed(error: StoreError) {
    tracing::warn!(event = "allocations_unread", error = %Chain(&error), "allocations cannot be read");
    tokio::time::sleep(limits::FAILED_PASS).await;
}

/// When after a takeover the allocation is sampled first: not all at once.
fn spread(id: AllocationId) -> Millis {
    i64::from(id.as_uuid().as_fields().0) % limits::SAMPLE_MILLIS
}

/// What a step of one that can be suspended tells.
fn tell(watch: &mut suspension::Watch, told: Told, now: Millis) {
    match told {
        Told::Observed {
            held,
            node,
            of,
            answer,
        } => watch.observed(&held, node, of, answer, now),
        Told::Settled { node, answer } => watch.settled(node, answer),
        Told::Woke { node } => {
            watch.settled(node, Answer::Done);
            watch.woke(now);
        }
        Told::AnswerLost { node } => watch.answer_lost(node, now),
        Told::NotSent { node } => watch.not_sent(node, now),
        Told::NoTarget => watch.no_target(now),
        Told::Declined { node } => watch.declined(node, now),
        // The time of the next look is the worker's.
        Told::Crowded => {}
    }
}

fn connection(core: &Core, node: NodeId) -> Option<ConnectionId> {
    core.hub.connected(node).map(|connected| connected.connection_id)
}

/// The allocation's runtime is linked now, and answers: what is asked of it needs a link that is ready.
fn linked(core: &Core, id: AllocationId) -> bool {
    core.links.ready(id).is_some()
}

impl Worker {
    fn new(core: Arc<Core>) -> Self {
        let (ending, ended) = mpsc::channel(limits::ENDED_STEPS);
        let stopping = CancellationToken::new();
        Self {
            core,
            started: Instant::now(),
            tracked: BTreeMap::new(),
            in_flight: HashSet::new(),
            fresh: BTreeSet::new(),
            places: Arc::new(Places::new()),
            ended,
            ending,
            _stop: stopping.clone().drop_guard(),
            stopping,
            waiting: Waiting::default(),
            unreadable: Unreadable::default(),
            relieving: BTreeMap::new(),
            relieve_at: 0,
            next_due: 0,
            scan_at: 0,
            find_at: 0,
        }
    }

    fn now(&self) -> Millis {
        self.started.elapsed().as_millis() as Millis
    }

    /// Until this ownership ends.
    async fn serve(&mut self, ownership: &Ownership) {
        let mut found = false;
        while self.core.owner.ownership().as_ref() == Some(ownership) {
            if !found {
                found = match self.take_over().await {
                    Ok(()) => true,
                    Err(error) => {
                        failed(error).await;
                        continue;
                    }
                };
            }
            if let Err(error) = self.pass().await {
                failed(error).await;
                continue;
            }
            let pause = self.pause();
            tokio::select! {
                // A poke during the pass left its permit here.
                () = self.core.pokes.allocations.notified() => {}
                Some(finished) = self.ended.recv() => {
                    self.finish(finished);
                    while let Ok(finished) = self.ended.try_recv() {
                        self.finish(finished);
                    }
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Everything there is becomes due once.
    async fn take_over(&mut self) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let page = self
                .core
                .store
                .single()
                .unreleased_allocations(after, limits::PAGE)
                .await?;
            let Some(last) = page.last() else { break };
            after = Some(last);
            for (id, error) in page.unreadable {
                self.pass_over(id, error)?;
            }
            for row in &page.rows {
                let spread = spread(row.id);
                self.track(row).sampled = spread - limits::SAMPLE_MILLIS;
            }
        }
        let mut after = None;
        loop {
            let read = self.core.store.single();
            let page = read.allocations_owing_kills(after, limits::PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last);
            for (id, error) in page.unreadable {
                self.pass_over(id, error)?;
            }
            for row in &page.rows {
                self.track(row);
            }
        }
        for id in demand::all(&self.core).await? {
            self.waiting.add(id, 0);
        }
        Ok(())
    }

    fn track(&mut self, row: &AllocationRow) -> &mut Tracked {
        self.tracked.entry(row.id).or_insert_with(|| Tracked {
            watch: suspension::Watch::default(),
            session_id: row.session_id,
            nodes: row.node_id.map(|node| (node, None)).into_iter().collect(),
            linked: false,
            planned: Planned {
                revision: 0,
                node: row.node_id,
                generation: row.deployment_generation,
                ready: false,
            },
            due: 0,
            sampled: Millis::MIN / 2,
            early: None,
            tried: Millis::MIN,
        })
    }

    async fn pass(&mut self) -> Result<(), StoreError> {
        let began = self.now();
        if began >= self.find_at {
            self.find().await?;
            let took = self.now() - began;
            self.find_at = self.now() + limits::FIND_MILLIS.max(took * limits::FIND_SHARE);
        }
        self.fresh.extend(self.core.pokes.take_changed());
        let due = self.due();
        self.fresh.extend(due);
        while !self.fresh.is_empty() {
            let ids: Vec<AllocationId> = self.fresh.iter().take(limits::PAGE as usize).copied().collect();
            self.look(&ids).await?;
            for id in ids {
                self.fresh.remove(&id);
            }
        }
        self.place_waiting().await;
        self.relieve().await
    }

    /// Plans what is stored in a state in which something is to be done.
    async fn find(&mut self) -> Result<(), StoreError> {
        for state in [
            AllocationState::Reserved,
            AllocationState::Creating,
            AllocationState::CleanupPending,
        ] {
            let mut after = None;
            loop {
                let read = self.core.store.single();
                let page = read.allocations_in_state(state, after, limits::PAGE).await?;
                let Some(last) = page.last() else { break };
                after = Some(last);
                for (id, error) in page.unreadable {
                    self.pass_over(id, error)?;
                }
                for row in page.rows {
                    if !self.rests(&row) {
                        self.plan(row).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Plans these, and forgets those that are over.
    async fn look(&mut self, ids: &[AllocationId]) -> Result<(), StoreError> {
        let mut gone: BTreeSet<AllocationId> = ids.iter().copied().collect();
        let page = self.core.store.single().allocations(ids).await?;
        for (id, error) in page.unreadable {
            gone.remove(&id);
            self.pass_over(id, error)?;
        }
        for row in page.rows {
            if row.released_at.is_none() || held::owns(&row) {
                gone.remove(&row.id);
                self.plan(row).await?;
            }
        }
        for id in gone {
            self.tracked.remove(&id);
            self.unreadable.forget(id);
        }
        Ok(())
    }

    async fn plan(&mut self, row: AllocationRow) -> Result<(), StoreError> {
        let id = row.id;
        match self.consider(row).await {
            Ok(()) => {
                self.unreadable.forget(id);
                Ok(())
            }
            Err(error) => self.pass_over(id, error),
        }
    }

    /// A stored value that this version cannot read keeps its own allocation from being planned, and no other. What was
    /// remembered of it is nothing to go by any more: once it can be read, it is as after a takeover.
    fn pass_over(&mut self, id: AllocationId, error: StoreError) -> Result<(), StoreError> {
        if !matches!(error, StoreError::Stored { .. }) {
            return Err(error);
        }
        self.tracked.remove(&id);
        if self.unreadable.note(id, self.now()) {
            tracing::error!(event = "allocation_unreadable", allocation_id = %id, error = %Chain(&error), "an allocation is not planned");
        }
        Ok(())
    }

    /// Allocations whose time came or whose surroundings changed, whatever their state was when last seen. There may be
    /// very many that rest, so they are not looked through with every poke.
    fn due(&mut self) -> Vec<AllocationId> {
        let now = self.now();
        if now < self.scan_at {
            self.next_due = self.next_due.min(self.scan_at);
            return Vec::new();
        }
        self.scan_at = now + limits::SCAN_MILLIS;
        let wanted = self.core.pokes.take_wanted();
        for tracked in self.tracked.values_mut() {
            if wanted.contains(&tracked.session_id) {
                tracked.due = now;
            }
        }
        let mut connected: HashMap<NodeId, Option<ConnectionId>> = HashMap::new();
        let mut readiness: HashMap<(NodeId, Generation), bool> = HashMap::new();
        let mut due: Vec<AllocationId> = self.unreadable.due(now).collect();
        self.next_due = self.unreadable.next(now).unwrap_or(Millis::MAX);
        for (id, tracked) in &self.tracked {
            if self.in_flight.contains(id) {
                continue;
            }
            let same = tracked.nodes.iter().all(|(node, seen)| {
                let connection = connected
                    .entry(*node)
                    .or_insert_with(|| connection(&self.core, *node));
                *seen == *connection
            });
            let Planned {
                generation, ready, ..
            } = tracked.planned;
            let as_ready = tracked.planned.node.is_none_or(|node| {
                let is_ready = || self.core.hub.is_ready(node, generation);
                *readiness.entry((node, generation)).or_insert_with(is_ready) == ready
            });
            if now >= tracked.due || !same || !as_ready || tracked.linked != linked(&self.core, *id) {
                due.push(*id);
            } else {
                self.next_due = self.next_due.min(tracked.due);
            }
        }
        due
    }

    /// Whether the row would be planned as it was the last time: its time has not come, and nothing it was planned with
    /// is different. A node that is away may leave very many of them, and there are many pokes.
    fn rests(&self, row: &AllocationRow) -> bool {
        if self.unreadable.rests(row.id, self.now()) {
            return true;
        }
        let Some(tracked) = self.tracked.get(&row.id) else {
            return false;
        };
        let mut nodes = tracked.nodes.iter();
        let same = nodes.all(|(node, seen)| *seen == connection(&self.core, *node))
            && tracked.linked == linked(&self.core, row.id)
            && tracked.planned == self.as_planned(row);
        if !same {
            return false;
        }
        // What waited for a busy node is planned as soon as that has room.
        let has_room = |node| self.places.sending.taken(node) < limits::OPERATIONS_PER_NODE;
        let early = if tracked.nodes.iter().any(|(node, _)| has_room(*node)) {
            limits::BUSY_MILLIS
        } else {
            0
        };
        self.now() < tracked.due - early
    }

    fn is_ready(&self, row: &AllocationRow) -> bool {
        let ready = |node| self.core.hub.is_ready(node, row.deployment_generation);
        row.node_id.is_some_and(ready)
    }

    fn as_planned(&self, row: &AllocationRow) -> Planned {
        Planned {
            revision: row.revision,
            node: row.node_id,
            generation: row.deployment_generation,
            ready: self.is_ready(row),
        }
    }

    /// Begins a step, with its place at the node it sends to.
    fn begin(
        &mut self,
        row: AllocationRow,
        place: Option<Place>,
        step: impl FnOnce(Arc<Core>, AllocationRow) -> BoxFuture<'static, Done>,
    ) {
        self.in_flight.insert(row.id);
        let step = step(self.core.clone(), row.clone());
        let (ending, stopping) = (self.ending.clone(), self.stopping.clone());
        self.core
            .tasks
            .spawn(Kind::Connection, "allocation step", async move {
                let ended = async {
                    // A panic ends the step alone, and its allocation is planned again.
                    let done = AssertUnwindSafe(step)
                        .catch_unwind()
                        .await
                        .unwrap_or(Done::Failed);
                    drop(place);
                    // Nobody receives once the ownership ended.
                    let _ = ending.send(Finished { row, done }).await;
                };
                stopping.run_until_cancelled(ended).await;
            });
    }

    fn finish(&mut self, finished: Finished) {
        let Finished { row, done } = finished;
        let now = self.now();
        self.in_flight.remove(&row.id);
        if row.state == AllocationState::Reserved || row.state == AllocationState::CleanupPending {
            // It may be released now, and its Session without a sandbox.
            self.waiting.add(row.session_id, now);
        }
        let Some(tracked) = self.tracked.get_mut(&row.id) else {
            return;
        };
        tracked.due = now;
        let mut lost = None;
        match done {
            Done::Stored => {}
            Done::NotSent => tracked.watch.base.not_sent(now),
            Done::CreateAnswered(on) => tracked.watch.base.create_answered(on, now),
            Done::KillAnswered => tracked.watch.base.kill_answered(),
            Done::AnswerLost => tracked.watch.base.answer_lost(now),
            Done::Looked { state, on, sighting } => {
                if tracked.watch.base.looked(state, on, sighting, now) == Noted::Loss {
                    lost = Some(on);
                }
            }
            Done::Told(Told::Crowded) => tracked.due = now + limits::BUSY_MILLIS,
            Done::Told(told) => tell(&mut tracked.watch, told, now),
            Done::Failed => tracked.due = now + limits::FAILED_PASS.as_millis() as Millis,
        }
        if tracked.due == now {
            self.fresh.insert(row.id);
        }
        if let Some(on) = lost {
            self.begin(row, None, move |core, row| {
                async move { steps::confirm_loss(&core, &row, on).await }.boxed()
            });
        }
    }

    async fn place_waiting(&mut self) {
        let now = self.now();
        for id in self.waiting.due(now, limits::PAGE as usize) {
            self.waiting.remove(id);
            match demand::place(&self.core, id).await {
                demand::Placing::Done => {}
                demand::Placing::Later => self.waiting.add(id, now + limits::DEMAND_MILLIS),
            }
        }
    }

    fn pause(&self) -> Duration {
        let now = self.now();
        let placing = self.waiting.next().unwrap_or(Millis::MAX);
        let relieving = match self.core.pokes.pressure.is_felt() {
            true => self.relieve_at,
            false => Millis::MAX,
        };
        let due = self.next_due.max(self.scan_at).min(placing).min(relieving);
        let due = due.min(self.find_at);
        let pause = Duration::from_millis(due.saturating_sub(now).clamp(1, 60_000).unsigned_abs());
        pause.min(limits::IDLE_PASS)
    }
}
