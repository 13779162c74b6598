mod turns;

use oac_generations::{Found, recovery::Standing as Files};
use oac_model::{DiagnosticCode, Digest};
use oac_wire::Nullable;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const READY: Probed = Probed::Ready;
const NO_IMAGE: Probed = Probed::Failed(DiagnosticCode::RuntimeImageUnavailable);

fn g(n: i64) -> Generation {
    Generation::try_from(n).unwrap()
}

fn identity(n: i64) -> Identity {
    Identity {
        installation_id: "11111111-1111-4111-8111-111111111111".parse().unwrap(),
        generation: g(n),
        specification_digest: Digest::of(n.to_string()),
    }
}

fn files(n: i64, state: State, standing: Files) -> Recovered {
    Recovered {
        found: Found {
            identity: identity(n),
            state,
            configuration: None,
            plan: None,
        },
        standing,
    }
}

fn published(n: i64) -> Recovered {
    files(n, State::Published, Files::Published)
}

/// A planner with its clock, the generations that operations need, and what it asked for.
struct Node {
    planner: Planner,
    now: Duration,
    busy: Vec<Generation>,
    link: Option<ConnectionId>,
    /// Probes under way, each with the use that keeps its generation.
    probes: Vec<(Generation, Use)>,
    child: Option<(Generation, Errand)>,
    kept: Option<Use>,
    kills: usize,
}

impl Node {
    fn with(held: Vec<Recovered>) -> Self {
        Self::of(held, |_| true)
    }

    fn of(held: Vec<Recovered>, loaded: fn(Generation) -> bool) -> Self {
        let recovery = Recovery {
            held,
            dropped: Vec::new(),
        };
        Self {
            planner: Planner::new(&recovery, loaded),
            now: Duration::ZERO,
            busy: Vec::new(),
            link: None,
            probes: Vec::new(),
            child: None,
            kept: None,
            kills: 0,
        }
    }

    fn connect(&mut self) -> ConnectionId {
        let id = ConnectionId::random();
        self.planner.connected(id);
        self.link = Some(id);
        id
    }

    fn deploy(&mut self, target: i64, serving: Option<i64>) {
        let deployment = frames::Deployment {
            generation: g(target),
            specification_digest: identity(target).specification_digest,
            serving_generation: Nullable(serving.map(g)),
        };
        self.planner.deployed(&deployment, identity(target));
    }

    fn grant(&mut self, n: i64) {
        let from = self.link.expect("connected");
        self.grant_from(from, n);
    }

    fn grant_from(&mut self, from: ConnectionId, n: i64) {
        let reference = RetentionReference {
            generation: g(n),
            specification_digest: identity(n).specification_digest,
        };
        self.planner.granted(from, &[reference]);
    }

    /// Plans once, and keeps what was asked for; probes come to nothing.
    fn plan(&mut self) {
        self.ask();
        self.settle(|_| Probed::Canceled);
    }

    fn ask(&mut self) {
        let busy = self.busy.clone();
        for effect in self
            .planner
            .plan(self.now, &|generation| busy.contains(&generation))
        {
            match effect {
                Effect::Probe(generation, kept) => {
                    assert!(self.probes.iter().all(|(other, _)| *other != generation));
                    self.probes.push((generation, kept));
                }
                Effect::Prepare(identity, kept) => {
                    assert_eq!(self.child, None, "one child at a time");
                    self.child = Some((identity.generation, Errand::Prepare));
                    self.kept = Some(kept);
                }
                Effect::Collect(grant, _) => {
                    assert_eq!(self.child, None, "one child at a time");
                    self.child = Some((grant.generation(), Errand::Collect));
                }
                Effect::Kill => self.kills += 1,
            }
        }
    }

    /// A second passes, in which every probe ends as `how` says.
    fn second(&mut self, how: impl Fn(Generation) -> Probed) -> Vec<i64> {
        self.ask();
        self.now += SECOND;
        self.settle(how)
    }

    fn settle(&mut self, how: impl Fn(Generation) -> Probed) -> Vec<i64> {
        let probes = std::mem::take(&mut self.probes);
        let probed: Vec<i64> = probes.iter().map(|(generation, _)| generation.get()).collect();
        for (generation, kept) in probes {
            drop(kept);
            self.planner.probed(generation, how(generation), self.now);
        }
        probed
    }

    /// The child ends; its generation's files are these.
    fn end(&mut self, how: Ended, reloaded: Option<Recovered>) {
        let loaded = reloaded
            .as_ref()
            .is_some_and(|r| r.found.state == State::Published);
        let reloaded = reloaded.map_or(Reloaded::Nothing, |recovered| {
            Reloaded::Found(Box::new(recovered))
        });
        self.end_with(how, reloaded, loaded);
    }

    fn end_with(&mut self, how: Ended, reloaded: Reloaded, loaded: bool) {
        let (generation, _) = self.child.take().expect("a child runs");
        self.kept = None;
        let end = End {
            generation,
            how,
            reloaded,
            loaded,
        };
        self.planner.ended(end, self.now);
    }

    fn prepares(&self) -> Option<i64> {
        let (generation, errand) = self.child?;
        (errand == Errand::Prepare).then(|| generation.get())
    }

    fn collects(&self) -> Option<i64> {
        let (generation, errand) = self.child?;
        (errand == Errand::Collect).then(|| generation.get())
    }

    fn local(&self, n: i64) -> Option<Local> {
        self.planner.table().into_iter().find(|l| l.generation == g(n))
    }

    fn standing(&self, n: i64) -> Option<Reported> {
        self.local(n).map(|local| local.standing)
    }
}

// req: P-139, P-145, P-135
// inv: INV-N22, INV-N23
#[test]
fn before_a_delivery_nothing_is_prepared_and_only_a_probe_makes_a_generation_ready() {
    let incomplete = files(1, State::Published, Files::Incomplete("/f".into()));
    let mut node = Node::with(vec![
        incomplete,
        published(2),
        files(3, State::Planned, Files::Unfinished),
    ]);
    assert_eq!(node.standing(2), Some(Reported::Preparing));
    for _ in 0..8 {
        node.second(|_| NO_IMAGE);
        assert_eq!(node.child, None);
    }
    node.connect();
    node.deploy(2, Some(1));
    node.plan();
    assert_eq!(node.prepares(), Some(2), "a probe found its image missing");
    for _ in 0..8 {
        node.second(|_| Probed::Canceled);
    }
    assert_eq!(node.prepares(), Some(2), "and nothing beside it");
    node.end(Ended::Completed, Some(published(2)));
    assert_eq!(
        node.standing(2),
        Some(Reported::Preparing),
        "its files prove nothing"
    );
    while node.standing(2) != Some(Reported::Ready) {
        node.second(|_| READY);
    }
    assert!(
        node.planner
            .table()
            .iter()
            .all(|l| l.standing != Reported::Ready || l.generation != g(3))
    );
}

// req: P-081, P-082, P-136
#[test]
fn the_target_comes_first_then_the_serving_generation_whatever_its_readiness_then_the_others_in_turn() {
    let held = [1, 2, 3].map(|n| files(n, State::Published, Files::Incomplete("/f".into())));
    let mut node = Node::with(held.to_vec());
    node.connect();
    node.deploy(4, Some(2));
    assert_eq!(
        node.standing(4),
        Some(Reported::Preparing),
        "it is not here, and wanted"
    );
    let mut order = Vec::new();
    for _ in 0..4 {
        node.plan();
        let n = node.prepares().expect("one is due");
        order.push(n);
        let left = (n != 4).then(|| files(n, State::Published, Files::Incomplete("/f".into())));
        node.end(Ended::TransferFailed, left);
        assert_eq!(
            node.standing(n),
            Some(Reported::Failed(DiagnosticCode::RuntimeDownloadFailed))
        );
    }
    assert_eq!(order, [4, 2, 1, 3]);
    node.plan();
    assert_eq!(node.child, None, "all of them wait");
    node.now += MINUTE;
    node.plan();
    assert_eq!(node.prepares(), Some(4));
}

// req: G-259
#[test]
fn a_failed_preparations_code_stands_until_the_next_attempt_replaces_it_or_clears_it() {
    let failed = |code| Some(Reported::Failed(code));
    let mut node = Node::with(vec![]);
    node.connect();
    node.deploy(1, None);
    node.plan();
    node.end(Ended::TransferFailed, None);
    assert_eq!(node.standing(1), failed(DiagnosticCode::RuntimeDownloadFailed));
    // What kept it from being downloaded is mended, and the next attempt finds something else.
    while node.child.is_none() {
        assert_eq!(node.standing(1), failed(DiagnosticCode::RuntimeDownloadFailed));
        node.second(|_| READY);
    }
    node.end(Ended::Failed, None);
    assert_eq!(node.standing(1), failed(DiagnosticCode::ProviderUnavailable));
    while node.child.is_none() {
        node.second(|_| READY);
    }
    node.end(Ended::Completed, Some(published(1)));
    while node.standing(1) == Some(Reported::Preparing) {
        node.second(|_| READY);
    }
    assert_eq!(node.standing(1), Some(Reported::Ready), "no code is left");
}

// inv: INV-N37, INV-N46
#[test]
fn a_changed_target_kills_the_attempt_at_once_counts_nothing_and_what_it_left_is_asked_about() {
    let mut node = Node::with(vec![published(1)]);
    node.connect();
    node.deploy(2, Some(1));
    node.plan();
    assert_eq!(node.prepares(), Some(2));
    node.deploy(2, Some(1));
    node.plan();
    assert_eq!(node.kills, 0, "the same target");
    node.deploy(3, Some(1));
    node.plan();
    assert_eq!((node.kills, node.prepares()), (1, Some(2)));
    node.plan();
    assert_eq!(node.kills, 1, "once is enough");
    node.end(Ended::Failed, Some(files(2, State::Planned, Files::Unfinished)));
    node.plan();
    assert_eq!(node.prepares(), Some(3));
    // Its plan is on the disk: it stays in the table, as what it is, and nothing of it can be acquired.
    let left = node.local(2).expect("in the table");
    assert!(!left.acquirable && !matches!(left.standing, Reported::Ready | Reported::Removing));
    // A target that left nothing is forgotten.
    node.deploy(4, Some(1));
    node.plan();
    node.end(Ended::Failed, None);
    assert_eq!(node.local(3), None);
    node.plan();
    assert_eq!(node.prepares(), Some(4));
    // And becomes wanted again without delay, since nothing was counted.
    node.deploy(5, Some(1));
    node.plan();
    node.end(Ended::Failed, None);
    node.plan();
    assert_eq!(node.prepares(), Some(5));
}

// req: P-137, P-138
// inv: INV-N42
#[test]
fn an_attempt_ends_after_30_minutes_and_one_whose_probe_stays_unready_waits_as_a_failed_one_does() {
    let mut node = Node::with(vec![]);
    node.connect();
    node.deploy(1, None);
    node.plan();
    node.now += 30 * MINUTE - SECOND;
    node.plan();
    assert_eq!(node.kills, 0);
    node.now += SECOND;
    node.plan();
    assert_eq!(node.kills, 1);
    node.end(Ended::Failed, None);
    assert_eq!(
        node.standing(1),
        Some(Reported::Failed(DiagnosticCode::ProviderUnavailable))
    );
    node.now += MINUTE - SECOND;
    node.plan();
    assert_eq!(node.child, None);
    let mut waited = Vec::new();
    let mut ended = node.now - MINUTE + SECOND;
    for _ in 0..6 {
        while node.child.is_none() {
            node.second(|_| NO_IMAGE);
        }
        // Each loop of `second` lets one pass after it planned.
        waited.push((node.now - SECOND - ended).as_secs() / 60);
        node.end(Ended::Completed, Some(published(1)));
        ended = node.now;
        node.second(|_| NO_IMAGE);
        while node.standing(1) == Some(Reported::Preparing) {
            node.second(|_| NO_IMAGE);
        }
    }
    assert_eq!(waited, [1, 2, 5, 10, 30, 30]);
}

// req: P-095, P-096, P-097
// inv: INV-N15, INV-N16
#[test]
fn a_grant_is_rechecked_and_void_once_its_connection_ended() {
    let mut node = Node::with([1, 2, 3, 4].map(published).to_vec());
    node.connect();
    node.grant(3);
    node.plan();
    assert_eq!(node.child, None, "no deployment was delivered");
    node.deploy(1, Some(2));
    for kept in [1, 2] {
        node.grant(kept);
        node.plan();
        assert_eq!(node.child, None);
    }
    let operation = node.planner.acquire(g(3)).expect("published");
    node.grant(3);
    node.plan();
    assert_eq!(node.child, None, "an operation's native work has not ended");
    drop(operation);
    node.busy = vec![g(3)];
    node.grant(3);
    node.plan();
    assert_eq!(node.child, None, "an operation waits");
    node.busy.clear();
    node.grant(3);
    node.planner.disconnected();
    node.plan();
    assert_eq!(node.child, None, "the connection ended");
    let former = node.link.expect("was connected");
    node.connect();
    node.grant_from(former, 3);
    node.deploy(1, Some(2));
    node.plan();
    assert_eq!(node.child, None, "a grant is the connection's own");
    node.grant(3);
    node.plan();
    assert_eq!(node.collects(), Some(3));
    assert_eq!(node.standing(3), Some(Reported::Removing));
    assert!(node.planner.acquire(g(3)).is_none());
    node.grant(4);
    node.plan();
    assert_eq!(node.collects(), Some(3), "one at a time");
    node.end(Ended::Completed, Some(files(3, State::Dropped, Files::Stalled)));
    assert_eq!(node.standing(3), Some(Reported::Dropped));
    node.plan();
    assert_eq!(node.collects(), Some(4));
}

// req: P-157, P-158, P-149
// inv: INV-N14, INV-N15
#[test]
fn an_unfinished_collection_serves_nothing_and_only_a_fresh_grant_resumes_it() {
    let going = [
        files(2, State::Collecting, Files::Stalled),
        files(3, State::Purging, Files::Stalled),
    ];
    let mut node = Node::with([vec![published(1)], going.to_vec()].concat());
    node.connect();
    node.deploy(1, Some(1));
    for _ in 0..12 {
        assert!(!node.second(|_| READY).iter().any(|n| *n > 1));
        assert_eq!(node.child, None);
    }
    for n in [2, 3] {
        assert_eq!(node.standing(n), Some(Reported::Stalled));
        assert!(node.planner.acquire(g(n)).is_none());
    }
    node.grant(2);
    node.plan();
    assert_eq!(node.collects(), Some(2));
    node.now += 2 * MINUTE;
    node.plan();
    assert_eq!(node.kills, 1, "a collection ends after two minutes");
    node.end(Ended::Failed, Some(files(2, State::Collecting, Files::Stalled)));
    node.plan();
    assert_eq!((node.child, node.standing(2)), (None, Some(Reported::Stalled)));
    node.grant(2);
    node.plan();
    assert_eq!(node.child, None, "it failed a moment ago");
    node.now += MINUTE;
    node.grant(2);
    node.plan();
    assert_eq!(node.collects(), Some(2));
    node.end(Ended::Completed, Some(files(2, State::Dropped, Files::Stalled)));
    assert_eq!(node.standing(2), Some(Reported::Dropped));
}

// req: P-149
#[test]
fn nothing_is_prepared_or_repaired_before_the_current_connection_delivered() {
    let held = vec![
        files(1, State::Published, Files::Incomplete("/f".into())),
        files(2, State::Planned, Files::Unfinished),
    ];
    let mut node = Node::with(held);
    node.connect();
    node.deploy(2, Some(1));
    node.planner.disconnected();
    for _ in 0..61 {
        node.second(|_| NO_IMAGE);
        assert_eq!(node.child, None, "the connection ended");
    }
    node.connect();
    node.plan();
    assert_eq!(node.child, None, "the new connection has delivered nothing");
    node.deploy(2, Some(1));
    node.plan();
    assert_eq!(node.prepares(), Some(2));
    node.planner.disconnected();
    node.plan();
    assert_eq!(node.kills, 0, "what has started may finish");
}

// inv: INV-N46
#[test]
fn a_generation_whose_records_cannot_be_read_after_its_child_stays_in_the_table() {
    let mut node = Node::with(vec![published(1)]);
    node.connect();
    node.deploy(2, Some(1));
    node.plan();
    assert_eq!(node.prepares(), Some(2));
    node.end_with(Ended::Failed, Reloaded::Unreadable, false);
    node.deploy(3, Some(1));
    node.plan();
    let left = node.local(2).expect("something of it may be on the disk");
    assert!(!left.acquirable && left.standing != Reported::Ready);
    // And a grant of Core's can have it collected.
    node.end(Ended::Failed, None);
    node.grant(2);
    node.plan();
    assert_eq!(node.collects(), Some(2));
}

#[test]
fn a_busy_lock_is_tried_again_after_a_minute_and_gives_the_former_standing_back() {
    let mut node = Node::with(vec![files(1, State::Published, Files::Incomplete("/f".into()))]);
    node.connect();
    node.deploy(1, Some(1));
    let before = node.standing(1);
    node.plan();
    assert_eq!(node.standing(1), Some(Reported::Preparing));
    node.end(
        Ended::Busy,
        Some(files(1, State::Published, Files::Incomplete("/f".into()))),
    );
    assert_eq!(node.standing(1), before);
    node.now += MINUTE - SECOND;
    node.plan();
    assert_eq!(node.child, None);
    node.now += SECOND;
    node.plan();
    assert_eq!(node.prepares(), Some(1));
}

#[test]
fn a_stop_kills_the_child_and_starts_nothing() {
    let mut node = Node::with(vec![published(1)]);
    node.connect();
    node.deploy(2, Some(1));
    node.plan();
    node.planner.stop();
    node.plan();
    assert_eq!(node.kills, 1);
    node.end(Ended::Failed, None);
    node.now += MINUTE;
    node.plan();
    assert!(node.child.is_none() && node.probes.is_empty());
}

#[test]
fn records_that_cannot_be_read_again_serve_nothing_until_an_attempt_mends_them() {
    let mut node = Node::with(vec![files(1, State::Published, Files::Incomplete("/f".into()))]);
    node.connect();
    node.deploy(1, Some(1));
    node.plan();
    node.child = None;
    node.kept = None;
    let end = End {
        generation: g(1),
        how: Ended::Completed,
        reloaded: Reloaded::Unreadable,
        loaded: false,
    };
    node.planner.ended(end, node.now);
    let local = node.local(1).unwrap();
    assert!(!local.acquirable);
    assert_eq!(
        local.standing,
        Reported::Failed(DiagnosticCode::ProviderUnavailable)
    );
    assert!(node.planner.acquire(g(1)).is_none());
    node.now += MINUTE;
    node.plan();
    assert_eq!(node.prepares(), Some(1));
}
