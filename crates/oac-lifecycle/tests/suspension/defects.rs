//! Each rule that keeps the invariants, broken once: a check must bite. These are the violations that the explicit-state
//! model was built to find; those that a switch of it lets in bear its name.

use crate::{
    scene::Defect,
    walk::{suspended_twice_then_ended, walk},
};

const SEEDS: u64 = 6_000;

fn is_found(defect: Defect, expected: &str, known: u64) {
    // The seed that found it last comes first.
    let found = std::iter::once(known).chain(1..=SEEDS).find(|seed| {
        let scene = walk(*seed, Some(defect));
        scene.violations.iter().any(|what| what.contains(expected))
    });
    assert!(
        found.is_some(),
        "{defect:?} went unnoticed in {SEEDS} walks: no {expected}"
    );
}

macro_rules! found {
    ($($(#[$doc:meta])* $test:ident: $defect:ident => $expected:literal at $known:literal),* $(,)?) => {
        $($(#[$doc])* #[test] fn $test() { is_found(Defect::$defect, $expected, $known); })*
    };
}

found! {
    a_return_to_suspended_without_a_confirmed_kill_is_found: ReturnsWithoutKill => "INV-C2" at 5758,
    a_checkpoint_marked_consumed_before_the_link_is_found: ConsumesBeforeTheLink => "INV-C" at 1,
    a_target_admitted_after_its_kill_was_sent_is_found: AdmitsWhatIsBeingKilled => "INV-C36" at 7,
    a_cleanup_that_does_not_wait_for_the_open_suspend_or_resume_is_found: CleansUpWithoutReconciling => "INV-C28" at 42,
    a_release_with_computes_left_elsewhere_is_found: ReleasesWithComputesLeft => "INV-C28" at 4022,
    a_restore_verified_by_compute_alone_is_found: ComputeVerifies => "INV-C34" at 14,
    a_lost_request_counted_as_a_failure_is_found: CountsEveryReturn => "INV-C41" at 129,
    a_node_that_works_beside_a_helper_of_its_former_self_is_found: NoLock => "INV-C" at 824,
    a_source_that_runs_on_after_its_suspension_is_found: SourceRunsOn => "INV-C2" at 1,
    /// `susg_ended_lost`: what is left of a source keeps its loss from being told.
    an_ended_source_without_a_checkpoint_that_is_never_lost_is_found: EndedIsNotLost => "INV-C30" at 395,
    /// `verr_rollback`: a suspend whose checkpoint fails its check neither goes on nor back.
    a_published_checkpoint_that_fails_its_check_and_stays_is_found: KeepsBadCheckpoint => "INV-C30" at 2156,
    /// `bad_definite`: a failed check says nothing of the operation that it belongs to.
    a_failed_check_that_settles_nothing_is_found: FailureSettlesNothing => "INV-C30" at 188,
    /// `rest_unsent`: a restore that no node heard of is waited for.
    a_restore_that_was_never_sent_and_is_waited_for_is_found: UnsentRestoreStays => "INV-C30" at 592,
    /// `abandon`: what is owed at a node that is away holds up what is to be done elsewhere.
    a_core_that_waits_for_former_nodes_is_found: WaitsForTheAway => "INV-C30" at 325,
    a_receipt_that_stays_restoring_after_a_refused_resume_is_found: RestoringSticks => "no kill_compute owed" at 66,
}

/// `killc_literal`: the kill of a source that was itself restored takes the receipt from the compute that runs, and with it
/// the proof that this one is lost.
#[test]
fn a_kill_of_any_compute_that_leaves_the_receipt_suspended_is_found() {
    let scene = suspended_twice_then_ended(Some(Defect::KillSuspendsAny));
    let stuck = "INV-C30 it does not come to rest";
    assert!(scene.violations.contains(stuck), "{:?}", scene.violations);
}
