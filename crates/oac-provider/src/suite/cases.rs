//! The list of cases.

use std::{future::Future, pin::Pin};

use oac_wire::shapes::Operation;

use super::{Outcome, World, commands, lifecycle};

type Run = for<'a> fn(&'a dyn World) -> Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// One case of providers.md section 5.
pub struct Case {
    pub id: &'static str,
    /// Operations without which the case is one of refusal.
    pub needs: &'static [Operation],
    pub(super) run: Run,
}

macro_rules! cases {
    ($($id:literal [$($need:ident),*] $run:path;)*) => {
        /// Every case that a backend runs through this harness; probes (V33) and network access (V35) have checks of
        /// their own in each backend's tests.
        pub const CASES: &[Case] = &[$(
            Case { id: $id, needs: &[$(Operation::$need),*], run: |world| Box::pin($run(world)) },
        )*];
    };
}

cases! {
    "V01" [] lifecycle::declarations_are_well_formed;
    "V02" [] lifecycle::unsupported_makes_no_call;
    "V03" [Create, Info] lifecycle::create_then_info;
    "V04" [Create] lifecycle::create_twice;
    "V05" [Create, Info, Kill] lifecycle::name_held_by_a_foreigner;
    "V06" [Create, Info, Kill] lifecycle::resource_mismatch;
    "V07" [Create, Info] lifecycle::native_create_rejected;
    "V08" [Create, Info, Kill] lifecycle::crash_before_the_first_effect;
    "V09" [Create, Info, Kill] lifecycle::crash_before_bootstrap;
    "V10" [Create, Info] lifecycle::lost_create_response;
    "V11" [Create, Info, Kill] lifecycle::kill_on_nothing;
    "V12" [Create, Kill] lifecycle::kill_with_one_foreign_resource;
    "V13" [Create, Kill, Info] lifecycle::removal_not_confirmed;
    "V14" [Create, Info] lifecycle::removed_outside;
    "V15" [Create, Info, Kill] lifecycle::ended_compute;
    "V16" [Create, Info] lifecycle::inventory_failure;
    "V17" [Info] lifecycle::not_found_without_receipt;
    "V19" [Create, Command] commands::output_is_exact;
    "V20" [Create, Command] commands::excess_output_is_drained;
    "V21" [Create, Command] commands::late_or_broken_is_unconfirmed;
    "V22" [Create, Observe] commands::observe_has_units_and_bounds;
    "V23" [Create, Info] lifecycle::deadline_ends_the_wait_alone;
    "V34" [Create] lifecycle::secrets_stay_in_the_bootstrap;
    "V37" [Create, Info, Kill] lifecycle::another_host;
    "V41" [Create, Info] lifecycle::live_after_a_reboot;
    "V43" [Create, Info, Kill] lifecycle::late_call_under_a_tombstone;
    "V49" [Create, Info] lifecycle::reboot_without_sixty_seconds;
    "V18" [Suspend] lifecycle::needs_an_adapter_with_checkpoints;
    "V24" [Suspend] lifecycle::needs_an_adapter_with_checkpoints;
    "V25" [Suspend] lifecycle::needs_an_adapter_with_checkpoints;
    "V26" [Suspend] lifecycle::needs_an_adapter_with_checkpoints;
    "V27" [Suspend] lifecycle::needs_an_adapter_with_checkpoints;
    "V28" [Resume] lifecycle::needs_an_adapter_with_checkpoints;
    "V29" [Resume] lifecycle::needs_an_adapter_with_checkpoints;
    "V30" [Resume] lifecycle::needs_an_adapter_with_checkpoints;
    "V31" [DeleteRetained] lifecycle::needs_an_adapter_with_checkpoints;
    "V32" [KillCompute] lifecycle::needs_an_adapter_with_checkpoints;
}
