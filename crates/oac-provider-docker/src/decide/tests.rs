//! Every combination of what can be known, against the invariants and the table of `info`.

use oac_model::{AllocationId, Digest, EnvironmentId, Generation, InstallationId, ProjectId};
use serde_json::json;

use super::*;

fn reference() -> Reference {
    Reference {
        tenant_id: ProjectId::random(),
        environment_id: EnvironmentId::random(),
        allocation_id: AllocationId::random(),
    }
}

fn container(names: &Names, status: &str) -> Container {
    serde_json::from_value(json!({
        "Id": "c1", "Name": format!("/{}", names.container), "State": {"Status": status}, "Config": {},
    }))
    .unwrap()
}

/// The phases a Docker receipt takes, with bootstrap begun or not.
fn receipts(reference: Reference, boot: BootId) -> Vec<Option<Receipt>> {
    use PhaseEvent::*;
    let ways: [&[PhaseEvent]; 4] = [
        &[],
        &[CreateVerified],
        &[KillStarted],
        &[KillStarted, AbsenceConfirmed],
    ];
    let mut all = vec![None];
    for way in ways {
        for bootstrap_complete in [false, true] {
            let host = Some(Digest::of("host"));
            let first =
                Receipt::begin(CreateStarted, reference, Generation::FIRST, host, Some(boot)).unwrap();
            let mut receipt = way.iter().fold(first, |r, event| r.apply(*event).unwrap());
            receipt.bootstrap_complete = bootstrap_complete;
            all.push(Some(receipt));
        }
    }
    all
}

const STATUSES: [Option<&str>; 8] = [
    None,
    Some("created"),
    Some("running"),
    Some("paused"),
    Some("restarting"),
    Some("removing"),
    Some("exited"),
    Some("dead"),
];

struct Known<'a> {
    facts: Facts<'a>,
    status: Option<&'static str>,
    volumes: bool,
    same_boot: bool,
}

/// Calls `check` with every combination; returns how many there were.
fn for_all(mut check: impl FnMut(&Known<'_>, Decision)) -> usize {
    let reference = reference();
    let names = Names::of(InstallationId::random(), &reference);
    let (this, earlier) = (BootId::random(), BootId::random());
    let mut count = 0;
    for receipt_boot in [this, earlier] {
        for receipt in receipts(reference, receipt_boot) {
            for status in STATUSES {
                for bits in 0..16u8 {
                    let bit = |n: u8| bits & (1 << n) != 0;
                    let inventory = Inventory {
                        containers: status.iter().map(|s| container(&names, s)).collect(),
                        volumes: if bit(0) {
                            vec![names.home.clone()]
                        } else {
                            Vec::new()
                        },
                    };
                    let facts = Facts {
                        reference,
                        names: &names,
                        receipt: receipt.as_ref(),
                        inventory: &inventory,
                        same_host: bit(1),
                        boot: bit(2).then_some(this),
                        steady: bit(3),
                    };
                    let decision = facts.decide();
                    let known = Known {
                        facts,
                        status,
                        volumes: bit(0),
                        same_boot: bit(2) && receipt_boot == this,
                    };
                    check(&known, decision);
                    count += 1;
                }
            }
        }
    }
    count
}

fn phase(known: &Known<'_>) -> Option<Phase> {
    known.facts.receipt.map(Receipt::phase)
}

// inv: INV-V3
#[test]
fn create_is_settled_only_by_the_receipt_or_by_exactly_the_running_resource() {
    let count = for_all(|known, decision| {
        let Verdict::Known(info) = decision.verdict else {
            return;
        };
        if info.create_settled {
            let past_creating = matches!(phase(known), Some(Phase::Settled | Phase::Tombstone));
            let running = known.status == Some("running") && info.bootstrap_complete;
            assert!(past_creating || running, "{info:?}");
        }
        if phase(known) == Some(Phase::Tombstone) {
            assert!(
                known.status.is_none() && !known.volumes,
                "settled with something left: {info:?}"
            );
        }
        assert!(info.create_settled || !info.bootstrap_complete, "{info:?}");
        let absent = info.state == Info::ABSENT;
        assert_eq!(absent, info.provider_id.is_empty(), "{info:?}");
        assert!(!absent || info.create_settled, "{info:?}");
    });
    assert!(count > 2000);
}

// inv: INV-V4, INV-N28
#[test]
fn compute_is_lost_exactly_when_every_condition_holds() {
    let mut lost = 0;
    for_all(|known, decision| {
        let is_lost = matches!(&decision.verdict, Verdict::Known(info) if info.compute_lost);
        let settled = known
            .facts
            .receipt
            .is_some_and(|r| r.phase() == Phase::Settled && r.bootstrap_complete);
        let over = known.facts.boot.is_some() && !known.same_boot && known.facts.steady;
        let gone = match known.status {
            None => known.same_boot || over,
            Some("exited" | "dead") => over,
            Some(_) => false,
        };
        assert_eq!(
            is_lost,
            settled && known.facts.same_host && gone,
            "{:?}",
            decision.verdict
        );
        lost += usize::from(is_lost);
    });
    assert!(lost > 0);
}

// inv: INV-V27
#[test]
fn live_compute_on_its_host_is_answered_only_with_the_present_boot_stored() {
    for_all(|known, decision| {
        let live = matches!(known.status, Some(s) if s != "exited" && s != "dead");
        let Verdict::Known(_) = decision.verdict else {
            return;
        };
        let Some(before) = known.facts.receipt.filter(|_| live && known.facts.same_host) else {
            assert_eq!(decision.store, None, "nothing to store");
            return;
        };
        let after = decision.store.as_ref().unwrap_or(before);
        assert_eq!(after.boot_id.0, known.facts.boot);
        assert!(after.boot_id.0.is_some());
    });
}

#[test]
fn info_adopts_only_a_running_create_and_changes_no_other_phase() {
    for_all(|known, decision| {
        let (Some(before), Some(after)) = (known.facts.receipt, &decision.store) else {
            return;
        };
        let adopted = before.phase() == Phase::Creating && known.status == Some("running");
        let expected = if adopted { Phase::Settled } else { before.phase() };
        assert_eq!(after.phase(), expected);
        assert!(!adopted || after.bootstrap_complete);
    });
}

#[test]
fn two_containers_of_one_reference_are_no_answer() {
    let reference = reference();
    let names = Names::of(InstallationId::random(), &reference);
    let inventory = Inventory {
        containers: vec![container(&names, "running"), container(&names, "exited")],
        volumes: Vec::new(),
    };
    let decision = Facts {
        reference,
        names: &names,
        receipt: None,
        inventory: &inventory,
        same_host: true,
        boot: Some(BootId::random()),
        steady: true,
    }
    .decide();
    assert!(matches!(decision.verdict, Verdict::Unconfirmed(_)));
}
