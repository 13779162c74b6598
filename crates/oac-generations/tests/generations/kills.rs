//! Killed between any two steps, by a disk that fails from a step on.

use std::{cell::Cell, rc::Rc};

use oac_records::steps::{Step, Verdict, watched};

use crate::{base, proof, records, scenario::Scenario};

/// The steps of an undisturbed run.
fn steps(scenario: Scenario) -> Vec<Step> {
    let base = base();
    let scene = scenario.arrange(base.path());
    let seen = Rc::new(std::cell::RefCell::new(Vec::new()));
    let writer = seen.clone();
    let result = watched(
        move |step| {
            writer.borrow_mut().push(step.clone());
            Verdict::Go
        },
        || scenario.act(&scene),
    );
    result.unwrap_or_else(|error| panic!("{scenario:?}: {error:?}"));
    proof::finished(scenario, &scene);
    seen.take()
}

// req: P-164
// inv: INV-N4, INV-N18
#[test]
fn a_preparation_or_collection_stopped_at_any_step_is_sound_then_and_completes_when_repeated() {
    for scenario in Scenario::ALL {
        let steps = steps(scenario);
        assert!(steps.len() > 5, "{scenario:?}: {}", steps.len());
        for (at, stopped) in steps.iter().enumerate() {
            let base = base();
            let scene = scenario.arrange(base.path());
            let left = Cell::new(at);
            let dies = move |_: &Step| match left.get() {
                0 => Verdict::Fail,
                n => {
                    left.set(n - 1);
                    Verdict::Go
                }
            };
            let result = watched(dies, || scenario.act(&scene));
            assert!(result.is_err(), "{scenario:?} step {at}: {stopped:?}");
            proof::sound(scenario, &scene);
            if proof::refused_as_bare(scenario, &scene) {
                continue;
            }
            let again = scenario.act(&scene);
            again.unwrap_or_else(|error| panic!("{scenario:?} after step {at} {stopped:?}: {error:?}"));
            proof::finished(scenario, &scene);
            let before = records(&scene.root());
            scenario.act(&scene).expect("done already");
            assert_eq!(before, records(&scene.root()), "{scenario:?} after step {at}");
        }
    }
}
