//! The node and its children, killed by SIGKILL at every numbered step of theirs: each change of the disk, each start of
//! a child, each answer from outside. Then what is on the disk is judged, the node starts again, and its work is done to
//! the end, or refused as the tables say.

use futures_util::future::join_all;
use oac_generations::State;
use oac_model::DiagnosticCode;
use oac_wire::frames::GenerationState;
use rustix::process::{Signal, kill_process};

use crate::{
    managed::{PROFILE, ready, state},
    managing::code,
    program::{output, said},
    rigged::{FAST, Order, Rig, Rigged, SLOWLY, is_gone, pipe, rig},
};

/// Hosts that a test goes through at the same time.
pub(crate) const HOSTS: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Prepare,
    /// Of a generation whose file and image are lost.
    Repair,
    Collect,
    /// Of the generation that the node was enrolled with.
    CollectEnrolled,
}

impl Work {
    /// The generation that is worked on.
    fn generation(self) -> i64 {
        match self {
            Self::CollectEnrolled => 1,
            _ => 2,
        }
    }

    fn collects(self) -> bool {
        matches!(self, Self::Collect | Self::CollectEnrolled)
    }

    /// The process whose steps these are.
    fn whom(self) -> &'static str {
        if self.collects() { "collect" } else { "prepare" }
    }

    async fn arrange(self) -> Rigged {
        let mut host = Rigged::new().await;
        if self != Self::Prepare {
            host.publish();
        }
        match self {
            Self::Prepare => {}
            Self::Repair => {
                std::fs::remove_file(host.profile()).unwrap();
                let image = host.release.image.to_string();
                host.node.scripted_engine().held.images.lock().remove(&image);
                host.target = host.node.deployment(2, Some(2));
            }
            Self::Collect => host.target = host.node.deployment(1, Some(1)),
            Self::CollectEnrolled => host.target = host.node.deployment(2, Some(2)),
        }
        if self.collects() {
            host.node.dropped.lock().insert(self.generation());
        }
        host
    }

    fn is_done(self, host: &Rigged) -> bool {
        let done = match self {
            Self::Prepare | Self::Repair => {
                host.has("2.json") && !host.has("2.preparing") && host.profile().exists() && host.has_image()
            }
            Self::Collect | Self::CollectEnrolled => host.has(&format!("{}.dropped", self.generation())),
        };
        done && host.is_idle()
    }

    /// Serves the node until it is done and nothing more is to come; false where the node was killed before.
    async fn done_by(self, rig: &mut Rig, host: &mut Rigged) -> bool {
        let n = self.generation();
        if self.collects() {
            host.asked.clear();
            let asked = |host: &Rigged| host.asked.contains(&n) || self.is_done(host);
            return host.drive(rig, FAST, asked).await
                && host.drive(rig, SLOWLY, |host| self.is_done(host)).await;
        }
        host.drive(rig, SLOWLY, |host| self.is_done(host)).await
            && host.drive(rig, FAST, |host| ready(&host.report, n)).await
    }

    /// What is so at the end, in whatever way it was reached.
    fn finished(self, host: &mut Rigged) {
        let recovery = host.recovered(false);
        let n = self.generation();
        let root = host.node.installation.root.clone();
        // Whose checkpoints these are is the installer's to say.
        assert!(
            !host
                .node
                .installation
                .state_dir
                .join("checkpoint-store.json")
                .exists()
        );
        if !self.collects() {
            assert_eq!(Rigged::state(&recovery, n), State::Published);
            assert_eq!(std::fs::read(host.profile()).unwrap(), PROFILE);
            assert!(host.place().join("manifest.json").exists());
            // A repair has no journal: killed just before its end it leaves the archive to the next one.
            let archive = host.place().join("images/runtime.tar.gz").exists();
            assert!(!archive || self == Self::Repair);
            return;
        }
        assert_eq!(Rigged::state(&recovery, n), State::Dropped);
        assert_eq!(host.place().exists(), self == Self::CollectEnrolled);
        assert_eq!(root.join("runtime/seccomp.json").exists(), self == Self::Collect);
        assert!(host.has_image() && host.has(&format!("{n}.lease")));
        assert!(root.join("installation.json").exists() && root.join("runtime-artifacts.json").exists());
    }
}

/// Kills at the step; false where there is none.
async fn killed_at(work: Work, whom: &'static str, steps: usize) -> bool {
    let mut host = work.arrange().await;
    let order = Order {
        whom,
        steps,
        text: "-",
        deed: if whom == "run" { "die" } else { "kill-node" },
    };
    let mut rig = host.start(Some(order));
    let done = work.done_by(&mut rig, &mut host).await;
    rig.kill();
    if host.stopped().is_none() {
        assert!(done, "step {steps}");
        work.finished(&mut host);
        return false;
    }
    host.until_idle().await;
    // Only what the node itself was killed at leaves a lease without its record, and nobody mends that.
    let before = host.recovered(whom == "run");
    let (n, left) = (work.generation(), Rigged::state(&before, work.generation()));
    let published = std::fs::read(host.node.record("2.json")).ok();

    let mut rig = host.start(None);
    // Before a delivery nothing is ready, what is unfinished has failed, and what is going is not told of.
    assert!(host.drive(&mut rig, SLOWLY, |host| host.link.is_some()).await);
    assert!(host.report.iter().all(|s| s.state != GenerationState::Ready));
    match left {
        State::Unknown | State::Collecting | State::Purging | State::Dropped => {
            assert_eq!(state(&host.report, n), None, "step {steps}: {left:?}");
        }
        State::Planned | State::Importing | State::Publishing => assert_eq!(
            code(&host.report, n),
            Some(DiagnosticCode::ProviderUnavailable),
            "step {steps}: {left:?}"
        ),
        State::Published => assert!(state(&host.report, n).is_some()),
    }
    let is_bare = host.has("2.lease") && !host.has("2.lease-identity");
    if is_bare {
        let refused = |host: &Rigged| code(&host.report, 2) == Some(DiagnosticCode::ProviderUnavailable);
        assert!(host.drive(&mut rig, FAST, refused).await);
        rig.kill();
        assert_eq!(Rigged::state(&host.recovered(true), 2), State::Unknown);
        return true;
    }
    if work.collects() && left != State::Dropped {
        // What was granted to an earlier process opens nothing now.
        host.node.dropped.lock().clear();
        assert!(host.drive(&mut rig, FAST, |host| host.asked.contains(&n)).await);
        assert!(host.is_idle() && !host.has(&format!("{n}.dropped")));
        host.node.dropped.lock().insert(n);
    }
    assert!(work.done_by(&mut rig, &mut host).await, "step {steps}");
    rig.kill();
    work.finished(&mut host);
    if let Some(published) = published {
        assert_eq!(std::fs::read(host.node.record("2.json")).unwrap(), published);
    }
    true
}

async fn killed_at_every_step(work: Work, whom: &'static str, at_least: usize) {
    let hosts = (0..HOSTS).map(async |first| {
        let mut killed = 0;
        for steps in (first..).step_by(HOSTS) {
            if !killed_at(work, whom, steps).await {
                break;
            }
            killed += 1;
        }
        killed
    });
    let killed: usize = join_all(hosts).await.into_iter().sum();
    eprintln!("{work:?} of {whom}: {killed} steps");
    assert!(killed >= at_least, "{killed} steps");
}

// req: P-148
// inv: INV-N4, INV-N5, INV-N7, INV-N8, INV-N9, INV-N22, INV-N23, INV-N43
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preparation_killed_with_its_node_at_any_step_is_told_as_unfinished_and_done_by_the_next() {
    killed_at_every_step(Work::Prepare, Work::Prepare.whom(), 60).await;
}

// inv: INV-N4, INV-N5, INV-N21, INV-N22
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_killed_with_its_node_at_any_step_is_done_by_the_next() {
    killed_at_every_step(Work::Repair, Work::Repair.whom(), 20).await;
}

// req: P-106
// inv: INV-N4, INV-N13, INV-N14, INV-N15, INV-N19
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_killed_with_its_node_at_any_step_goes_on_with_a_fresh_grant_alone() {
    killed_at_every_step(Work::Collect, Work::Collect.whom(), 25).await;
}

// inv: INV-N4, INV-N13, INV-N14, INV-N15, INV-N19
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_of_the_first_generation_killed_with_its_node_at_any_step_goes_on_with_a_fresh_grant_alone()
 {
    killed_at_every_step(Work::CollectEnrolled, Work::CollectEnrolled.whom(), 20).await;
}

// req: P-112
// inv: INV-N4, INV-N10, INV-N22
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_killed_at_any_step_of_its_own_prepares_after_a_restart_unless_it_left_a_lease_without_its_record()
 {
    killed_at_every_step(Work::Prepare, "run", 12).await;
}

/// Where a preparation stops: what its step's text contains, and what is on the disk then.
const MOMENTS: [(&str, State); 6] = [
    ("AskCore", State::Unknown),
    ("FetchRelease", State::Unknown),
    ("VerifyFiles", State::Planned),
    ("FetchArchive", State::Planned),
    ("\"Import\"", State::Importing),
    ("RemoveJournal", State::Publishing),
];

fn moment(text: &'static str, deed: &'static str) -> Order {
    Order {
        whom: "prepare",
        steps: 0,
        text,
        deed,
    }
}

// inv: INV-N42, INV-N46
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_killed_alone_is_told_as_failed_and_its_work_is_done_after_the_backoff() {
    let hosts = MOMENTS.map(async |(text, _)| {
        let mut host = Rigged::new().await;
        let mut rig = host.start(Some(moment(text, "die")));
        let failed = |host: &Rigged| code(&host.report, 2) == Some(DiagnosticCode::ProviderUnavailable);
        assert!(host.drive(&mut rig, FAST, failed).await, "{text}");
        assert!(host.stopped().is_some() && host.is_idle(), "{text}");
        assert!(
            !Work::Prepare.is_done(&host),
            "{text}: not before a minute passed"
        );
        assert!(
            host.drive(&mut rig, FAST, |host| Work::Prepare.is_done(host))
                .await,
            "{text}"
        );
        assert!(host.drive(&mut rig, FAST, |host| ready(&host.report, 2)).await);
        rig.kill();
        Work::Prepare.finished(&mut host);
    });
    join_all(hosts).await;
}

// req: P-132
// inv: INV-N37, INV-N41, INV-N46
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_target_ends_the_attempt_and_all_that_it_started_at_whatever_moment_and_what_it_left_is_asked_about()
 {
    let hosts = MOMENTS.map(async |(text, left)| {
        let mut host = Rigged::new().await;
        pipe(&host.folder.join("go"));
        let mut rig = host.start(Some(moment(text, "wait")));
        assert!(
            host.drive(&mut rig, SLOWLY, |host| host.stopped().is_some())
                .await,
            "{text}"
        );
        let pids = host.stopped().unwrap();
        assert_eq!(pids.len(), 2);
        host.target = host.node.deployment(3, Some(1));
        let gone = |_: &Rigged| pids.iter().all(|pid| is_gone(*pid));
        assert!(host.drive(&mut rig, FAST, gone).await, "{text}");
        // The new target is prepared at once, and nothing of the former one was counted as failed.
        let served = |host: &Rigged| ready(&host.report, 3);
        assert!(host.drive(&mut rig, SLOWLY, served).await, "{text}");
        // While its child was not waited for, Core may be asked about it in any case.
        host.asked.clear();
        if left == State::Unknown {
            host.beats(&mut rig, 2).await;
            assert!(!host.asked.contains(&2), "{text}: nothing of it is here");
        } else {
            assert!(
                host.drive(&mut rig, FAST, |host| host.asked.contains(&2)).await,
                "{text}"
            );
        }
        rig.kill();
        // What was begun is gone on with behind the target, for as long as Core answers for it.
        let now = Rigged::state(&host.recovered(false), 2);
        assert!(
            now == left || left != State::Unknown && (left..=State::Published).contains(&now),
            "{text}: {now:?}"
        );
    });
    join_all(hosts).await;
}

// inv: INV-N37, INV-N41
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_changed_while_its_lease_is_made_leaves_it_with_its_record() {
    for steps in 0.. {
        let mut host = Rigged::new().await;
        pipe(&host.folder.join("go"));
        let order = Order {
            whom: "run",
            steps,
            text: "2.lease",
            deed: "wait",
        };
        let mut rig = host.start(Some(order));
        let there = |host: &Rigged| host.stopped().is_some() || host.has("2.json");
        assert!(host.drive(&mut rig, SLOWLY, there).await);
        if host.stopped().is_none() {
            rig.kill();
            assert!(steps >= 5, "{steps}");
            return;
        }
        host.target = host.node.deployment(3, Some(1));
        // Told, before the lease's maker goes on.
        let told = host.node.core.seen("configuration").len();
        host.beats(&mut rig, 2).await;
        assert_eq!(host.node.core.seen("configuration").len(), told);
        std::fs::write(host.folder.join("go"), b"on").unwrap();
        assert!(host.drive(&mut rig, SLOWLY, |host| ready(&host.report, 3)).await);
        rig.kill();
        let recovery = host.recovered(false);
        assert_eq!(Rigged::state(&recovery, 2), State::Unknown);
        assert!(host.has("2.lease") && host.has("2.lease-identity"));
    }
}

// req: P-139
// inv: INV-N45
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_child_or_what_it_started_outlives_its_node_no_other_one_says_a_word() {
    for deed in ["outlive", "leave-native"] {
        for (text, left) in [("AskCore", State::Unknown), ("\"Import\"", State::Importing)] {
            let mut host = Rigged::new().await;
            let mut first = host.start(Some(moment(text, deed)));
            assert!(!host.drive(&mut first, SLOWLY, |_| false).await, "{deed}");
            let pids = host.stopped().unwrap();
            let before = host.node.core.script.seen.lock().len();
            let refused = output(host.node.command_with(rig(), "run")).await;
            assert_eq!(refused.status.code(), Some(1), "{deed} {text}");
            assert!(said(&refused).contains("earlier process"), "{}", said(&refused));
            assert_eq!(host.node.core.script.seen.lock().len(), before);
            assert!(pids.iter().all(|pid| !is_gone(*pid)));
            for pid in pids {
                kill_process(pid, Signal::KILL).unwrap();
            }
            host.until_idle().await;
            assert_eq!(Rigged::state(&host.recovered(false), 2), left);
            let mut rig = host.start(None);
            assert!(host.drive(&mut rig, SLOWLY, |host| ready(&host.report, 2)).await);
            rig.kill();
            Work::Prepare.finished(&mut host);
        }
    }
}
