//! What must be so on a disk, whatever was killed before.

use std::{fs, path::Path};

use oac_generations::{LeaseError, PrepareError, State, recovery};

use crate::{
    scenario::Scenario,
    scene::{Scene, content, generation, source},
};

/// After every kill: every record is readable and agrees with the others, and nothing half-prepared is published, and
/// what other generations use is there.
pub(crate) fn sound(scenario: Scenario, scene: &Scene) {
    let recovered = recovery::recover(&scene.store()).expect("records that agree");
    let n = scenario.generation();
    let state = scene.state(n);
    if scenario != Scenario::Repair && state == State::Published {
        complete(scene, n);
    }
    for other in (1..=4).filter(|other| *other != n) {
        if scene.state(other) == State::Published {
            complete(scene, other);
        }
    }
    // Whatever was begun is found again, and is asked about.
    let listed = recovered
        .held
        .iter()
        .any(|r| r.found.identity.generation == generation(n));
    assert_eq!(
        listed,
        !matches!(state, State::Unknown | State::Dropped),
        "{scenario:?} {state:?}"
    );
    let files = scene.generations();
    let exists = |suffix: &str| files.join(format!("{n}.{suffix}")).exists();
    if exists("json") || exists("preparing") || exists("collecting") {
        assert!(listed || state == State::Dropped);
    }
}

/// The files that the generation's provider opens are there, whole, and its image is in the engine.
pub(crate) fn complete(scene: &Scene, n: i64) {
    let found = scene
        .store()
        .load(generation(n))
        .expect("readable")
        .expect("records");
    let configuration = found.configuration.expect("published");
    for file in configuration.native.files() {
        let key = key_of(file);
        assert_eq!(
            fs::read(file).ok(),
            Some(content(source(n), key)),
            "generation {n}: {file}"
        );
    }
    assert!(
        scene.outside().held().contains(&scene.image_name(n)),
        "the image of generation {n}"
    );
}

fn key_of(file: &str) -> &str {
    let at = ["native/", "runtime/"].iter().find_map(|start| file.find(start));
    &file[at.expect("a payload file")..]
}

/// After the work was done to its end.
pub(crate) fn finished(scenario: Scenario, scene: &Scene) {
    sound(scenario, scene);
    let n = scenario.generation();
    let release = scene.root().join("releases").join(source(n).to_string());
    if scenario.prepares() {
        assert_eq!(scene.state(n), State::Published, "{scenario:?}");
        complete(scene, n);
        assert!(
            !release.join("images/runtime.tar.gz").exists(),
            "the archive goes after its import"
        );
        assert_eq!(partials(&release), 0);
        return;
    }
    assert_eq!(scene.state(n), State::Dropped, "{scenario:?}");
    let image = scene.outside().held().contains(&scene.image_name(n));
    match scenario {
        Scenario::CollectShared => {
            assert!(release.join("native/microsandbox/msb").exists() && image);
        }
        Scenario::CollectDocker => assert!(!release.exists() && image),
        _ => assert!(!release.exists() && !image, "{scenario:?}"),
    }
    if scenario == Scenario::CollectEnrolled {
        for gone in ["native/microsandbox/msb", "images/runtime.tar.gz"] {
            assert!(!scene.root().join(gone).exists(), "{gone}");
        }
        for kept in ["provider.json", "installation.json", "runtime-artifacts.json"] {
            assert!(scene.root().join(kept).exists(), "{kept}");
        }
    }
    for kept in ["lease", "lease-identity"] {
        assert!(scene.generations().join(format!("{n}.{kept}")).exists());
    }
}

fn partials(path: &Path) -> usize {
    let names = crate::snapshot(path).into_keys();
    names.filter(|name| name.ends_with(".partial")).count()
}

/// Whether the lease was made and its record not: then every run is refused, and nothing changes.
pub(crate) fn refused_as_bare(scenario: Scenario, scene: &Scene) -> bool {
    let exists = |suffix: &str| {
        let name = format!("{}.{suffix}", scenario.generation());
        scene.generations().join(name).exists()
    };
    assert!(
        exists("lease") || !exists("lease-identity"),
        "{scenario:?}: a record without its lease"
    );
    if exists("lease-identity") || !exists("lease") {
        return false;
    }
    let before = crate::records(&scene.root());
    let refused = scenario.act(scene).expect_err("a bare lease");
    let refused = refused.downcast::<PrepareError>().expect("of a preparation");
    assert!(
        matches!(*refused, PrepareError::Lease(LeaseError::Bare(_))),
        "{refused:?}"
    );
    assert_eq!(before, crate::records(&scene.root()));
    true
}
