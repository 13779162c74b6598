//! A node that manages generations: the program as a process of the service account, on a real Docker Engine, with a
//! scripted Core that says which generations there are.

use std::os::unix::process::ExitStatusExt;

use oac_model::{DiagnosticCode, Digest};
use oac_wire::{
    NodeFrame,
    frames::{Arguments, GenerationStatus},
};
use parking_lot::Mutex;
use rustix::{
    fs::{FlockOperation, flock},
    process::Signal,
};

use crate::{
    managed::{Managed, OTHER_COMMIT, PATIENCE, ready, served, state, stop, unlock},
    program::{output, said},
    scripted_core::Link,
    shapes::response,
};

/// The code that the node answers to `info` under a generation.
pub(crate) async fn info(link: &mut Link, n: i64, lane: u64) -> Option<String> {
    asked(link, n, lane, Arguments::Info).await
}

/// The code that the node answers to a request under a generation.
pub(crate) async fn asked(link: &mut Link, n: i64, lane: u64, arguments: Arguments) -> Option<String> {
    let (id, text) = link.request_of(n, lane, 30_000, arguments);
    link.send(text).await;
    loop {
        match link.next().await {
            NodeFrame::Heartbeat(_) => link.acknowledge().await,
            frame @ NodeFrame::Response(_) => {
                let answer = response(frame);
                assert_eq!(answer.id, id);
                return answer.error_code;
            }
            _ => {}
        }
    }
}

// req: P-081, P-095, P-130, P-160, P-165, P-170, G-168
// inv: INV-N14, INV-N19, INV-N20, INV-N22, INV-N46
#[tokio::test]
async fn docker_a_node_prepares_the_target_beside_what_it_serves_and_collects_what_core_drops() {
    let mut node = Managed::new().await;
    let image = node.images();
    let child = node.start();
    let mut link = node.welcome(2, Some(1)).await;
    node.until(&mut link, |statuses| ready(statuses, 1) && ready(statuses, 2))
        .await;
    for n in [1, 2] {
        assert_eq!(info(&mut link, n, 0).await.as_deref(), Some("not_found"));
    }
    assert_eq!(info(&mut link, 3, 0).await.as_deref(), Some("unconfirmed"));
    let enrolled = std::fs::read(node.installation.root.join("provider.json")).unwrap();

    // The pin moved: the first generation is asked about, and goes once Core keeps it no longer.
    link.deployment = Some(node.deployment(2, Some(2)));
    let asked = |frame: &NodeFrame| match frame {
        NodeFrame::Retention(r) => r.control.references.iter().any(|r| r.generation.get() == 1),
        _ => false,
    };
    node.serve(&mut link, asked).await;
    assert_eq!(
        info(&mut link, 1, 0).await.as_deref(),
        Some("not_found"),
        "it is kept"
    );
    node.dropped.lock().insert(1);
    node.until_there(&mut link, "1.dropped").await;
    node.until(&mut link, |statuses| {
        state(statuses, 1).is_none() && ready(statuses, 2)
    })
    .await;
    assert_eq!(info(&mut link, 1, 0).await.as_deref(), Some("unconfirmed"));
    assert_eq!(info(&mut link, 2, 0).await.as_deref(), Some("not_found"));

    // What the second generation uses is there, the image too, and a restart finds the same.
    assert_eq!(node.images(), image);
    assert!(node.installation.root.join("runtime/seccomp.json").exists());
    assert_eq!(
        std::fs::read(node.installation.root.join("provider.json")).unwrap(),
        enrolled
    );
    assert!(node.record("1.lease").exists() && node.record("1.lease-identity").exists());
    assert_eq!(stop(child, Signal::TERM).await.code(), Some(0));
    let child = node.start();
    let mut link = node.welcome(2, Some(2)).await;
    node.until(&mut link, |statuses| {
        assert_eq!(state(statuses, 1), None);
        ready(statuses, 2)
    })
    .await;
    assert_eq!(stop(child, Signal::TERM).await.code(), Some(0));
}

// req: P-132
// inv: INV-N37, INV-N41
#[tokio::test]
async fn docker_a_changed_target_ends_the_running_attempt_and_leaves_no_lease_without_its_record() {
    let mut node = Managed::new().await;
    node.core.script.held.send_replace("configuration");
    let child = node.start();
    let mut link = node.welcome(2, Some(1)).await;
    node.core.until_seen("configuration", 1).await;
    link.deployment = Some(node.deployment(3, Some(1)));
    link.acknowledge().await;
    // The next attempt begins only once the first child is gone: one holds install.lock at a time.
    node.core.until_seen("configuration", 2).await;
    let asked: Vec<_> = node
        .core
        .seen("configuration")
        .iter()
        .map(|seen| seen.uri.query().unwrap().to_owned())
        .collect();
    assert_eq!(asked, ["generation=2", "generation=3"]);
    for n in [2, 3] {
        assert!(node.record(&format!("{n}.lease")).exists());
        assert!(node.record(&format!("{n}.lease-identity")).exists());
    }
    node.core.script.held.send_replace("nothing");
    node.until(&mut link, |statuses| {
        assert_eq!(state(statuses, 2), None, "nothing of it is here");
        ready(statuses, 3)
    })
    .await;
    assert_eq!(stop(child, Signal::TERM).await.code(), Some(0));
}

// req: P-139
// inv: INV-N45
#[tokio::test]
async fn docker_a_killed_node_takes_its_child_along_and_while_install_lock_is_held_no_other_says_a_word() {
    let mut node = Managed::new().await;
    node.core.script.held.send_replace("configuration");
    let child = node.start();
    let link = node.welcome(2, Some(1)).await;
    node.core.until_seen("configuration", 1).await;
    assert_eq!(stop(child, Signal::KILL).await.signal(), Some(9));
    drop(link);

    // What a native process of that child would still hold.
    let lock = std::fs::File::open(node.installation.root.join("install.lock")).unwrap();
    oac_testkit::wait::until("the child is gone", PATIENCE, async || {
        flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()
    })
    .await
    .unwrap();
    let before = node.core.script.seen.lock().len();
    let refused = output(node.command("run")).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("earlier process"), "{}", said(&refused));
    for line in said(&refused).lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(
            line["level"].is_string(),
            "also its last words are a line of its log"
        );
    }
    assert_eq!(node.core.script.seen.lock().len(), before);
    unlock(&lock);

    node.core.script.held.send_replace("nothing");
    let child = node.start();
    let mut link = node.welcome(2, Some(1)).await;
    node.until(&mut link, |statuses| ready(statuses, 2)).await;
    assert_eq!(stop(child, Signal::TERM).await.code(), Some(0));
}

#[tokio::test]
async fn docker_a_stopped_node_ends_its_child_and_exits_0() {
    let mut node = Managed::new().await;
    node.core.script.held.send_replace("configuration");
    let child = node.start();
    let link = node.welcome(2, Some(1)).await;
    node.core.until_seen("configuration", 1).await;
    assert_eq!(stop(child, Signal::TERM).await.code(), Some(0));
    link.closed().await;
    let lock = std::fs::File::open(node.installation.root.join("install.lock")).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).expect("nobody holds it");
}

// req: P-098, P-103, P-105
// inv: INV-N12, INV-N15
#[tokio::test]
async fn docker_a_live_helper_keeps_its_generation_whatever_core_says_and_a_fresh_grant_goes_on() {
    let mut node = Managed::new().await;
    // As a helper of an earlier process would hold it.
    let lease = std::fs::File::open(node.record("1.lease")).unwrap();
    flock(&lease, FlockOperation::NonBlockingLockShared).unwrap();
    let child = node.start();
    let mut link = node.welcome(2, Some(1)).await;
    node.until(&mut link, |statuses| ready(statuses, 2)).await;
    node.dropped.lock().insert(1);
    link.deployment = Some(node.deployment(2, Some(2)));
    // Asked once more after a grant: the collector found the lease busy.
    let asked = Mutex::new(0);
    node.serve(&mut link, |frame| {
        if let NodeFrame::Retention(r) = frame
            && r.control.references.iter().any(|r| r.generation.get() == 1)
        {
            *asked.lock() += 1;
        }
        *asked.lock() == 2
    })
    .await;
    for name in ["1.collecting", "1.dropped"] {
        assert!(!node.record(name).exists(), "{name}");
    }
    unlock(&lease);
    node.until_there(&mut link, "1.dropped").await;
    assert_eq!(stop(child, Signal::TERM).await.code(), Some(0));
}

pub(crate) fn code(statuses: &[GenerationStatus], n: i64) -> Option<DiagnosticCode> {
    let status = statuses.iter().find(|s| s.generation.get() == n)?;
    status.diagnostic.as_ref()?.code()
}

// req: P-121, P-134, P-140, P-145, P-151, P-168
// inv: INV-N19, INV-N22
#[tokio::test]
async fn docker_another_runtime_release_is_fetched_loaded_served_and_repaired_and_the_first_one_goes() {
    let (mut node, release) = Managed::with_release().await;
    let child = node.start();
    let mut link = node.welcome(2, Some(1)).await;
    node.until(&mut link, |statuses| ready(statuses, 1) && ready(statuses, 2))
        .await;
    let place = node.installation.root.join("releases").join(OTHER_COMMIT);
    assert!(place.join("runtime/seccomp.json").exists() && place.join("manifest.json").exists());
    assert!(
        !place.join("images/runtime.tar.gz").exists(),
        "it was for the import alone"
    );
    let bytes = std::fs::read(node.record("2.json")).unwrap();
    let record = oac_generations::records::Record::decode(&bytes);
    let record: oac_generations::Configuration = record.unwrap();
    let oac_generations::native::Native::Docker(native) = record.native else {
        panic!("{record:?}");
    };
    assert_eq!(native.image, release.image, "as the engine resolved it");

    // The image is removed by hand, then a file while the node is away: each is had again, and nothing else is touched.
    release.remove_image();
    assert!(!release.is_loaded());
    node.serve(&mut link, |_| release.is_loaded()).await;
    node.until(&mut link, |statuses| ready(statuses, 2)).await;
    assert_eq!(stop(child, Signal::TERM).await.code(), Some(0));
    std::fs::remove_file(place.join("runtime/seccomp.json")).unwrap();
    let child = node.start();
    let mut link = node.welcome(2, Some(2)).await;
    node.until(&mut link, |statuses| ready(statuses, 2)).await;
    assert!(place.join("runtime/seccomp.json").exists());
    assert_eq!(std::fs::read(node.record("2.json")).unwrap(), bytes);

    node.dropped.lock().insert(1);
    node.until_there(&mut link, "1.dropped").await;
    assert!(
        !node.installation.root.join("runtime/seccomp.json").exists(),
        "nobody uses it"
    );
    assert!(node.installation.root.join("provider.json").exists());
    node.images();
    node.until(&mut link, |statuses| ready(statuses, 2)).await;
    assert_eq!(stop(child, Signal::TERM).await.code(), Some(0));
}

// req: P-172
// inv: INV-N4, INV-N6
#[tokio::test]
async fn docker_a_node_killed_while_its_child_waits_for_each_file_goes_on_where_it_was() {
    let (mut node, _release) = Managed::with_release().await;
    for held in ["configuration", "SHA256SUMS", "seccomp.json", "runtime.tar.gz"] {
        let before = node.core.seen(held).len();
        node.core.script.held.send_replace(held);
        let child = node.start();
        let link = node.welcome(2, Some(1)).await;
        node.core.until_seen(held, before + 1).await;
        assert_eq!(stop(child, Signal::KILL).await.signal(), Some(9));
        drop(link);
        // The plan is there before the first byte of the release.
        let planned = node.record("2.preparing").exists();
        assert_eq!(planned, held.contains('.'), "{held}");
        assert!(!node.record("2.json").exists());
    }
    node.core.script.held.send_replace("nothing");
    let child = node.start();
    let mut link = node.welcome(2, Some(1)).await;
    node.until(&mut link, |statuses| ready(statuses, 2)).await;
    assert!(!node.record("2.preparing").exists());
    assert_eq!(
        node.core.seen("seccomp.json").len(),
        2,
        "what had arrived is not fetched again"
    );
    assert_eq!(stop(child, Signal::TERM).await.code(), Some(0));
}

// req: P-148, P-155, P-181, P-182
// inv: INV-N8, INV-N46
#[tokio::test]
async fn docker_a_release_that_is_not_to_be_had_is_told_and_what_was_begun_is_collected_when_core_drops_it() {
    let (mut node, release) = Managed::with_release().await;
    let mut files = release.files.clone();
    files.retain(|name, _| !name.ends_with("runtime.tar.gz"));
    node.answer(served(files));
    let child = node.start();
    let mut link = node.welcome(2, Some(1)).await;
    node.until(&mut link, |statuses| {
        code(statuses, 2) == Some(DiagnosticCode::RuntimeDownloadFailed)
    })
    .await;
    assert!(node.record("2.preparing").exists() && !node.record("2.json").exists());
    assert_eq!(info(&mut link, 2, 0).await.as_deref(), Some("unconfirmed"));
    // The target is another one: the plan is asked about, and goes with what it fetched.
    node.dropped.lock().insert(2);
    link.deployment = Some(node.deployment(3, Some(1)));
    node.until_there(&mut link, "2.dropped").await;
    assert_eq!(stop(child, Signal::TERM).await.code(), Some(0));
}

// req: P-131, P-133, P-180, P-183
// inv: INV-N8
#[tokio::test]
async fn docker_missing_files_leave_a_generation_unready_and_what_was_made_is_still_served() {
    let mut node = Managed::new().await;
    std::fs::remove_file(node.installation.root.join("runtime/seccomp.json")).unwrap();
    let child = node.start();
    let mut link = node.welcome(1, Some(1)).await;
    // Its repair needs a release, which is not to be had here.
    node.until(&mut link, |statuses| {
        assert!(!ready(statuses, 1));
        code(statuses, 1) == Some(DiagnosticCode::ArtifactsUnavailable)
    })
    .await;
    assert_eq!(info(&mut link, 1, 0).await.as_deref(), Some("not_found"));
    assert_eq!(stop(child, Signal::TERM).await.code(), Some(0));
}

// req: G-168
// inv: INV-N40
#[tokio::test]
async fn docker_on_another_host_nothing_is_ready_until_it_is_confirmed_that_the_state_moved() {
    let mut node = Managed::new().await;
    let path = node.installation.state_dir.join("identity.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let own = node.installation.stored().host_id.to_string();
    std::fs::write(&path, text.replace(&own, &Digest::of("another").to_string())).unwrap();
    let child = node.start();
    let mut link = node.welcome(1, Some(1)).await;
    for _ in 0..2 {
        node.until(&mut link, |statuses| {
            assert!(!ready(statuses, 1));
            true
        })
        .await;
    }
    let busy = output(node.command("rebind-host")).await;
    assert_eq!(busy.status.code(), Some(1), "the service runs");
    assert_eq!(stop(child, Signal::TERM).await.code(), Some(0));
    link.closed().await;

    let unconfirmed = output(node.command("rebind-host")).await;
    assert_eq!(unconfirmed.status.code(), Some(1));
    assert!(said(&unconfirmed).contains("nothing was changed"));
    for _ in 0..2 {
        let mut confirmed = node.command("rebind-host");
        confirmed.arg("--yes");
        let confirmed = output(confirmed).await;
        assert!(confirmed.status.success(), "{}", said(&confirmed));
    }
    let child = node.start();
    let mut link = node.welcome(1, Some(1)).await;
    node.until(&mut link, |statuses| ready(statuses, 1)).await;
    assert_eq!(stop(child, Signal::TERM).await.code(), Some(0));
}

#[tokio::test]
async fn docker_doctor_names_a_lease_without_its_record_and_what_to_do() {
    let node = Managed::new().await;
    let healthy = output(node.command("doctor")).await;
    assert!(
        healthy.status.success(),
        "{}",
        String::from_utf8_lossy(&healthy.stdout)
    );
    std::fs::remove_file(node.record("1.lease-identity")).unwrap();
    let doctor = output(node.command("doctor")).await;
    let printed = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert_eq!(doctor.status.code(), Some(1));
    for expected in ["lease of generation 1", "select a new generation"] {
        assert!(printed.contains(expected), "{printed}");
    }
}
