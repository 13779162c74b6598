//! A real process, killed at every step.

use std::{os::unix::process::ExitStatusExt, process::Command};

use crate::{RIG, base, proof, scenario::Scenario, turn};

// inv: INV-N4
#[test]
fn a_real_process_killed_at_any_step_leaves_what_the_next_one_completes() {
    let _turn = turn();
    for scenario in [
        Scenario::PrepareMicrosandbox,
        Scenario::Repair,
        Scenario::CollectMicrosandbox,
        Scenario::CollectEnrolled,
    ] {
        let mut killed = 0;
        for at in 0.. {
            let base = base();
            let scene = scenario.arrange(base.path());
            let status = Command::new(RIG)
                .args(["scenario", &scenario.name()])
                .arg(base.path())
                .arg(at.to_string())
                .status()
                .expect("the rig");
            proof::sound(scenario, &scene);
            if status.success() {
                proof::finished(scenario, &scene);
                break;
            }
            assert_eq!(status.signal(), Some(9), "{scenario:?} step {at}: {status}");
            killed += 1;
            if proof::refused_as_bare(scenario, &scene) {
                continue;
            }
            scenario
                .act(&scene)
                .unwrap_or_else(|error| panic!("{scenario:?} step {at}: {error:?}"));
            proof::finished(scenario, &scene);
        }
        assert!(killed > 20, "{scenario:?}: {killed}");
    }
}
