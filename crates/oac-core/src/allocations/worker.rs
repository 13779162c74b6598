//! The pass: what is due, what is next for it, and who does it.
//!
//! One task holds the watches and starts steps; each step is a task of its own, so that no node waits for another. A
//! pass takes no argument: poked or by timer it reads what is stored and plans. Running allocations, of which there may
//! be 100,000, are planned only when their time came, their node connected or their link went.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{FutureExt as _, future::BoxFuture};
use oac_lifecycle::{
    Millis,
    allocation::{Action, Diagnostic, Next, Noted, Presence, Snapshot, State, plan},
    limits as lifecycle,
    suspension::{self, Answer},
};
use oac_model::{AllocationId, AllocationState, ComputePhase, ConnectionId, NodeId, SessionId};
use oac_store::{AllocationDiagnostic, AllocationRow, Initialization, Ownership, StoreError};

use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    demand, limits,
    places::{Place, Places},
    record::{cause_from, state_of},
    steps::{self, Done},
    suspension::{self as held, Room, Told},
};
use crate::{Core, http::error::Chain, task::Kind};

/// What one owner remembers of one allocation.
struct Tracked {
    /// For one that cannot be suspended, its base alone.
    watch: suspension::Watch,
    node_id: Option<NodeId>,
    session_id: SessionId,
    /// The connection and link it was last planned with.
    seen: (Option<ConnectionId>, bool),
    /// The row's revision it was last planned with, and whether its node was ready for it.
    planned: (i64, bool),
    due: Millis,
    sampled: Millis,
}

struct Worker {
    core: Arc<Core>,
    started: Instant,
    tracked: BTreeMap<AllocationId, Tracked>,
    in_flight: HashSet<AllocationId>,
    places: Arc<Places>,
    ended: mpsc::Receiver<Finished>,
    /// Given to each step; bounded, a step that ended waits for its place.
    ending: mpsc::Sender<Finished>,
    /// Ends the steps of this ownership with it.
    _stop: DropGuard,
    stopping: CancellationToken,
    /// Sessions without a sandbox that need one.
    waiting: BTreeMap<SessionId, Millis>,
    /// The earliest `due` of all tracked, or earlier.
    next_due: Millis,
    /// Tracked allocations are looked through no earlier.
    scan_at: Millis,
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
            places: Arc::new(Places::new()),
            ended,
            ending,
            _stop: stopping.clone().drop_guard(),
            stopping,
            waiting: BTreeMap::new(),
            next_due: 0,
            scan_at: 0,
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
            after = Some(last.id);
            for row in &page {
                let spread = spread(row.id);
                self.track(row).sampled = spread - limits::SAMPLE_MILLIS;
            }
        }
        self.waiting = demand::all(&self.core)
            .await?
            .into_iter()
            .map(|id| (id, 0))
            .collect();
        Ok(())
    }

    fn track(&mut self, row: &AllocationRow) -> &mut Tracked {
        self.tracked.entry(row.id).or_insert_with(|| Tracked {
            watch: suspension::Watch::default(),
            node_id: row.node_id,
            session_id: row.session_id,
            seen: (None, false),
            planned: (0, false),
            due: 0,
            sampled: Millis::MIN / 2,
        })
    }

    async fn pass(&mut self) -> Result<(), StoreError> {
        for state in [
            AllocationState::Reserved,
            AllocationState::Creating,
            AllocationState::CleanupPending,
        ] {
            let mut after = None;
            loop {
                let page = self
                    .core
                    .store
                    .single()
                    .allocations_in_state(state, after, limits::PAGE)
                    .await?;
                let Some(last) = page.last() else { break };
                after = Some(last.id);
                for row in page {
                    if !self.rests(&row) {
                        self.consider(row).await?;
                    }
                }
            }
        }
        for id in self.due() {
            match self.core.store.single().allocation(id).await? {
                Some(row) if row.released_at.is_none() => self.consider(row).await?,
                _ => {
                    self.tracked.remove(&id);
                }
            }
        }
        self.place_waiting().await;
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
        self.next_due = Millis::MAX;
        let wanted = self.core.pokes.take_wanted();
        for tracked in self.tracked.values_mut() {
            if wanted.contains(&tracked.session_id) {
                tracked.due = now;
            }
        }
        let mut connected: HashMap<NodeId, Option<ConnectionId>> = HashMap::new();
        let mut due = Vec::new();
        for (id, tracked) in &self.tracked {
            if self.in_flight.contains(id) {
                continue;
            }
            let connection = tracked.node_id.and_then(|node| {
                *connected
                    .entry(node)
                    .or_insert_with(|| self.core.hub.connected(node).map(|c| c.connection_id))
            });
            if now >= tracked.due || tracked.seen != (connection, linked(&self.core, *id)) {
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
        let Some(tracked) = self.tracked.get(&row.id) else {
            return false;
        };
        let connected = tracked.node_id.and_then(|node| self.core.hub.connected(node));
        let seen = (connected.map(|c| c.connection_id), linked(&self.core, row.id));
        // One whose computes are on several nodes is planned with the connections of all of them.
        let same = tracked.seen == seen && tracked.planned == (row.revision, self.is_ready(row));
        if held::owns(row) || !same {
            return false;
        }
        // What waited for a busy node is planned as soon as that has room.
        let has_room = |node| self.places.sending.taken(node) < limits::OPERATIONS_PER_NODE;
        let early = if tracked.node_id.is_some_and(has_room) {
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

    async fn consider(&mut self, row: AllocationRow) -> Result<(), StoreError> {
        if self.in_flight.contains(&row.id) {
            return Ok(());
        }
        let ready = self.is_ready(&row);
        self.track(&row).planned = (row.revision, ready);
        if held::owns(&row) {
            return self.consider_held(row).await;
        }
        let now = self.now();
        let operations = match row.state {
            AllocationState::Creating | AllocationState::CleanupPending => {
                self.core.store.single().operations(row.id).await?
            }
            _ => Vec::new(),
        };
        let state = match state_of(&row, &operations) {
            Ok(state) => state,
            Err(error) => {
                // Read between two transactions, the rows may not fit; the next pass reads them again.
                tracing::debug!(allocation_id = %row.id, %error, "rows do not fit");
                self.track(&row).due = now + 1_000;
                return Ok(());
            }
        };
        let snapshot = self.snapshot(&row, state);
        let connected = row.node_id.and_then(|node| self.core.hub.connected(node));
        let linked = snapshot.linked;
        self.next_due = self.next_due.min(now + limits::SCAN_MILLIS);
        let places = self.places.clone();
        // Nothing is sent for one without a node.
        let take = || row.node_id.and_then(|node| places.sending.take(node));
        let may_mutate = self.core.owner.may_mutate();
        let tracked = self.track(&row);
        tracked.seen = (connected.map(|c| c.connection_id), linked);
        tracked.watch.base.tick(&snapshot, now);
        let next = plan(&snapshot, &tracked.watch.base, now);
        let sample_due = tracked.sampled + limits::SAMPLE_MILLIS;
        let samples = matches!(state, State::Running { .. }) && snapshot.initialized && connected.is_some();
        match next {
            Next::Act(Action::Create | Action::Kill) if !may_mutate => {
                tracked.due = now + limits::BUSY_MILLIS;
            }
            Next::Act(action @ (Action::Create | Action::Kill | Action::Look)) => match take() {
                Some(place) => self.start(row, state, action, Some(place)),
                None => tracked.due = now + limits::BUSY_MILLIS,
            },
            Next::Act(action) => self.start(row, state, action, None),
            Next::Wait { until } => {
                let mut until = until.unwrap_or(Millis::MAX);
                let shown = row.diagnostic == Some(AllocationDiagnostic::NodeUnavailable);
                if let Some(at) = tracked
                    .watch
                    .base
                    .disconnected_at()
                    .filter(|_| state != State::Reserved && !shown)
                {
                    if now >= at {
                        self.begin(row, None, |core, row| {
                            async move { steps::disconnected(&core, &row).await }.boxed()
                        });
                        return Ok(());
                    }
                    until = until.min(at);
                }
                tracked.due = until;
                if samples {
                    if now < sample_due {
                        tracked.due = until.min(sample_due);
                    } else if let Some(place) = row
                        .node_id
                        .filter(|node| places.sending.taken(*node) < limits::OPERATIONS_BESIDE_A_SAMPLE)
                        .and_then(|_| take())
                    {
                        tracked.sampled = now;
                        self.begin(row, Some(place), |core, row| {
                            async move { steps::sample(&core, &row).await }.boxed()
                        });
                    } else {
                        tracked.due = until.min(now + limits::BUSY_MILLIS);
                    }
                }
            }
        }
        Ok(())
    }

    fn snapshot(&self, row: &AllocationRow, state: State) -> Snapshot {
        let connected = row.node_id.and_then(|node| self.core.hub.connected(node));
        Snapshot {
            state,
            given_up: row.cause.map(cause_from).filter(|_| state == State::Reserved),
            in_flight: false,
            node: match connected {
                Some(c) => Presence::Online {
                    connection: c.connection_id,
                    ready: self.is_ready(row),
                },
                None => Presence::Offline,
            },
            initialized: row.initialization == Initialization::Complete,
            linked: linked(&self.core, row.id),
        }
    }

    /// One whose provider keeps checkpoints.
    async fn consider_held(&mut self, row: AllocationRow) -> Result<(), StoreError> {
        let now = self.now();
        let rows = held::Rows::of(&self.core.store.single(), row).await?;
        let state = match rows.held() {
            Ok(state) => state,
            Err(error) => {
                // Read between two transactions, the rows may not fit; the next pass reads them again.
                tracing::debug!(allocation_id = %rows.row.id, %error, "rows do not fit");
                self.track(&rows.row).due = now + 1_000;
                return Ok(());
            }
        };
        let around = held::look_around(&self.core, &rows, &state).await?;
        let nodes = state.computes.iter().map(|c| c.node).chain([state.node]);
        let connected: BTreeMap<_, _> = nodes
            .filter_map(|node| Some((node, self.core.hub.connected(node)?.connection_id)))
            .collect();
        let snapshot = suspension::Snapshot {
            base: self.snapshot(&rows.row, state.state),
            held: &state,
            connected,
            demand: around.demand,
            quiet_in: around.quiet_in,
            phase_for: around.phase_for,
            retention_in: around.retention_in,
            shown: rows
                .row
                .diagnostic
                .and_then(|diagnostic| Diagnostic::from_text(diagnostic.as_str())),
        };
        self.next_due = self.next_due.min(now + limits::SCAN_MILLIS);
        let node = state.node;
        let places = self.places.clone();
        let may_mutate = self.core.owner.may_mutate();
        let tracked = self.track(&rows.row);
        tracked.node_id = Some(node);
        tracked.seen = (snapshot.connected.get(&node).copied(), snapshot.base.linked);
        tracked
            .watch
            .tick(&state, &snapshot.base, &snapshot.connected, now);
        // Busy now, it is idle for long enough no earlier than the idle time from now; and whoever ends a Turn says so.
        let resting = suspension::rests_for(&snapshot).min(around.idle_wanted.max(lifecycle::LOOK_WAITING));
        match suspension::plan(&snapshot, &tracked.watch, now) {
            suspension::Next::Act(_) if !may_mutate => tracked.due = now + limits::BUSY_MILLIS,
            suspension::Next::Act(action) => {
                let place = match (action, action.sends_to(&state)) {
                    (suspension::Action::Suspend, _) => places.quieting.take(node).map(Some),
                    (_, Some(to)) => places.sending.take(to).map(Some),
                    (_, None) => Some(None),
                };
                let Some(place) = place else {
                    tracked.due = now + limits::BUSY_MILLIS;
                    return Ok(());
                };
                if action.mutates() {
                    tracked.watch.began();
                }
                let room = Room {
                    places,
                    passed_over: tracked.watch.passed_over(now),
                };
                let row = rows.row.clone();
                self.begin(row, place, move |core, _| {
                    async move { held::perform(&core, &rows, state, action, &room).await }.boxed()
                });
            }
            suspension::Next::Wait { until } => {
                let shown = rows.row.diagnostic == Some(AllocationDiagnostic::NodeUnavailable);
                let away = tracked.watch.base.disconnected_at().filter(|_| !shown);
                let asleep = state.phase() == Some(ComputePhase::Suspended);
                match away.filter(|_| !asleep) {
                    Some(at) if now >= at => {
                        self.begin(rows.row, None, |core, row| {
                            async move { steps::disconnected(&core, &row).await }.boxed()
                        });
                    }
                    away => {
                        let again = now + resting;
                        tracked.due = until
                            .into_iter()
                            .chain(away)
                            .chain([again])
                            .min()
                            .unwrap_or(again);
                    }
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, row: AllocationRow, state: State, action: Action, place: Option<Place>) {
        self.begin(row, place, move |core, row| {
            async move { steps::perform(&core, &row, state, action).await }.boxed()
        });
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
            self.waiting.entry(row.session_id).or_insert(now);
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
        if let Some(on) = lost {
            self.begin(row, None, move |core, row| {
                async move { steps::confirm_loss(&core, &row, on).await }.boxed()
            });
        }
    }

    async fn place_waiting(&mut self) {
        let now = self.now();
        let due: Vec<SessionId> = self
            .waiting
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(id, _)| *id)
            .take(limits::PAGE as usize)
            .collect();
        for id in due {
            match demand::place(&self.core, id).await {
                demand::Placing::Done => {
                    self.waiting.remove(&id);
                }
                demand::Placing::Later => {
                    self.waiting.insert(id, now + limits::DEMAND_MILLIS);
                }
            }
        }
    }

    fn pause(&self) -> Duration {
        let now = self.now();
        let placing = self.waiting.values().copied().min().unwrap_or(Millis::MAX);
        let due = self.next_due.max(self.scan_at).min(placing);
        let pause = Duration::from_millis(due.saturating_sub(now).clamp(1, 60_000).unsigned_abs());
        pause.min(limits::IDLE_PASS)
    }
}
