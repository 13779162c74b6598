//! What cannot be proven keeps everything.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use oac_generations::{CollectError, PayloadError, PrepareError, State};
use oac_model::ProviderKind;
use oac_records::steps::{Step, Verdict, watched};
use oac_release::payload::PayloadError as Wrong;

use crate::{
    base, records,
    scenario::Scenario,
    scene::{Scene, generation, source},
    snapshot,
};

fn release(scene: &Scene, n: i64) -> PathBuf {
    scene.root().join("releases").join(source(n).to_string())
}

/// Payload alone: what a refusal must leave untouched.
fn payload(scene: &Scene) -> std::collections::BTreeMap<String, (u32, u64, Vec<u8>)> {
    let mut all = snapshot(&scene.root());
    all.retain(|name, _| {
        ["native", "runtime/", "images", "releases"]
            .iter()
            .any(|start| name.starts_with(start))
    });
    all
}

// req: P-169
// inv: INV-N17
#[test]
fn one_original_file_that_cannot_be_verified_prevents_every_deletion() {
    type Break = fn(&Scene);
    let breaks: [(&str, Break); 7] = [
        ("one bit", |s| {
            let path = s.root().join("images/runtime.tar.gz");
            let mut bytes = fs::read(&path).unwrap();
            bytes[5] ^= 1;
            fs::write(path, bytes).unwrap();
        }),
        ("a link", |s| {
            fs::hard_link(s.root().join("native/microsandbox/msb"), s.base.join("second")).unwrap();
        }),
        ("a symbolic link", |s| {
            let path = s.root().join("images/runtime.tar.gz");
            fs::rename(&path, s.base.join("elsewhere")).unwrap();
            std::os::unix::fs::symlink(s.base.join("elsewhere"), path).unwrap();
        }),
        ("another mode", |s| {
            let path = s.root().join("native/microsandbox/libkrunfw.so.5");
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }),
        ("no metadata", |s| {
            fs::remove_file(s.root().join("runtime-artifacts.json")).unwrap()
        }),
        ("an unknown hash", |s| {
            let path = s.root().join("runtime-artifacts.json");
            let text = fs::read_to_string(&path).unwrap();
            let from = text.find("\"native/microsandbox/msb\"").unwrap();
            let to = text[from..].find(['}', ',']).unwrap() + from;
            let text = format!("{}{}", text[..from].trim_end_matches(','), &text[to..]);
            fs::write(&path, text).unwrap();
        }),
        ("metadata of another installation", |s| {
            let path = s.root().join("runtime-artifacts.json");
            let text = fs::read_to_string(&path)
                .unwrap()
                .replace("11111111-1111", "21111111-1111");
            fs::write(path, text).unwrap();
        }),
    ];
    for (what, break_it) in breaks {
        let base = base();
        let scene = Scenario::CollectEnrolled.arrange(base.path());
        break_it(&scene);
        let (before, images) = (payload(&scene), scene.outside().held());
        let refused = scene.collect(1);
        assert!(refused.is_err(), "{what}");
        assert_eq!(before, payload(&scene), "{what}: {refused:?}");
        assert_eq!(images, scene.outside().held(), "{what}");
    }
}

#[test]
fn a_foreign_thing_in_a_release_keeps_it_whole() {
    let base = base();
    let scene = Scenario::CollectMicrosandbox.arrange(base.path());
    let foreign = release(&scene, 2).join("native/other");
    std::os::unix::fs::symlink("/etc/hostname", &foreign).unwrap();
    let (before, images) = (payload(&scene), scene.outside().held());
    let refused = scene.collect(2).expect_err("a link");
    assert!(
        matches!(refused, CollectError::Payload(PayloadError::Foreign(_))),
        "{refused:?}"
    );
    assert_eq!((before, images), (payload(&scene), scene.outside().held()));
    fs::remove_file(foreign).unwrap();
    scene.collect(2).expect("nothing foreign");
    assert_eq!(scene.state(2), State::Dropped);
}

// req: P-162, P-163, P-174
#[test]
fn an_engine_that_proves_nothing_keeps_everything_and_a_missing_program_proves_no_absence() {
    let image = |scene: &Scene| scene.image_name(2);
    type Break = fn(&Scene);
    let breaks: [(&str, Break); 8] = [
        ("a sandbox", |s| s.outside().set_sandboxes("[{}]")),
        ("no list of sandboxes", |s| s.outside().set_sandboxes("{}")),
        ("half a list of sandboxes", |s| s.outside().set_sandboxes("[")),
        ("a cut list of images", |s| {
            let name = s.image_name(2);
            s.outside().set_inventory(&name);
        }),
        ("a line that is no image", |s| {
            let text = format!("{}\nerror: busy\n", s.image_name(2));
            s.outside().set_inventory(&text);
        }),
        ("the program is missing", |s| {
            fs::remove_file(release(s, 2).join("native/microsandbox/msb")).unwrap()
        }),
        ("the program has other bytes", |s| {
            fs::write(release(s, 2).join("native/microsandbox/msb"), "other").unwrap();
        }),
        ("the store is another installation's", |s| {
            for store in fs::read_dir(s.base.join("m")).unwrap() {
                let path = store.unwrap().path().join("oac-installation.json");
                fs::write(
                    path,
                    "{\"installation_id\":\"21111111-1111-4111-8111-111111111111\"}",
                )
                .unwrap();
            }
        }),
    ];
    for (what, break_it) in breaks {
        let base = base();
        let scene = Scenario::CollectMicrosandbox.arrange(base.path());
        break_it(&scene);
        let before = payload(&scene);
        let refused = scene.collect(2);
        assert!(refused.is_err(), "{what}");
        assert_eq!(before, payload(&scene), "{what}: {refused:?}");
        assert!(scene.outside().held().contains(&image(&scene)), "{what}");
        assert_eq!(scene.state(2), State::Collecting, "{what}: unusable from now on");
    }
}

// req: P-165
// inv: INV-N19
#[test]
fn no_docker_image_is_removed_not_even_asked_about() {
    let base = base();
    let scene = Scenario::CollectDocker.arrange(base.path());
    let images = scene.outside().held();
    // The scripted engine answers every native question of a Docker node with an error, which would stop it.
    scene.collect(2).expect("without a native question");
    assert_eq!(scene.state(2), State::Dropped);
    assert_eq!(images, scene.outside().held());
    assert!(images.contains(&scene.image_name(2)));
}

// req: P-140, P-141, P-142
// inv: INV-N21
#[test]
fn repair_changes_no_existing_file_and_one_conflicting_byte_prevents_every_download() {
    let base = base();
    let scene = Scenario::Repair.arrange(base.path());
    let helper = release(&scene, 2).join("native/bin/oac-microsandbox-helper");
    let whole = fs::read(&helper).unwrap();
    let mut bytes = whole.clone();
    bytes[0] ^= 1;
    fs::write(&helper, &bytes).unwrap();
    let before = payload(&scene);
    let refused = scene.prepare(2).expect_err("a conflict");
    assert!(
        matches!(
            refused,
            PrepareError::Payload(PayloadError::Release(Wrong::Conflict(_)))
        ),
        "{refused:?}"
    );
    assert_eq!(refused.exit_status(), 65);
    assert_eq!(before, payload(&scene));
    fs::write(&helper, &whole).unwrap();
    let before = payload(&scene);
    scene.prepare(2).expect("repaired");
    let after = payload(&scene);
    for (name, file) in &before {
        assert_eq!(after.get(name), Some(file), "{name}");
    }
    assert!(after.keys().any(|name| name.ends_with("native/microsandbox/msb")));
    assert_eq!(scene.state(2), State::Published);
}

#[test]
fn a_file_of_the_release_that_is_no_private_file_of_ours_is_an_artifact_failure() {
    type Break = fn(&PathBuf);
    let breaks: [(&str, Break); 3] = [
        ("a link", |path| {
            let elsewhere = path.with_extension("elsewhere");
            fs::rename(path, &elsewhere).unwrap();
            std::os::unix::fs::symlink(elsewhere, path).unwrap();
        }),
        ("a second name", |path| {
            fs::hard_link(path, path.with_extension("second")).unwrap();
        }),
        ("another mode", |path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }),
    ];
    for (what, break_it) in breaks {
        let base = base();
        let scene = Scenario::Repair.arrange(base.path());
        break_it(&release(&scene, 2).join("native/bin/oac-microsandbox-helper"));
        let before = payload(&scene);
        let refused = scene.prepare(2).expect_err(what);
        assert_eq!(refused.exit_status(), 65, "{what}: {refused:?}");
        assert_eq!(before, payload(&scene), "{what}");
    }
}

#[test]
fn wrong_bytes_are_never_published_and_the_next_attempt_begins_anew() {
    let base = base();
    let scene = Scene::create(base.path(), ProviderKind::Microsandbox);
    scene.outside().set_wrong("bytes");
    let refused = scene.prepare(2).expect_err("other bytes");
    assert_eq!(refused.exit_status(), 65, "{refused:?}");
    assert!(
        !release(&scene, 2)
            .join("native/bin/oac-microsandbox-helper")
            .exists()
    );
    assert_eq!(scene.state(2), State::Planned);
    scene.outside().set_wrong("nothing");
    scene.prepare(2).expect("the right bytes");
    crate::proof::complete(&scene, 2);
}

#[test]
fn another_specification_or_a_drifted_plan_refuses_and_changes_nothing() {
    let base = base();
    let scene = Scenario::CollectPlan.arrange(base.path());
    scene.outside().set_wrong("specification");
    let before = snapshot(&scene.generations());
    assert!(matches!(scene.prepare(2), Err(PrepareError::Specification)));
    assert_eq!(before, snapshot(&scene.generations()));
    scene.outside().set_wrong("nothing");
    let plan = scene.generations().join("2.preparing");
    let text = fs::read_to_string(&plan).unwrap();
    let moved = text.replace("native/bin/oac-microsandbox-helper", "native/bin/elsewhere");
    assert_ne!(text, moved);
    fs::write(&plan, moved).unwrap();
    let before = snapshot(&scene.generations());
    assert!(matches!(scene.prepare(2), Err(PrepareError::Drift)));
    assert_eq!(before, snapshot(&scene.generations()));
}

// req: P-114
#[test]
fn a_dropped_generation_is_never_prepared_again_and_an_unknown_one_is_nothing_to_collect() {
    let base = base();
    let scene = Scenario::CollectMicrosandbox.arrange(base.path());
    scene.collect(2).expect("collected");
    let before = records(&scene.root());
    assert!(matches!(scene.prepare(2), Err(PrepareError::Going)));
    assert_eq!(before, records(&scene.root()));
    drop(oac_generations::lease::create(&scene.store(), scene.identity(4)).unwrap());
    scene.collect(4).expect("nothing to do");
    assert_eq!(scene.store().load(generation(4)).unwrap(), None);
}

// req: P-150, P-161
// inv: INV-N5
#[test]
fn a_published_configuration_keeps_its_bytes_through_repair_and_collection() {
    let base = base();
    let scene = Scenario::Repair.arrange(base.path());
    let read = || {
        let files = [
            scene.generations().join("2.json"),
            scene.root().join("provider.json"),
        ];
        files.map(|file| fs::read(file).unwrap())
    };
    let published = read();
    scene.prepare(2).expect("repaired");
    assert_eq!(published, read());
    scene.collect(2).expect("collected");
    assert_eq!(published, read());
}

#[test]
fn a_store_that_is_not_empty_and_says_no_owner_is_refused() {
    let base = base();
    let scene = Scene::create(base.path(), ProviderKind::Microsandbox);
    let refused = {
        let artifacts = scene.specification(2).runtime.unwrap().artifacts;
        let other = (
            artifacts.runtime_sha256.unwrap(),
            artifacts.firmware_sha256.unwrap(),
        );
        let name = oac_generations::layout::store_name(crate::scene::installation(), Some(other));
        let store = scene.base.join("m").join(name);
        crate::scene::make(&store);
        fs::write(store.join("something"), "foreign").unwrap();
        scene.prepare(2).expect_err("no owner")
    };
    assert!(matches!(refused, PrepareError::StoreOwner(_)), "{refused:?}");
    assert!(!scene.outside().held().contains(&scene.image_name(2)));
}

// req: P-173
#[test]
fn a_plan_whose_import_never_began_is_collected_without_a_native_question() {
    let base = base();
    let scene = Scenario::CollectPlan.arrange(base.path());
    scene.outside().set_sandboxes("no answer");
    scene.outside().set_inventory("no answer");
    scene.collect(2).expect("nothing native exists");
    assert_eq!(scene.state(2), State::Dropped);
    assert!(!release(&scene, 2).exists());
}

// req: P-172
#[test]
fn an_interrupted_download_goes_on_behind_what_has_arrived() {
    let base = base();
    let scene = Scenario::CollectPlan.arrange(base.path());
    let partials = |scene: &Scene| {
        let all = snapshot(&release(scene, 2)).into_iter();
        all.filter(|(name, _)| name.ends_with(".partial"))
            .map(|(_, (_, _, bytes))| bytes.len())
            .sum::<usize>()
    };
    let arrived = partials(&scene);
    assert!(arrived > 0, "cut off in the middle of a file");
    let before: usize = payload(&scene).values().map(|(_, _, bytes)| bytes.len()).sum();
    let fetched = std::rc::Rc::new(std::cell::Cell::new(0));
    let (counted, below) = (fetched.clone(), release(&scene, 2));
    let watcher = move |step: &Step| {
        if let Step::Append { path, bytes } = step
            && path.starts_with(&below)
            && !path.ends_with(".manifest.json.partial")
        {
            counted.set(counted.get() + bytes.len());
        }
        Verdict::Go
    };
    watched(watcher, || scene.prepare(2)).expect("resumed");
    crate::proof::complete(&scene, 2);
    let archive = crate::scene::content(source(2), "images/runtime.tar.gz").len();
    let after: usize = payload(&scene).values().map(|(_, _, bytes)| bytes.len()).sum();
    assert_eq!(
        before + fetched.get(),
        after + archive,
        "no byte that was here came again"
    );
}

// req: P-168, P-171
// inv: INV-N18
#[test]
fn the_original_files_stay_until_the_last_generation_of_their_source_is_collected() {
    let base = base();
    let scene = Scene::create(base.path(), ProviderKind::Microsandbox);
    scene.prepare(5).expect("on the enrolled generation's files");
    assert!(!release(&scene, 5).exists());
    let (before, images) = (payload(&scene), scene.outside().held());
    scene.collect(1).expect("collected");
    assert_eq!(scene.state(1), State::Dropped);
    assert_eq!((before, images), (payload(&scene), scene.outside().held()));
    crate::proof::complete(&scene, 5);
    scene.collect(5).expect("the last one");
    assert!(!scene.root().join("native/microsandbox/msb").exists());
    assert!(!scene.outside().held().contains(&scene.image_name(5)));
}

// req: P-143
#[test]
fn a_missing_configuration_without_an_exact_plan_is_not_made_again() {
    let base = base();
    let scene = Scenario::CollectMicrosandbox.arrange(base.path());
    fs::remove_file(scene.root().join("provider.json")).unwrap();
    let before = records(&scene.root());
    // Nor is another prepared without it: its settings of the host would have to be guessed.
    for n in [1, 4] {
        let refused = scene.prepare(n).map_err(|error| error.exit_status());
        assert_eq!(refused, Err(1), "generation {n}");
    }
    let after = records(&scene.root());
    for (name, file) in &before {
        assert_eq!(after.get(name), Some(file), "{name}");
    }
    let added: Vec<&String> = after.keys().filter(|name| !before.contains_key(*name)).collect();
    assert!(
        added.iter().all(|name| name.contains("4.lease")),
        "a lease at most: {added:?}"
    );
}

// req: P-154
#[test]
fn between_publication_and_the_removal_of_its_plan_any_drift_refuses_and_the_same_plan_completes() {
    type Drift = fn(&Scene);
    let drifts: [(&str, Drift); 4] = [
        ("a path of the plan", |s| {
            let path = s.generations().join("2.preparing");
            let text = fs::read_to_string(&path).unwrap();
            let moved = text.replace("native/bin/oac-microsandbox-helper", "native/bin/elsewhere");
            assert_ne!(text, moved);
            fs::write(path, moved).unwrap();
        }),
        ("a path of the configuration", |s| {
            let path = s.generations().join("2.json");
            let text = fs::read_to_string(&path).unwrap();
            let moved = text.replace("native/microsandbox/msb", "native/microsandbox/other");
            assert_ne!(text, moved);
            fs::write(path, moved).unwrap();
        }),
        ("the plan's generation", |s| {
            let path = s.generations().join("2.preparing");
            let text = fs::read_to_string(&path).unwrap();
            fs::write(path, text.replace("\"generation\":2", "\"generation\":3")).unwrap();
        }),
        ("Core's specification", |s| s.outside().set_wrong("specification")),
    ];
    for (what, drift) in drifts {
        let base = base();
        let scene = Scene::create(base.path(), ProviderKind::Microsandbox);
        let stops = |step: &Step| match step {
            Step::Outside { what } if what == "RemoveJournal" => Verdict::Fail,
            _ => Verdict::Go,
        };
        assert!(watched(stops, || scene.prepare(2)).is_err());
        assert_eq!(scene.state(2), State::Publishing);
        let published = fs::read(scene.generations().join("2.json")).unwrap();
        if what == "Core's specification" {
            // The control: without a drift it completes, and with the same bytes.
            let base = crate::base();
            let other = Scene::create(base.path(), ProviderKind::Microsandbox);
            assert!(watched(stops, || other.prepare(2)).is_err());
            let before = fs::read(other.generations().join("2.json")).unwrap();
            other.prepare(2).expect("the same plan");
            assert_eq!(other.state(2), State::Published);
            assert_eq!(fs::read(other.generations().join("2.json")).unwrap(), before);
        }
        drift(&scene);
        let before = records(&scene.root());
        let refused = scene.prepare(2).map_err(|error| error.exit_status());
        assert_eq!(refused, Err(1), "{what}");
        assert_eq!(before, records(&scene.root()), "{what}");
        if what != "a path of the configuration" {
            assert_eq!(fs::read(scene.generations().join("2.json")).unwrap(), published);
        }
    }
}

// req: P-175
#[test]
fn an_inventory_that_is_empty_removes_no_receipt_and_no_store() {
    let base = base();
    let scene = Scenario::CollectMicrosandbox.arrange(base.path());
    let receipts = scene.root().join("state/node/receipts");
    crate::scene::make(&receipts);
    let receipt = receipts.join("22222222-2222-4222-8222-222222222222.json");
    crate::scene::write(&receipt, b"{}", oac_records::FileMode::Data);
    scene.outside().set_inventory("");
    scene.outside().set_sandboxes("[]");
    let stores = snapshot(&scene.base.join("m"));
    assert!(stores.len() > 2, "two stores with their owners: {stores:?}");
    scene.collect(2).expect("an inventory that proves absence");
    assert_eq!(scene.state(2), State::Dropped);
    assert_eq!(stores, snapshot(&scene.base.join("m")));
    assert!(receipt.exists());
}
