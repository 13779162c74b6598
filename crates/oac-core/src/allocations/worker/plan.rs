//! What is next for one allocation, and who does it.

use std::collections::BTreeMap;

use futures_util::FutureExt as _;
use oac_lifecycle::{
    Millis,
    allocation::{Action, Diagnostic, Next, Presence, Snapshot, State, plan},
    limits as lifecycle, suspension,
};
use oac_model::{AllocationState, ComputePhase, ConnectionId, NodeId};
use oac_store::{AllocationDiagnostic, AllocationRow, Initialization, StoreError};
use oac_wire::shapes::Compute;

use super::{
    super::{
        limits,
        places::Place,
        record::{cause_from, state_of},
        samples, steps,
        suspension::{self as held, Room},
    },
    Worker, connection, linked, spread,
};

impl Worker {
    pub(super) async fn consider(&mut self, row: AllocationRow) -> Result<(), StoreError> {
        if self.in_flight.contains(&row.id) {
            return Ok(());
        }
        let planned = self.as_planned(&row);
        self.track(&row).planned = planned;
        self.next_due = self.next_due.min(self.now() + limits::SCAN_MILLIS);
        if held::owns(&row) {
            return self.consider_held(row).await;
        }
        let operations = match row.state {
            AllocationState::Creating | AllocationState::CleanupPending => {
                self.core.store.single().operations_in_play(row.id, &[]).await?
            }
            _ => Vec::new(),
        };
        match state_of(&row, &operations) {
            Ok(state) => self.consider_plain(row, state),
            Err(error) => self.reread(&row, &error),
        }
        Ok(())
    }

    /// Read between two transactions, the rows may not fit; a later pass reads them again.
    fn reread(&mut self, row: &AllocationRow, error: &dyn std::error::Error) {
        tracing::debug!(allocation_id = %row.id, %error, "rows do not fit");
        self.track(row).due = self.now() + 1_000;
    }

    /// One whose provider keeps no checkpoints.
    fn consider_plain(&mut self, row: AllocationRow, state: State) {
        let now = self.now();
        let snapshot = self.snapshot(&row, state);
        let nodes = self.connections(row.node_id);
        let connected = nodes.iter().any(|(_, on)| on.is_some());
        let places = self.places.clone();
        // Nothing is sent for one without a node.
        let take = || row.node_id.and_then(|node| places.sending.take(node));
        let may_mutate = self.core.owner.may_mutate();
        let tracked = self.track(&row);
        (tracked.nodes, tracked.linked) = (nodes, snapshot.linked);
        tracked.watch.base.tick(&snapshot, now);
        match plan(&snapshot, &tracked.watch.base, now) {
            Next::Act(Action::Create | Action::Kill) if !may_mutate => {
                tracked.due = now + limits::BUSY_MILLIS;
            }
            Next::Act(action @ (Action::Create | Action::Kill | Action::Look)) => match take() {
                Some(place) => self.start(row, state, action, Some(place)),
                None => tracked.due = now + limits::BUSY_MILLIS,
            },
            Next::Act(action) => self.start(row, state, action, None),
            Next::Wait { until } => {
                let meanwhile = Meanwhile {
                    shows_away: state != State::Reserved,
                    samples: matches!(state, State::Running { .. }) && snapshot.initialized && connected,
                    compute: None,
                };
                self.wait(row, until.unwrap_or(Millis::MAX), meanwhile);
            }
        }
    }

    fn snapshot(&self, row: &AllocationRow, state: State) -> Snapshot {
        let connected = row.node_id.and_then(|node| connection(&self.core, node));
        Snapshot {
            state,
            given_up: row.cause.map(cause_from).filter(|_| state == State::Reserved),
            in_flight: false,
            node: match connected {
                Some(connection) => Presence::Online {
                    connection,
                    ready: self.is_ready(row),
                },
                None => Presence::Offline,
            },
            initialized: row.initialization == Initialization::Complete,
            linked: linked(&self.core, row.id),
        }
    }

    fn connections(&self, nodes: impl IntoIterator<Item = NodeId>) -> Vec<(NodeId, Option<ConnectionId>)> {
        let mut seen: Vec<(NodeId, Option<ConnectionId>)> = Vec::new();
        for node in nodes {
            if seen.iter().all(|(other, _)| *other != node) {
                seen.push((node, connection(&self.core, node)));
            }
        }
        seen
    }

    /// One whose provider keeps checkpoints.
    async fn consider_held(&mut self, row: AllocationRow) -> Result<(), StoreError> {
        let now = self.now();
        let rows = held::Rows::of(&self.core.store.single(), row).await?;
        let state = match rows.held() {
            Ok(state) => state,
            Err(error) => {
                self.reread(&rows.row, &error);
                return Ok(());
            }
        };
        if state.state == State::Released && state.owed().next().is_none() {
            self.tracked.remove(&rows.row.id);
            return Ok(());
        }
        let early = self.track(&rows.row).early.filter(|until| now < *until);
        let around = held::look_around(&self.core, &rows, &state, early.is_some()).await?;
        let goes_on = match state.phase() {
            Some(ComputePhase::Running) => around.quiet_in.is_some(),
            phase => matches!(phase, Some(ComputePhase::Quiescing | ComputePhase::Suspending)),
        };
        let tracked = self.track(&rows.row);
        tracked.early = early.filter(|_| goes_on);
        // Busy, or suspended: that it was tried says nothing against it.
        if around.is_busy || state.phase() == Some(ComputePhase::Suspended) {
            tracked.tried = Millis::MIN;
        }
        let node = state.node;
        let nodes = self.connections([node].into_iter().chain(state.computes.iter().map(|c| c.node)));
        let connected: BTreeMap<_, _> = nodes
            .iter()
            .filter_map(|(node, on)| Some((*node, (*on)?)))
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
        let places = self.places.clone();
        let may_mutate = self.core.owner.may_mutate();
        let tracked = self.track(&rows.row);
        (tracked.nodes, tracked.linked) = (nodes, snapshot.base.linked);
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
                    early: tracked.early.is_some(),
                };
                let row = rows.row.clone();
                self.begin(row, place, move |core, _| {
                    async move { held::perform(&core, &rows, state, action, &room).await }.boxed()
                });
            }
            suspension::Next::Wait { until } => {
                let phase = state.phase();
                let meanwhile = Meanwhile {
                    shows_away: state.state != State::Released && phase != Some(ComputePhase::Suspended),
                    samples: phase == Some(ComputePhase::Running)
                        && snapshot.base.initialized
                        && snapshot.connected.contains_key(&node),
                    compute: rows.current(),
                };
                let again = now + resting;
                let until = until.map_or(again, |until| until.min(again));
                self.wait(rows.row, until, meanwhile);
            }
        }
        Ok(())
    }

    /// Nothing is next before `until`.
    fn wait(&mut self, row: AllocationRow, until: Millis, meanwhile: Meanwhile) {
        let now = self.now();
        let shown = row.diagnostic == Some(AllocationDiagnostic::NodeUnavailable);
        let places = self.places.clone();
        let tracked = self.track(&row);
        let away = tracked.watch.base.disconnected_at();
        let away = away.filter(|_| meanwhile.shows_away && !shown);
        let sample = meanwhile
            .samples
            .then_some(tracked.sampled + limits::SAMPLE_MILLIS);
        tracked.due = [away, sample].into_iter().flatten().fold(until, Millis::min);
        if away.is_some_and(|at| now >= at) {
            self.begin(row, None, |core, row| {
                async move { steps::disconnected(&core, &row).await }.boxed()
            });
        } else if sample.is_some_and(|at| now >= at) {
            let free = |node: &NodeId| places.sending.taken(*node) < limits::OPERATIONS_BESIDE_A_SAMPLE;
            match row
                .node_id
                .filter(free)
                .and_then(|node| places.sending.take(node))
            {
                Some(place) => {
                    tracked.sampled = now;
                    self.begin(row, Some(place), |core, row| {
                        async move { samples::sample(&core, &row, meanwhile.compute).await }.boxed()
                    });
                }
                // A node that answers no sample keeps all its places for those; there may be very many that wait.
                None => {
                    let again = now + limits::NO_SAMPLE_MILLIS + spread(row.id) % limits::NO_SAMPLE_MILLIS;
                    tracked.due = away.into_iter().fold(until, Millis::min).min(again);
                }
            }
        }
    }

    fn start(&mut self, row: AllocationRow, state: State, action: Action, place: Option<Place>) {
        self.begin(row, place, move |core, row| {
            async move { steps::perform(&core, &row, state, action).await }.boxed()
        });
    }
}

/// What is done for an allocation of which nothing is next.
struct Meanwhile {
    /// That its node is away is told to operators.
    shows_away: bool,
    /// What it uses is read now and then.
    samples: bool,
    /// The compute that is read, of one that can be suspended.
    compute: Option<Box<Compute>>,
}
