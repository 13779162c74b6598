//! What oac-core relies on, proven on SQLite and on PostgreSQL. Each claim is one generic function; [`suite!`] makes two
//! tests of it. A claim that is missing from the list is dead code, which the lints refuse.

mod allocations;
mod console;
mod faults;
mod file_operations;
mod generations;
mod in_play;
mod keys;
mod nodes;
mod operations;
mod output;
mod owner;
mod placing;
mod resets;
mod schema;
mod sessions;
mod still;
mod tokens;
mod turns;
mod world;

macro_rules! suite {
    ($($module:ident: $($name:ident),* ;)*) => {
        mod sqlite { $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $name() {
                crate::$module::$name(crate::world::World::sqlite().await).await;
            }
        )*)* }

        mod pg_ { $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $name() {
                crate::$module::$name(crate::world::World::postgres().await).await;
            }
        )*)* }
    };
}

suite! {
    schema:
        opening_twice_migrates_once_and_keeps_the_installation,
        two_processes_that_start_together_agree_on_one_installation,
        a_schema_from_a_newer_version_is_refused,
        every_member_of_a_row_comes_back_as_it_was_stored;
    owner:
        only_an_expired_lease_is_taken_and_each_holder_gets_the_next_epoch,
        a_transaction_of_an_older_epoch_changes_no_row,
        a_takeover_waits_for_the_open_transactions_of_the_owner,
        a_released_lease_is_free_at_once_and_renewal_of_a_lost_one_is_refused,
        locks_are_taken_in_one_order;
    generations:
        selections_get_numbers_that_never_repeat,
        a_placement_without_its_generations_row_is_refused,
        a_generation_is_kept_while_anything_unreleased_names_it;
    in_play:
        what_is_read_of_an_allocation_does_not_grow_with_what_it_went_through,
        a_deleted_checkpoint_loses_its_bytes_once_no_compute_is_named_with_them,
        a_discarded_compute_and_what_it_is_named_with_matter_until_its_kill_is_confirmed;
    keys:
        a_key_opens_until_it_is_revoked_or_its_project_is_deleted;
    console:
        a_console_session_opens_until_it_ends_or_its_key_is_revoked,
        a_console_session_ends_after_12_hours_without_use_and_after_7_days,
        of_many_console_sessions_of_a_key_the_least_used_end;
    tokens:
        a_token_enrolls_one_node_however_many_try,
        a_refused_enrollment_leaves_the_token_usable,
        an_expired_token_enrolls_nothing,
        only_an_unused_token_is_revoked;
    nodes:
        presence_belongs_to_one_connection_of_one_epoch,
        a_retired_node_authenticates_nowhere_and_reports_nothing,
        a_drain_is_stored_whole_keeps_an_earlier_cordon_and_leaves_it_when_it_ends,
        counts_follow_placements_and_phases,
        a_status_stands_only_under_the_connection_that_reported_it,
        reports_of_many_nodes_are_stored_together_and_each_as_if_alone;
    placing:
        fifty_callers_for_five_slots_place_exactly_five,
        an_environment_has_one_unreleased_placement_and_allocation,
        one_key_places_once_however_many_repeat_it;
    allocations:
        a_write_on_an_old_revision_changes_nothing,
        pages_of_a_state_name_each_allocation_once,
        a_link_may_stay_only_while_its_sandbox_starts_or_runs,
        observations_of_many_are_kept_together_and_each_as_if_alone;
    operations:
        an_allocation_has_at_most_one_open_operation,
        an_operation_only_moves_forward,
        a_new_owner_closes_what_earlier_ones_left_open;
    still:
        what_is_found_still_is_what_may_be_suspended_whatever_the_time;
    sessions:
        a_session_pages_newest_first_and_belongs_to_its_project,
        an_archived_session_never_changes,
        the_latest_ten_thousand_events_are_kept,
        an_idempotency_record_answers_for_a_day,
        sessions_without_a_placement_are_found;
    turns:
        an_input_and_its_turn_exist_together_or_not_at_all,
        a_terminal_turn_never_changes,
        one_turn_of_a_session_runs_at_a_time,
        unfinished_turns_are_found_in_order;
    resets:
        a_completed_reset_leaves_nothing_of_the_deployment_and_begins_the_next_epoch_and_generation,
        the_last_transaction_of_an_epoch_waits_for_the_others_of_it,
        a_reset_is_forced_or_canceled_only_while_it_stands,
        what_is_left_is_told_apart_and_adds_up,
        an_automatic_reset_reads_only_the_sessions_that_it_may_archive,
        the_sessions_of_a_reset_come_in_pages_without_archived_ones;
    file_operations:
        an_open_file_operation_is_found_until_it_ends_and_none_outlives_its_owner;
    faults:
        a_caller_dropped_at_any_point_leaves_its_connection_as_new;
    output:
        output_is_a_gapless_prefix_in_the_order_appended,
        a_reader_finds_the_record_that_holds_its_offset,
        old_output_is_pruned_with_its_turn_kept;
}
