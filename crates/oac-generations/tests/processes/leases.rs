//! Leases and locks held by real processes.

use std::{
    io::{BufRead, BufReader, Read},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    time::Duration,
};

use oac_generations::{CollectError, Generations, InstallLock, LeaseError, PrepareError, State, lease};
use oac_model::ProviderKind;
use oac_records::LockError;
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};

use crate::{
    RIG, base, records,
    scenario::Scenario,
    scene::{Scene, generation},
    turn,
};

/// A process that is no child of this one: known, waited for and ended by its descriptor.
struct Other {
    pid: Pid,
    fd: OwnedFd,
}

impl Other {
    fn of(text: &str) -> Self {
        let pid = text.parse().ok().and_then(Pid::from_raw).expect("a process id");
        let fd = pidfd_open(pid, PidfdFlags::empty()).expect("it lives");
        Self { pid, fd }
    }

    fn end(&self) {
        let _ = kill_process(self.pid, Signal::TERM);
        let mut ended = [PollFd::new(&self.fd, PollFlags::IN)];
        let bound = rustix::time::Timespec::try_from(Duration::from_secs(60)).expect("a bound");
        assert_eq!(poll(&mut ended, Some(&bound)), Ok(1), "it ended");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = kill_process(self.pid, Signal::KILL);
    }
}

/// A node that was killed while its helper lives on, and a daemon that the helper started.
fn orphaned_helper(scene: &Scene) -> (Other, Other, Child) {
    let mut caller = Command::new(RIG)
        .arg("caller")
        .arg(&scene.base)
        .arg("2")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the rig");
    let mut out = BufReader::new(caller.stdout.take().expect("piped"));
    let mut line = String::new();
    let mut words = Vec::new();
    while words.first().map(String::as_str) != Some("helper") {
        line.clear();
        assert!(
            out.read_line(&mut line).expect("readable") > 0,
            "the helper says who it is"
        );
        words = line.split_whitespace().map(str::to_owned).collect();
    }
    let (helper, daemon) = (Other::of(&words[1]), Other::of(&words[2]));
    caller.kill().expect("killed");
    caller.wait().expect("waited for");
    (helper, daemon, caller)
}

// req: P-102, P-103, P-104, P-144
// inv: INV-N12
#[test]
fn a_helper_that_outlives_its_node_keeps_repair_and_collection_away_until_it_ends_and_its_daemon_holds_nothing()
 {
    let base = base();
    let scene = Scenario::Repair.arrange(base.path());
    let (helper, daemon, _caller) = orphaned_helper(&scene);
    let before = records(&scene.root());
    let busy = scene.prepare(2).expect_err("the helper lives");
    assert!(
        matches!(busy, PrepareError::Lease(LeaseError::Busy(_))),
        "{busy:?}"
    );
    assert_eq!(busy.exit_status(), 75);
    let busy = scene.collect(2).expect_err("the helper lives");
    assert!(
        matches!(busy, CollectError::Lease(LeaseError::Busy(_))),
        "{busy:?}"
    );
    assert_eq!(busy.exit_status(), 75);
    assert_eq!(before, records(&scene.root()));
    helper.end();
    // The daemon lives and does not hold it.
    assert!(pidfd_open(daemon.pid, PidfdFlags::empty()).is_ok());
    scene.prepare(2).expect("the lease is free");
    scene.collect(2).expect("the lease is free");
    assert_eq!(scene.state(2), State::Dropped);
    daemon.end();
}

// inv: INV-N10
#[test]
fn a_helper_refuses_a_lease_without_its_record_or_of_another_generation() {
    let _turn = turn();
    for record_removed in [false, true] {
        let base = base();
        let scene = Scenario::CollectShared.arrange(base.path());
        let lease = lease::share(&scene.store(), scene.identity(2)).expect("free");
        let mut command = Command::new(RIG);
        command.arg("helper").arg(&scene.base).stdout(Stdio::piped());
        if record_removed {
            std::fs::remove_file(scene.generations().join("2.lease-identity")).expect("removed");
            command.arg("2");
        } else {
            // Told of 3, given the lease of 2.
            command.arg("3");
        }
        lease.hand_over(&mut command).expect("handed over");
        let out = command.output().expect("the rig");
        assert!(
            String::from_utf8_lossy(&out.stdout).starts_with("refused"),
            "{out:?}"
        );
    }
}

#[test]
fn a_program_that_cannot_be_started_is_reported_and_its_lease_stays_empty() {
    let _turn = turn();
    let base = base();
    let scene = Scenario::CollectShared.arrange(base.path());
    let lease = lease::share(&scene.store(), scene.identity(2)).expect("free");
    for _ in 0..20 {
        let mut command = Command::new(base.path().join("missing"));
        lease.hand_over(&mut command).expect("handed over");
        assert!(command.spawn().is_err());
    }
    drop(lease);
    drop(lease::exclude(&scene.store(), scene.identity(2)).expect("still empty and free"));
}

#[test]
fn a_child_of_the_node_holds_the_inherited_lock_until_it_ends_and_is_not_started_by_hand() {
    let _turn = turn();
    let base = base();
    let scene = Scene::create(base.path(), ProviderKind::Docker);
    let store = scene.store();
    let lock = InstallLock::take(&store).expect("free");
    let mut table = Generations::default();
    let kept = table.attempt(scene.identity(2)).expect("not going");
    let mut command = Command::new(RIG);
    lock.send_preparer(&mut command, scene.identity(2), &kept)
        .expect("handed over");
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the rig");
    drop((command, lock));
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped"))
        .read_line(&mut line)
        .expect("readable");
    assert_eq!(line, "prepare 2\n");
    assert!(matches!(InstallLock::take(&store), Err(LockError::Busy(_))));
    assert!(table.is_used(generation(2)));
    child.kill().expect("killed");
    child.wait().expect("waited for");
    drop(InstallLock::take(&store).expect("free again"));

    let by_hand = Command::new(RIG)
        .args(["generation", "collect", "--root"])
        .arg(scene.root())
        .args([
            "--installation-id",
            "x",
            "--generation",
            "2",
            "--specification-digest",
            "x",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    let mut by_hand = by_hand.expect("the rig");
    let mut said = String::new();
    by_hand
        .stdout
        .take()
        .expect("piped")
        .read_to_string(&mut said)
        .expect("readable");
    assert!(
        said.starts_with("refused: no install.lock was handed over"),
        "{said}"
    );
    assert!(!by_hand.wait().expect("waited for").success());
}
