use oac_install::points;

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
pub fn rest(world: &World, before: std::collections::BTreeMap<std::path::PathBuf, String>) -> Vec<String> {
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
