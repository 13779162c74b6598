//! What each case of the table does.

use std::{future::Future, pin::Pin};

use super::{World, checkpoints, commands, faults, lifecycle, outcomes, restores};

pub(super) type Run = for<'a> fn(&'a dyn World) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

macro_rules! runs {
    ($($name:ident = $run:path,)*) => {
        pub(super) const RUNS: &[(&str, Run)] = &[$((stringify!($name), |world| Box::pin($run(world)))),*];
    };
}

runs! {
    v01_declarations_are_complete_and_those_registered = lifecycle::declarations_are_well_formed,
    v02_unsupported_operations_are_refused_without_a_native_call = lifecycle::unsupported_makes_no_call,
    v03_create_then_info_is_running_and_settled = lifecycle::create_then_info,
    v04_a_second_create_is_refused_and_the_first_untouched = lifecycle::create_twice,
    v06_a_resource_mismatch_is_invalid_with_a_settled_receipt = lifecycle::resource_mismatch,
    v07_a_rejected_native_create_settles_absent = lifecycle::native_create_rejected,
    v08_a_crash_between_receipt_and_effect_settles_nothing_by_itself = lifecycle::crash_before_the_first_effect,
    v09_a_crash_before_bootstrap_shows_the_resource_and_kill_cleans_it = lifecycle::crash_before_bootstrap,
    v10_a_lost_create_response_is_adopted_by_info = lifecycle::lost_create_response,
    v11_kill_on_nothing_settles_and_forbids_create = lifecycle::kill_on_nothing,
    v13_an_unconfirmed_removal_writes_no_tombstone = lifecycle::removal_not_confirmed,
    v14_a_compute_removed_outside_is_lost = lifecycle::removed_outside,
    v16_a_failed_inventory_is_never_absence = lifecycle::inventory_failure,
    v17_not_found_without_receipt_settles_nothing = lifecycle::not_found_without_receipt,
    v19_command_output_is_byte_exact = commands::output_is_exact,
    v20_excess_output_is_drained_and_flagged = commands::excess_output_is_drained,
    v21_a_late_or_broken_command_is_unconfirmed = commands::late_or_broken_is_unconfirmed,
    v22_observe_has_units_and_bounds = commands::observe_has_units_and_bounds,
    v23_a_deadline_ends_the_wait_and_not_the_work = lifecycle::deadline_ends_the_wait_alone,
    v34_the_link_credential_is_shown_nowhere = outcomes::secrets_stay_in_the_bootstrap,
    v35_network_access_is_enforced_or_refused = outcomes::network_access,
    f1_a_fault_at_any_native_call_of_create_settles_nothing_that_is_not_so = faults::create,
    f2_a_fault_at_any_native_call_of_kill_is_finished_by_the_next = faults::kill,
    f3_a_fault_at_any_native_call_of_info_is_never_absence = faults::info,
    f4_a_fault_at_any_native_call_of_a_command_or_of_observe_changes_nothing_else = faults::command_and_observe,
    v12_kill_with_one_foreign_resource_removes_nothing = lifecycle::kill_with_one_foreign_resource,
    v05_a_name_held_by_foreign_labels_is_refused_and_kept = lifecycle::name_held_by_a_foreigner,
    v15_an_ended_compute_is_lost_only_when_it_cannot_come_back = outcomes::ended_compute,
    v33_a_probe_reports_exactly_the_first_failed_check = outcomes::probe,
    v37_on_another_host_nothing_is_done_and_nothing_lost = outcomes::another_host,
    v41_live_compute_after_a_reboot_is_of_the_new_boot = outcomes::live_after_a_reboot,
    v43_a_late_engine_call_under_a_tombstone_is_swept = outcomes::late_call_under_a_tombstone,
    v49_nothing_is_lost_until_the_engine_answered_for_sixty_seconds = outcomes::reboot_without_sixty_seconds,
    v36_a_helper_that_outlives_its_node_leaves_every_answer_unconfirmed = outcomes::late_helper,
    v44_a_sandbox_first_seen_by_kill_is_recorded_before_anything_else = outcomes::first_seen_by_kill,
    v18_a_suspended_compute_is_not_lost = checkpoints::suspended_is_not_lost,
    v24_suspend_captures_and_releases = checkpoints::suspend,
    v25_a_failed_capture_leaves_the_source_which_thaws = checkpoints::capture_fails,
    v26_a_crash_after_publishing_is_finished_by_reconcile_without_a_second_capture = checkpoints::crash_after_publish,
    v27_reconcile_of_nothing_captured_reports_the_source_and_touches_nothing = checkpoints::nothing_captured,
    v28_resume_makes_the_next_generation_under_the_same_policy = restores::resume,
    v29_a_repeated_resume_adopts_its_own_target_alone = restores::repeated,
    v30_a_corrupt_checkpoint_is_invalid_before_any_native_effect = restores::corrupt,
    v31_delete_retained_removes_the_exact_identity_alone = checkpoints::delete_retained,
    v32_kill_compute_of_an_old_generation_leaves_the_newer = restores::kill_the_old,
    v38_a_suspend_past_its_deadline_is_answered_from_its_receipt = checkpoints::outlasts_its_deadline,
    v39_kill_compute_moves_only_the_receipt_that_names_its_compute = restores::kill_compute_and_receipts,
    v40_without_compute_a_restorable_checkpoint_decides_about_loss = restores::loss_without_compute,
    v42_without_the_recorded_store_marker_nothing_is_captured_restored_or_deleted = checkpoints::marker,
    v45_a_published_checkpoint_that_fails_verification_is_removed_only_on_proof = checkpoints::verification_fails,
    v46_a_target_that_fails_a_check_is_failed_until_it_is_killed = restores::failed_target,
    v47_another_target_is_restored_only_after_a_failed_verification = restores::another_target,
    v48_compute_settles_no_restore = restores::compute_settles_nothing,
    f5_a_fault_at_any_native_call_of_suspend_keeps_source_or_checkpoint = faults::suspend,
    f6_a_fault_at_any_native_call_of_resume_restores_at_most_once = faults::resume,
}

/// Makes the tests of a backend from the table: `conformance! { mod scripted: [every, host, engine], expr }`. The groups
/// have to be those that the declarations imply, which one of the tests checks. `expr` is evaluated in each test and gives
/// its [`World`].
#[macro_export]
macro_rules! conformance {
    (mod $module:ident: [$($group:ident),*], $world:expr) => {
        mod $module {
            #[allow(unused_imports, reason = "what the expression needs")]
            use super::*;

            $($crate::each_case! { $group => case_tests { $world } })*

            #[tokio::test]
            async fn the_cases_are_those_that_the_declarations_imply() {
                let made: Vec<&[&str]> = vec![$($crate::each_case! { $group => case_names }),*];
                let world = $world;
                $crate::suite::covers(&made.concat(), &$crate::suite::World::declared(&world));
            }
        }
    };
}

#[macro_export]
#[doc(hidden)]
macro_rules! case_tests {
    ({ $world:expr } ; $($name:ident)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let world = $world;
            $crate::suite::check(stringify!($name), &world).await;
        }
    )*};
}
