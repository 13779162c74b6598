//! Leases and their records.

use std::os::unix::fs::PermissionsExt;

use oac_generations::{
    LeaseError, lease,
    records::{self, Record as _},
};
use oac_model::ProviderKind;
use oac_records::steps::{Step, Verdict, watched};

use crate::{base, scenario::Scenario, scene::Scene};

// req: P-100, P-107, P-110, P-111, P-113
// inv: INV-N9, INV-N10
#[test]
fn a_lease_without_its_exact_record_is_refused_by_all_and_never_mended() {
    type Break = fn(&Scene);
    let mut breaks: Vec<(&str, Break)> = vec![
        ("record removed", |s| {
            std::fs::remove_file(s.generations().join("2.lease-identity")).unwrap()
        }),
        ("record of another generation", |s| {
            let other = std::fs::read(s.generations().join("1.lease-identity")).unwrap();
            std::fs::write(s.generations().join("2.lease-identity"), other).unwrap();
        }),
        ("record loose", |s| {
            let path = s.generations().join("2.lease-identity");
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, text.replacen('{', "{\"more\":1,", 1)).unwrap();
        }),
        ("lease removed", |s| {
            std::fs::remove_file(s.generations().join("2.lease")).unwrap()
        }),
        ("lease replaced with equal metadata", |s| {
            let path = s.generations().join("2.lease");
            std::fs::rename(&path, s.base.join("old")).unwrap();
            crate::scene::write(&path, b"", oac_records::FileMode::Data);
        }),
        ("lease linked twice", |s| {
            std::fs::hard_link(s.generations().join("2.lease"), s.base.join("second")).unwrap();
        }),
    ];
    breaks.push(("lease behind a symbolic link", |s| {
        let path = s.generations().join("2.lease");
        std::fs::rename(&path, s.base.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(s.base.join("elsewhere"), path).unwrap();
    }));
    breaks.push(("lease others may read", |s| {
        let path = s.generations().join("2.lease");
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o644)).unwrap();
    }));
    if rustix::process::geteuid().is_root() {
        breaks.push(("lease of another account", |s| {
            std::os::unix::fs::chown(s.generations().join("2.lease"), Some(65532), None).unwrap();
        }));
    }
    for (what, break_it) in breaks {
        let base = base();
        let scene = Scenario::CollectMicrosandbox.arrange(base.path());
        break_it(&scene);
        let before = crate::records(&scene.root());
        let store = scene.store();
        assert!(lease::share(&store, scene.identity(2)).is_err(), "{what}");
        assert!(lease::exclude(&store, scene.identity(2)).is_err(), "{what}");
        if what != "lease removed" {
            assert!(lease::create(&store, scene.identity(2)).is_err(), "{what}");
        } else {
            assert!(
                matches!(lease::create(&store, scene.identity(2)), Err(LeaseError::Bare(_))),
                "{what}"
            );
        }
        assert!(scene.prepare(2).is_err(), "{what}");
        assert!(scene.collect(2).is_err(), "{what}");
        assert_eq!(before, crate::records(&scene.root()), "{what}");
    }
}

// req: P-101
#[test]
fn with_a_journal_of_any_kind_or_without_its_configuration_a_generation_lends_no_lease() {
    let base = base();
    let scene = Scenario::CollectMicrosandbox.arrange(base.path());
    let shared = || lease::share(&scene.store(), scene.identity(2)).map(drop);
    shared().expect("published");
    let identity = scene.identity(2);
    let store = scene.store();
    let configuration = store.load(identity.generation).unwrap().unwrap().configuration;
    let journals: [(&str, Vec<u8>); 3] = [
        (
            "2.preparing",
            records::Plan::of(configuration.expect("published")).encode(),
        ),
        (
            "2.collecting",
            records::Collecting {
                identity,
                native_complete: false,
            }
            .encode(),
        ),
        ("2.dropped", identity.encode()),
    ];
    for (name, bytes) in journals {
        let path = scene.generations().join(name);
        crate::scene::write(&path, &bytes, oac_records::FileMode::Data);
        assert!(
            matches!(shared(), Err(LeaseError::NotPublished(_))),
            "beside {name}"
        );
        std::fs::remove_file(path).unwrap();
        shared().expect("without it");
    }
    std::fs::rename(scene.generations().join("2.json"), scene.base.join("taken away")).unwrap();
    assert!(matches!(shared(), Err(LeaseError::NotPublished(_))));
}

// req: P-099, P-108
// inv: INV-N9
#[test]
fn a_lease_is_durable_before_its_record_is_begun_and_both_are_private_files_of_their_generation() {
    let base = base();
    let scene = Scene::create(base.path(), ProviderKind::Docker);
    let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let writer = seen.clone();
    let watcher = move |step: &Step| {
        writer.borrow_mut().push(step.clone());
        Verdict::Go
    };
    drop(watched(watcher, || lease::create(&scene.store(), scene.identity(2))).expect("made"));
    let steps = seen.take();
    let folder = scene.root().join("state/node/generations");
    assert_eq!(folder, scene.generations());
    let (lease, record) = (folder.join("2.lease"), folder.join("2.lease-identity"));
    let at = |is: &dyn Fn(&Step) -> bool| {
        let found = steps.iter().position(is);
        found.unwrap_or_else(|| panic!("{steps:#?}"))
    };
    let created = at(&|s| matches!(s, Step::Create { path, mode: 0o600 } if *path == lease));
    let synced = at(&|s| matches!(s, Step::SyncFile { path } if *path == lease));
    let named = at(&|s| matches!(s, Step::SyncDirectory { path } if *path == folder));
    let begun =
        at(&|s| matches!(s, Step::Create { path, .. } if *path == folder.join(".2.lease-identity.partial")));
    let published = at(&|s| matches!(s, Step::Rename { to, replaces: false, .. } if *to == record));
    assert!(created < synced && synced < named && named < begun && begun < published);
    assert!(matches!(&steps[published + 1], Step::SyncDirectory { path } if *path == folder));
    for path in [lease, record] {
        let meta = std::fs::metadata(path).unwrap();
        assert_eq!(meta.permissions().mode() & 0o7777, 0o600);
    }
}

#[test]
fn a_shared_lease_needs_a_published_generation() {
    let base = base();
    let scene = Scenario::CollectPlan.arrange(base.path());
    let shared = lease::share(&scene.store(), scene.identity(2));
    assert!(matches!(shared, Err(LeaseError::NotPublished(_))), "{shared:?}");
    scene.prepare(2).expect("resumed");
    let first = lease::share(&scene.store(), scene.identity(2)).expect("published");
    let second = lease::share(&scene.store(), scene.identity(2)).expect("beside the first");
    drop(first);
    assert!(matches!(
        lease::exclude(&scene.store(), scene.identity(2)),
        Err(LeaseError::Busy(_))
    ));
    drop(second);
    scene.collect(2).expect("nobody holds it");
    assert!(matches!(
        lease::share(&scene.store(), scene.identity(2)),
        Err(LeaseError::NotPublished(_))
    ));
}
