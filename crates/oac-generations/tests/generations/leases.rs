//! Leases and their records.

use std::os::unix::fs::PermissionsExt;

use oac_generations::{LeaseError, lease};

use crate::{base, records, scenario::Scenario, scene::Scene};

// req: P-107, P-110, P-111, P-113
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
        let before = records(&scene.root());
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
        assert_eq!(before, records(&scene.root()), "{what}");
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
