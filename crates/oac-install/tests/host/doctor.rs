use std::fs;

use serde_json::Value;

use crate::world::World;

fn doctor(world: &World, more: &[&str]) -> (Option<i32>, Vec<Value>) {
    let words: Vec<String> = ["--doctor", "--json"]
        .iter()
        .chain(more)
        .map(|word| (*word).to_owned())
        .collect();
    let ran = world.host.run(&words, "");
    let lines = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}\n{}", ran.out, ran.error));
    (ran.status, lines)
}

fn failing(lines: &[Value]) -> Vec<&str> {
    lines
        .iter()
        .filter(|line| line["result"] == "fail")
        .map(|line| line["check"].as_str().unwrap())
        .collect()
}

// inv: INV-I25
#[test]
fn docker_doctor_lists_every_failing_check_in_one_run_and_changes_nothing() {
    let world = World::new();
    world.install().ready();
    let before = world.host.picture();
    let (status, lines) = doctor(&world, &[]);
    assert_eq!((status, failing(&lines)), (Some(0), vec![]), "{lines:?}");
    assert_eq!(world.host.picture(), before);
    // Many at once.
    world.host.write("sys/fs/selinux/enforce", "1");
    fs::remove_dir(world.host.path("run/systemd/system")).unwrap();
    fs::remove_file(world.host.path("state/active")).unwrap();
    fs::remove_file(world.host.path(&world.inner("runtime/seccomp.json"))).unwrap();
    fs::remove_file(
        world
            .host
            .path(&world.inner("state/node/generations/1.lease-identity")),
    )
    .unwrap();
    world.core.set(|state| state.instead = Some((502, String::new())));
    let before = world.host.picture();
    let (status, lines) = doctor(&world, &[]);
    assert_eq!(status, Some(1));
    assert_eq!(
        failing(&lines),
        ["platform", "platform", "service", "files", "leases", "core"],
        "{lines:?}"
    );
    assert_eq!(world.host.picture(), before);
    let text = world.host.run(&["--doctor".to_owned()], "");
    assert!(
        text.out
            .contains("platform: FAIL This host is not run by systemd.\n"),
        "{}",
        text.out
    );
    assert!(text.out.contains("account: ok\n"), "{}", text.out);
}

#[test]
fn docker_doctor_before_an_installation_says_what_it_cannot_know_yet() {
    let mut world = World::new();
    let before = world.host.picture();
    let (_, lines) = doctor(&world, &["--provider", "docker"]);
    let result = |lines: &[Value], check: &str| {
        let found = lines.iter().find(|line| line["check"] == check);
        found.unwrap_or_else(|| panic!("{check}: {lines:?}"))["result"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    for (check, expected) in [
        ("platform", "ok"),
        ("account", "ok"),
        ("backend", "ok"),
        ("records", "skip"),
        ("service", "skip"),
        ("room", "skip"),
    ] {
        assert_eq!(result(&lines, check), expected, "{check}");
    }
    let (status, lines) = doctor(&world, &["--provider", "microsandbox"]);
    assert_eq!((status, result(&lines, "backend")), (Some(1), "fail".to_owned()));
    world.host.socket = world.host.path("none.sock");
    let (status, lines) = doctor(&world, &[]);
    assert_eq!((status, result(&lines, "backend")), (Some(1), "fail".to_owned()));
    assert_eq!(world.host.picture(), before);
}
