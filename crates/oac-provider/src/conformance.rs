//! The table of conformance cases (providers.md section 5), which of them a backend has to meet, and the report with which
//! it is registered. What the cases do is in `suite`; the table is here so that a program can refuse a backend whose
//! suite was not run.

use std::sync::Arc;

use oac_model::ProviderKind;
use oac_wire::shapes::Operation;

use crate::{Declarations, NativeWork, Provider, Support, declarations_of};

/// What a backend has to declare for a case to be about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    /// The operations on checkpoints.
    Checkpoints,
    Work(&'static [NativeWork]),
}

impl Needs {
    /// The declaration that makes the case not one of this backend.
    pub fn missing(self, declared: &Declarations) -> Option<String> {
        match self {
            Self::Nothing => None,
            Self::Checkpoints => match declared.support(Operation::Suspend) {
                Support::Supported => None,
                Support::Unsupported(reason) => Some(format!("suspend is unsupported: {reason}")),
            },
            Self::Work(works) => {
                let work = declared.native_work();
                (!works.contains(&work)).then(|| format!("native work is of the kind {work:?}"))
            }
        }
    }
}

/// One case of the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The claim, and the name of its test: it begins with `v01` to `v49`, or with `f` for faults at every native call.
    pub name: &'static str,
    pub needs: Needs,
}

/// Hands the cases of one group, name by name, to a macro. Each case is written here and nowhere else; the marks are those
/// of every test made from it.
#[macro_export]
#[doc(hidden)]
macro_rules! each_case {
    (every => $with:ident $($rest:tt)*) => { $crate::$with! { $($rest)* ;
        // inv: INV-V2
        v01_declarations_are_complete_and_those_registered
        // inv: INV-V1, INV-V14
        v02_unsupported_operations_are_refused_without_a_native_call
        // inv: INV-V3
        v03_create_then_info_is_running_and_settled
        // inv: INV-N29
        v04_a_second_create_is_refused_and_the_first_untouched
        // inv: INV-V3
        v06_a_resource_mismatch_is_invalid_with_a_settled_receipt
        // inv: INV-V3
        v07_a_rejected_native_create_settles_absent
        // inv: INV-V6
        v08_a_crash_between_receipt_and_effect_settles_nothing_by_itself
        // inv: INV-V3
        v09_a_crash_before_bootstrap_shows_the_resource_and_kill_cleans_it
        // inv: INV-V3
        v10_a_lost_create_response_is_adopted_by_info
        // inv: INV-V7, INV-N38
        v11_kill_on_nothing_settles_and_forbids_create
        // inv: INV-V9
        v13_an_unconfirmed_removal_writes_no_tombstone
        // inv: INV-V4
        v14_a_compute_removed_outside_is_lost
        // inv: INV-V5
        v16_a_failed_inventory_is_never_absence
        // inv: INV-V3, INV-V4
        v17_not_found_without_receipt_settles_nothing
        // inv: INV-V21
        v19_command_output_is_byte_exact
        // inv: INV-V21
        v20_excess_output_is_drained_and_flagged
        // inv: INV-V21
        v21_a_late_or_broken_command_is_unconfirmed
        v22_observe_has_units_and_bounds
        // inv: INV-V11
        v23_a_deadline_ends_the_wait_and_not_the_work
        // inv: INV-V18
        v34_the_link_credential_is_shown_nowhere
        // inv: INV-V19
        v35_network_access_is_enforced_or_refused
        // inv: INV-V3, INV-V5, INV-V6, INV-V7, INV-V9
        f1_a_fault_at_any_native_call_of_create_settles_nothing_that_is_not_so
        // inv: INV-V5, INV-V9
        f2_a_fault_at_any_native_call_of_kill_is_finished_by_the_next
        // inv: INV-V3, INV-V4, INV-V5
        f3_a_fault_at_any_native_call_of_info_is_never_absence
        // inv: INV-V21
        f4_a_fault_at_any_native_call_of_a_command_or_of_observe_changes_nothing_else
    }};
    (host => $with:ident $($rest:tt)*) => { $crate::$with! { $($rest)* ;
        // inv: INV-V8, INV-N30
        v12_kill_with_one_foreign_resource_removes_nothing
        // inv: INV-V8
        v05_a_name_held_by_foreign_labels_is_refused_and_kept
        // inv: INV-V4
        v15_an_ended_compute_is_lost_only_when_it_cannot_come_back
        // inv: INV-V22
        v33_a_probe_reports_exactly_the_first_failed_check
        // inv: INV-V4, INV-V25, INV-N40
        v37_on_another_host_nothing_is_done_and_nothing_lost
        // inv: INV-V27
        v41_live_compute_after_a_reboot_is_of_the_new_boot
    }};
    (engine => $with:ident $($rest:tt)*) => { $crate::$with! { $($rest)* ;
        // inv: INV-V11, INV-V31
        v43_a_late_engine_call_under_a_tombstone_is_swept
        // inv: INV-V4, INV-N28
        v49_nothing_is_lost_until_the_engine_answered_for_sixty_seconds
    }};
    (helper => $with:ident $($rest:tt)*) => { $crate::$with! { $($rest)* ;
        v36_a_helper_that_outlives_its_node_leaves_every_answer_unconfirmed
    }};
    (service => $with:ident $($rest:tt)*) => { $crate::$with! { $($rest)* ;
        v44_a_sandbox_first_seen_by_kill_is_recorded_before_anything_else
    }};
    // The invariants of checkpoints are marked here once a backend makes some: the fake alone proves the cases, not them.
    (checkpoints => $with:ident $($rest:tt)*) => { $crate::$with! { $($rest)* ;
        v18_a_suspended_compute_is_not_lost
        v24_suspend_captures_and_releases
        v25_a_failed_capture_leaves_the_source_which_thaws
        v26_a_crash_after_publishing_is_finished_by_reconcile_without_a_second_capture
        v27_reconcile_of_nothing_captured_reports_the_source_and_touches_nothing
        v28_resume_makes_the_next_generation_under_the_same_policy
        v29_a_repeated_resume_adopts_its_own_target_alone
        v30_a_corrupt_checkpoint_is_invalid_before_any_native_effect
        v31_delete_retained_removes_the_exact_identity_alone
        v32_kill_compute_of_an_old_generation_leaves_the_newer
        v38_a_suspend_past_its_deadline_is_answered_from_its_receipt
        v39_kill_compute_moves_only_the_receipt_that_names_its_compute
        v40_without_compute_a_restorable_checkpoint_decides_about_loss
        v42_without_the_recorded_store_marker_nothing_is_captured_restored_or_deleted
        v45_a_published_checkpoint_that_fails_verification_is_removed_only_on_proof
        v46_a_target_that_fails_a_check_is_failed_until_it_is_killed
        v47_another_target_is_restored_only_after_a_failed_verification
        v48_compute_settles_no_restore
        f5_a_fault_at_any_native_call_of_suspend_keeps_source_or_checkpoint
        f6_a_fault_at_any_native_call_of_resume_restores_at_most_once
    }};
}

/// Lists the names of one group.
#[macro_export]
#[doc(hidden)]
macro_rules! case_names {
    (; $($name:ident)*) => { &[$(stringify!($name)),*] };
}

const fn group<const N: usize>(needs: Needs, names: &[&'static str; N]) -> [Case; N] {
    let mut cases = [Case { name: "", needs }; N];
    let mut at = 0;
    while at < N {
        cases[at].name = names[at];
        at += 1;
    }
    cases
}

macro_rules! groups {
    ($($group:ident needs $needs:expr;)*) => {
        /// Every case, group by group.
        pub const CASES: &[&[Case]] = &[$(
            &group($needs, $crate::each_case! { $group => case_names })
        ),*];
    };
}

groups! {
    every needs Needs::Nothing;
    // On the node's own host, where resources have names.
    host needs Needs::Work(&[NativeWork::Engine, NativeWork::Helper]);
    engine needs Needs::Work(&[NativeWork::Engine]);
    helper needs Needs::Work(&[NativeWork::Helper]);
    service needs Needs::Work(&[NativeWork::Service]);
    checkpoints needs Needs::Checkpoints;
}

/// Every case of the table.
pub fn cases() -> impl Iterator<Item = Case> {
    CASES.iter().flat_map(|group| group.iter().copied())
}

/// What a backend registers with, line by line: the whole table, each case as one that passes in each of `runs`, or as not
/// about it with the declaration that makes it so.
pub fn report(declared: &Declarations, runs: &[&str]) -> String {
    let line = |case: Case| match case.needs.missing(declared) {
        Some(declaration) => format!("{}: not applicable, {declaration}\n", case.name),
        None => format!("{}: passes {}\n", case.name, runs.join(", ")),
    };
    cases().map(line).collect()
}

/// Why a backend is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    #[error("the declarations of {} are not complete", .0.as_str())]
    Declarations(ProviderKind),
    #[error("{} has no run of the conformance case {case}", kind.as_str())]
    NotRun { kind: ProviderKind, case: &'static str },
    #[error("the conformance report of {} names {line:?}, which is no case of the suite", kind.as_str())]
    Unknown { kind: ProviderKind, line: String },
    #[error("the backend does not declare what {} is registered with", .0.as_str())]
    Undeclared(ProviderKind),
}

/// A backend that may be loaded: its declarations are complete, and the whole suite as it stands was run on it.
#[derive(Debug, Clone, Copy)]
pub struct Registered {
    kind: ProviderKind,
    declarations: &'static Declarations,
}

impl Registered {
    /// `conformance` is the backend's [`report`], which a test of its crate holds to what the suite runs there.
    pub fn new(kind: ProviderKind, conformance: &str) -> Result<Self, RegistrationError> {
        let declarations = declarations_of(kind).ok_or(RegistrationError::Declarations(kind))?;
        let mut lines = conformance.lines();
        for case in cases() {
            let rest = lines.next().and_then(|line| line.strip_prefix(case.name));
            let met = match (rest, case.needs.missing(declarations)) {
                (Some(rest), Some(declaration)) => rest == format!(": not applicable, {declaration}"),
                (Some(rest), None) => rest
                    .strip_prefix(": passes ")
                    .is_some_and(|runs| !runs.is_empty()),
                (None, _) => false,
            };
            if !met {
                return Err(RegistrationError::NotRun {
                    kind,
                    case: case.name,
                });
            }
        }
        match lines.next() {
            Some(line) => Err(RegistrationError::Unknown {
                kind,
                line: line.to_owned(),
            }),
            None => Ok(Self { kind, declarations }),
        }
    }

    pub fn kind(&self) -> ProviderKind {
        self.kind
    }

    pub fn declarations(&self) -> &'static Declarations {
        self.declarations
    }

    /// Takes a backend of this kind, if it declares what it is registered with: what Core refuses before it looks up a
    /// node is what the node's backend refuses (P-072).
    pub fn admit(&self, provider: Arc<dyn Provider>) -> Result<Arc<dyn Provider>, RegistrationError> {
        match provider.declarations() == self.declarations {
            true => Ok(provider),
            false => Err(RegistrationError::Undeclared(self.kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn docker(change: impl Fn(String) -> String) -> Result<Registered, RegistrationError> {
        let declared = declarations_of(ProviderKind::Docker).unwrap();
        Registered::new(ProviderKind::Docker, &change(report(declared, &["scripted"])))
    }

    #[test]
    fn the_table_holds_v01_to_v49_once_each_and_the_faults() {
        let ids: Vec<_> = cases().map(|case| case.name.split('_').next().unwrap()).collect();
        let named: BTreeSet<_> = ids.iter().copied().collect();
        assert_eq!(named.len(), ids.len(), "{ids:?}");
        for n in 1..=49 {
            assert!(named.contains(format!("v{n:02}").as_str()), "V{n:02}");
        }
        assert!(ids.iter().all(|id| id.starts_with('v') || id.starts_with('f')));
    }

    // req: P-071
    // inv: INV-V2
    #[test]
    fn a_backend_is_taken_only_with_a_report_of_the_whole_suite() {
        assert_eq!(docker(|whole| whole).unwrap().kind(), ProviderKind::Docker);
        let without = |n: usize| {
            docker(move |whole| {
                let lines = whole.lines().enumerate().filter(|(at, _)| *at != n);
                lines.map(|(_, line)| format!("{line}\n")).collect()
            })
        };
        for (n, case) in cases().enumerate() {
            let refused = without(n).unwrap_err();
            assert!(matches!(refused, RegistrationError::NotRun { case: named, .. } if named == case.name));
        }
        assert!(docker(|_| String::new()).is_err());
        assert!(
            docker(|whole| whole.replace(": passes scripted", ": passes ")).is_err(),
            "run nowhere"
        );
        let more = docker(|whole| whole + "v50_unheard_of: passes scripted\n");
        assert!(matches!(more, Err(RegistrationError::Unknown { .. })));
        // What is about it is not excused, and what is not is not claimed.
        let excused = "v03_create_then_info_is_running_and_settled: not applicable, no time";
        let claim = "v03_create_then_info_is_running_and_settled: passes scripted";
        assert!(docker(|whole| whole.replace(claim, excused)).is_err());
        let e2b = declarations_of(ProviderKind::E2b).unwrap();
        assert!(Registered::new(ProviderKind::Docker, &report(e2b, &["scripted"])).is_err());
    }
}
