//! Every case catches a plausible mistake: a fake with one defect passes none of the cases that guard against it.

use std::{collections::BTreeSet, time::Duration};

use oac_provider::{
    NativeWork, conformance,
    fake::{Defect, FakeWorld},
    suite,
};

/// The names of the cases `id` begins.
fn name(id: &str) -> &'static str {
    let prefix = format!("{}_", id.to_lowercase());
    let case = conformance::cases().find(|case| case.name.starts_with(&prefix));
    case.unwrap_or_else(|| panic!("there is no case {id}")).name
}

/// Whether the case passes with this defect. One that makes it wait for what never comes does not.
fn passes(case: &'static str, work: NativeWork, defect: Defect) -> bool {
    let (done, outcome) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async { suite::check(case, &FakeWorld::new(work, Some(defect))).await });
        done.send(()).unwrap();
    });
    outcome.recv_timeout(Duration::from_secs(30)).is_ok()
}

#[test]
fn each_defect_is_caught_by_the_cases_that_guard_against_it() {
    let mut missed = Vec::new();
    for (defect, work, cases) in Defect::ALL {
        for id in *cases {
            if passes(name(id), *work, *defect) {
                missed.push(format!("{id} passes with {defect:?}"));
            }
        }
    }
    assert_eq!(missed, [""; 0]);
}

#[test]
fn every_case_has_a_defect_that_it_catches() {
    let caught: BTreeSet<_> = Defect::ALL
        .iter()
        .flat_map(|(_, _, cases)| cases.iter().map(|id| name(id)))
        .collect();
    let all: BTreeSet<_> = conformance::cases().map(|case| case.name).collect();
    let toothless: Vec<_> = all.difference(&caught).collect();
    assert!(toothless.is_empty(), "{toothless:?}");
}
