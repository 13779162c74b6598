//! What the explicit-state model of generations was built to find. Each mistake of its list is planted, one at a time,
//! and the suites that judge the program have to find it; they find nothing in the program as it is.
//!
//! A mistake in what is synced is planted in the disk that the judge follows: the sync was never made. Any other is one
//! of the node or of Core in the walk.

use std::path::Path;

use oac_records::steps::Step;

use crate::{
    base,
    power::{Found, judged_blind, recovery_believes},
    proof,
    scenario::Scenario,
    walk::found_by_a_walk,
};

/// Syncs that were never made, of a kind.
struct Unsynced {
    /// The model's switch, or what it checks.
    name: &'static str,
    is: fn(&Step) -> bool,
    scenario: Scenario,
    /// Only a successor of a killed process shows it.
    killed_before: bool,
}

fn below(path: &Path, folder: &str) -> bool {
    path.components().any(|part| part.as_os_str() == folder)
}

const UNSYNCED: [Unsynced; 5] = [
    Unsynced {
        name: "dlsync: payload files are fsynced before rename",
        is: |step| matches!(step, Step::SyncFile { path } if below(path, "releases")),
        scenario: Scenario::PrepareMicrosandbox,
        killed_before: false,
    },
    Unsynced {
        name: "rmsync: the removal of files is durable before the marker",
        is: |step| matches!(step, Step::SyncDirectory { path } if below(path, "releases")),
        scenario: Scenario::CollectMicrosandbox,
        killed_before: false,
    },
    Unsynced {
        name: "N7: the configuration is durable before its journal is removed",
        is: |step| matches!(step, Step::SyncDirectory { path } if below(path, "generations")),
        scenario: Scenario::PrepareDocker,
        killed_before: false,
    },
    Unsynced {
        name: "N13: each record of a collection is durable before what it stands for",
        is: |step| matches!(step, Step::SyncDirectory { path } if below(path, "generations")),
        scenario: Scenario::CollectDocker,
        killed_before: false,
    },
    Unsynced {
        name: "adopt: what a killed predecessor left is made durable before anything is decided",
        is: |step| matches!(step, Step::SyncDirectory { .. }),
        scenario: Scenario::PrepareMicrosandbox,
        killed_before: true,
    },
];

/// A mistake that a walk has to find, by the number it has in the model or by the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// mut=1: a preparer or collector does not see that a helper holds the lease.
    HelperIgnored,
    /// mut=2: Core answers as if there were no allocations.
    AllocationsIgnored,
    /// mut=4: an unfinished collection goes on without a fresh grant.
    ResumedWithoutGrant,
    /// mut=5: a lease is made anew.
    LeaseRecreated,
}

impl Mistake {
    pub(crate) const ALL: [Self; 4] = [
        Self::HelperIgnored,
        Self::AllocationsIgnored,
        Self::ResumedWithoutGrant,
        Self::LeaseRecreated,
    ];
}

// inv: INV-N7, INV-N13, INV-N44
#[test]
fn a_sync_that_is_left_out_is_found() {
    for mistake in &UNSYNCED {
        let found = if mistake.killed_before {
            (1..).find_map(|at| {
                let base = base();
                let scene = mistake.scenario.arrange(base.path());
                let judge = match judged_blind(mistake.scenario, &scene, None, at, |_| false) {
                    Found::Killed(judge) => judge,
                    Found::Done => return Some(false),
                    Found::Unjustified(deed) => {
                        panic!("{}: {deed}, before anything was planted", mistake.name)
                    }
                };
                if proof::refused_as_bare(mistake.scenario, &scene) {
                    return None;
                }
                // The successor's own first syncs are those of adoption: up to its first deed none is made.
                let successor = judged_blind(mistake.scenario, &scene, Some(judge), usize::MAX, mistake.is);
                matches!(successor, Found::Unjustified(_)).then_some(true)
            })
        } else {
            let base = base();
            let scene = mistake.scenario.arrange(base.path());
            let run = judged_blind(mistake.scenario, &scene, None, usize::MAX, mistake.is);
            Some(matches!(run, Found::Unjustified(_)))
        };
        assert_eq!(found, Some(true), "{}", mistake.name);
    }
}

// inv: INV-N44
#[test]
fn adoptstart_a_recovery_that_syncs_nothing_before_it_believes_is_found() {
    assert!(recovery_believes(|_| false).is_ok());
    let is = |step: &Step| matches!(step, Step::SyncDirectory { .. });
    assert!(recovery_believes(is).is_err());
}

// inv: INV-N9, INV-N12, INV-N15, INV-N16
#[test]
fn a_mistake_of_the_node_or_of_core_is_found() {
    for mistake in Mistake::ALL {
        assert!(found_by_a_walk(mistake), "{mistake:?}");
    }
}
