//! The conformance suite against the real engine.

use oac_provider::suite::{Outcome, run};

use crate::world::DockerWorld;

async fn proves(case: &str) {
    assert_eq!(run(case, &DockerWorld::real().await).await, Outcome::Proven);
}

// inv: INV-V2
#[tokio::test]
async fn v01_declarations_are_complete_and_well_formed() {
    proves("V01").await;
}

// inv: INV-V1, INV-V10, INV-V14
#[tokio::test]
async fn v02_unsupported_operations_are_refused_without_a_native_call() {
    proves("V02").await;
}

// inv: INV-V3
#[tokio::test]
async fn v03_create_then_info_is_running_and_settled() {
    proves("V03").await;
}

// inv: INV-N29
#[tokio::test]
async fn v04_a_second_create_is_refused_and_the_first_untouched() {
    proves("V04").await;
}

// inv: INV-V8
#[tokio::test]
async fn v05_a_name_held_by_foreign_labels_is_refused_and_kept() {
    proves("V05").await;
}

// inv: INV-V3
#[tokio::test]
async fn v06_a_resource_mismatch_is_invalid_with_a_settled_receipt() {
    proves("V06").await;
}

// inv: INV-V3
#[tokio::test]
async fn v07_a_rejected_native_create_settles_absent() {
    proves("V07").await;
}

// inv: INV-V6
#[tokio::test]
async fn v08_a_crash_between_receipt_and_effect_can_be_killed() {
    proves("V08").await;
}

// inv: INV-V3
#[tokio::test]
async fn v09_a_crash_before_bootstrap_shows_the_resource_and_kill_cleans_it() {
    proves("V09").await;
}

// inv: INV-V3
#[tokio::test]
async fn v10_a_lost_create_response_is_adopted_by_info() {
    proves("V10").await;
}

// inv: INV-V7, INV-N38
#[tokio::test]
async fn v11_kill_on_nothing_settles_and_forbids_create() {
    proves("V11").await;
}

// inv: INV-V8, INV-N30
#[tokio::test]
async fn v12_kill_with_one_foreign_resource_removes_nothing() {
    proves("V12").await;
}

// inv: INV-V9
#[tokio::test]
async fn v13_an_unconfirmed_removal_writes_no_tombstone() {
    proves("V13").await;
}

// inv: INV-V4
#[tokio::test]
async fn v14_a_compute_removed_outside_is_lost() {
    proves("V14").await;
}

// inv: INV-V4
#[tokio::test]
async fn v15_an_ended_compute_is_lost_only_after_a_reboot() {
    proves("V15").await;
}

// inv: INV-V5
#[tokio::test]
async fn v16_a_failed_inventory_is_never_absence() {
    proves("V16").await;
}

// inv: INV-V3, INV-V4
#[tokio::test]
async fn v17_not_found_without_receipt_settles_nothing() {
    proves("V17").await;
}

// inv: INV-V1
#[tokio::test]
async fn v18_suspension_is_refused() {
    let outcome = run("V18", &DockerWorld::real().await).await;
    assert_eq!(outcome, Outcome::Unsupported);
}

// inv: INV-V21
#[tokio::test]
async fn v19_command_output_is_byte_exact() {
    proves("V19").await;
}

// inv: INV-V21
#[tokio::test]
async fn v20_excess_output_is_drained_and_flagged() {
    proves("V20").await;
}

// inv: INV-V21
#[tokio::test]
async fn v21_a_late_or_broken_command_is_unconfirmed() {
    proves("V21").await;
}

#[tokio::test]
async fn v22_observe_has_units_and_bounds() {
    proves("V22").await;
}

// inv: INV-V11
#[tokio::test]
async fn v23_a_deadline_ends_the_wait_and_not_the_work() {
    proves("V23").await;
}

// inv: INV-V18
#[tokio::test]
async fn v34_the_link_credential_is_shown_nowhere() {
    proves("V34").await;
}

// inv: INV-V4, INV-V25, INV-N40
#[tokio::test]
async fn v37_on_another_host_nothing_is_done_and_nothing_lost() {
    proves("V37").await;
}

// inv: INV-V27
#[tokio::test]
async fn v41_live_compute_after_a_reboot_is_of_the_new_boot() {
    proves("V41").await;
}

// inv: INV-V11, INV-V31
#[tokio::test]
async fn v43_a_late_engine_call_under_a_tombstone_is_swept() {
    proves("V43").await;
}

// inv: INV-V4, INV-N28
#[tokio::test]
async fn v49_nothing_is_lost_until_the_engine_answered_for_sixty_seconds() {
    proves("V49").await;
}
