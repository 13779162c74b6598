use std::sync::mpsc::sync_channel;

use oac_install::points;
use rustix::process::{Pid, Signal, kill_process};

use crate::world::{TOKEN, World};

// inv: INV-I10
#[test]
fn docker_a_run_that_is_killed_at_any_step_is_continued_by_the_same_command() {
    for point in points::ALL {
        let world = World::new();
        let before = world.host.picture();
        let ran = world.host.run_with(&world.command(), TOKEN, point, &[]);
        assert_eq!(ran.status, None, "{point}: {}\n{}", ran.out, ran.error);
        if ["1", "9", "14"].contains(&point) {
            assert_eq!(world.host.picture(), before, "{point}");
        }
        // Once Core knows the node no token is needed, and the used one is none.
        let token = if world.core.is_enrolled() { "used" } else { TOKEN };
        let again = world.host.run(&world.command(), token);
        assert_eq!(
            again.status,
            Some(0),
            "after {point}: {}\n{}",
            again.out,
            again.error
        );
        assert!(world.core.is_enrolled());
    }
}

// inv: INV-I10
#[test]
fn docker_an_uninstall_that_is_killed_at_any_step_is_continued_without_asking() {
    for point in points::UNINSTALL {
        let world = World::new();
        let before = world.host.picture();
        world.install().ready();
        world.core.forgets();
        let ran = world.host.run_with(&world.uninstall_command(&[]), "", point, &[]);
        assert_eq!(ran.status, None, "{point}: {}\n{}", ran.out, ran.error);
        // From the first deletion on nobody is asked.
        world.core.set(|state| state.instead = Some((500, String::new())));
        world.uninstall(&[]).ready();
        assert_eq!(rest(&world, before.clone()), [] as [String; 0], "after {point}");
    }
}

/// What differs from before, but what belongs to Core.
pub(crate) fn rest(
    world: &World,
    before: std::collections::BTreeMap<std::path::PathBuf, String>,
) -> Vec<String> {
    let is_host_s = |path: &std::path::Path| !path.starts_with("core") && !path.starts_with("db");
    let after = world.host.picture();
    let mut differs: Vec<String> = Vec::new();
    for path in before.keys().chain(after.keys()) {
        let same = before.get(path) == after.get(path);
        let text = path.display().to_string();
        if is_host_s(path) && !same && !differs.contains(&text) {
            differs.push(text);
        }
    }
    for base in ["passwd", "group"] {
        if world.host.read(&format!("db/{base}")).contains("oac-node") {
            differs.push(format!("db/{base}"));
        }
    }
    differs
}

/// A run whose download is held half way; sent `signal` then. Its status, once its part as oac-node is gone too.
fn stopped_by(world: &World, signal: Signal) -> std::process::Output {
    let (begun, has_begun) = sync_channel(8);
    let (gone, is_gone) = sync_channel(8);
    world.core.set(|state| state.holds = Some((begun, gone)));
    let run = world.host.start(&world.command(), TOKEN);
    has_begun.recv().unwrap();
    kill_process(Pid::from_child(&run), signal).unwrap();
    let output = run.wait_with_output().unwrap();
    // The one that held the connection, which is the part as oac-node.
    is_gone.recv().unwrap();
    world.core.set(|state| state.holds = None);
    output
}

// req: G-157
#[test]
fn docker_a_run_that_is_told_to_end_ends_with_its_part_as_oac_node_and_is_continued() {
    for (signal, status) in [(Signal::HUP, 129), (Signal::INT, 130), (Signal::TERM, 143)] {
        let world = World::new();
        let output = stopped_by(&world, signal);
        assert_eq!(output.status.code(), Some(status));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said, "Stopped: run the command again to continue.\n");
        world.install().ready();
    }
}

#[test]
fn docker_the_part_as_oac_node_ends_with_a_parent_that_is_killed() {
    let world = World::new();
    assert_eq!(stopped_by(&world, Signal::KILL).status.code(), None);
    world.install().ready();
}
