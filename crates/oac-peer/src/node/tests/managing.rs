use oac_model::Digest;
use oac_wire::{Nullable, frames::Health};
use proptest::prelude::*;

use super::*;

const NOW: Moment = Moment(0);

fn ready(numbers: impl IntoIterator<Item = i64>) -> Vec<Local> {
    numbers.into_iter().map(|n| local(n, Standing::Ready)).collect()
}

// req: P-021, P-031, P-083, P-084, P-085
#[test]
fn hello_says_that_the_node_manages_and_how_each_generation_stands_and_nothing_of_one_provider() {
    let unavailable = DiagnosticCode::ArtifactsUnavailable;
    let mut node = fresh(NOW).managing([
        local(1, Standing::Ready),
        local(2, Standing::Preparing),
        local(3, Standing::Failed(unavailable)),
        local(4, Standing::Removing),
        local(5, Standing::Stalled),
        local(6, Standing::Dropped),
    ]);
    node.apply(Event::Tick, NOW);
    // What was measured of "the" provider says nothing here.
    let hello = greet(&mut node, NOW);
    assert_eq!(hello.generation_management, Some(true));
    assert_eq!(
        (hello.health.provider_ready, hello.health.diagnostic),
        (false, None)
    );
    let statuses: Vec<_> = hello
        .health
        .generations
        .unwrap()
        .into_iter()
        .map(|s| (s.generation.get(), s.specification_digest, s.state, s.diagnostic))
        .collect();
    assert_eq!(
        statuses,
        [
            (1, digest(1), GenerationState::Ready, None),
            (2, digest(2), GenerationState::Preparing, None),
            (3, digest(3), GenerationState::Failed, Some(unavailable.into())),
        ],
        "what is being removed, or was, leaves health"
    );
}

// req: P-083, P-086, P-087
#[test]
fn eight_generations_are_reported_target_and_serving_first_and_the_others_in_turn() {
    let mut node = managing(&ready(1..=20), deployment(20, Some(3)), NOW);
    let reports: Vec<_> = (1..=4)
        .map(|n| report(&mut node, Moment(n * HEARTBEAT_MILLIS)).0)
        .collect();
    assert!(
        reports.iter().all(|r| r.len() == 8 && r[..2] == [20, 3]),
        "{reports:?}"
    );
    // The hello before the first delivery named eight in their order.
    assert_eq!(reports[0], [20, 3, 9, 10, 11, 12, 13, 14]);
    assert_eq!(reports[1], [20, 3, 15, 16, 17, 18, 19, 1]);
    assert_eq!(reports[2], [20, 3, 2, 4, 5, 6, 7, 8]);
    assert_eq!(reports[3], reports[0], "three reports name all of them once");
}

// req: P-086
#[test]
fn target_and_serving_that_are_one_are_named_once_and_those_not_held_are_not_named() {
    let mut node = managing(&ready([1, 4]), deployment(4, Some(4)), NOW);
    assert_eq!(report(&mut node, Moment(HEARTBEAT_MILLIS)).0, [4, 1]);
    let mut node = managing(&ready([1]), deployment(4, None), NOW);
    assert_eq!(report(&mut node, Moment(HEARTBEAT_MILLIS)).0, [1]);
}

// req: P-081
#[test]
fn a_delivery_is_adopted_once_ignored_when_older_and_told_again_by_each_connection() {
    let mut node = managing(&ready([1]), deployment(2, Some(1)), NOW);
    let ack = |node: &mut Node, d| acknowledge(node, Some(d), NOW);
    assert_eq!(ack(&mut node, deployment(2, Some(1))), [], "nothing new");
    assert_eq!(
        ack(&mut node, deployment(3, Some(1))),
        [Action::Deployment(deployment(3, Some(1)))]
    );
    assert_eq!(ack(&mut node, deployment(2, Some(1))), [], "an older target");
    assert_eq!(node.deployment(), Some(deployment(3, Some(1))));
    // The pin alone moved.
    assert_eq!(
        ack(&mut node, deployment(3, Some(3))),
        [Action::Deployment(deployment(3, Some(3)))]
    );
    // An older object is ignored whole, also where it would contradict.
    let contradicting = Deployment {
        specification_digest: digest(9),
        ..deployment(1, None)
    };
    assert_eq!(ack(&mut node, contradicting), []);
    assert_eq!(node.deployment(), Some(deployment(3, Some(3))));
    // What one connection delivered outlives it; the next one says it again.
    node.apply(Event::Lost, NOW);
    assert_eq!(node.deployment(), Some(deployment(3, Some(3))));
    let now = node.next_wakeup().unwrap();
    node.apply(Event::Tick, now);
    greet(&mut node, now);
    let older = welcome_with(connection(1), epoch(1), Some(deployment(2, Some(1))));
    assert_eq!(
        node.apply(Event::Message(older.as_bytes()), now),
        [Action::Accepted(connection(1), epoch(1))],
        "an older target prepares nothing"
    );
    let again = ack_with(connection(1), epoch(1), Some(deployment(3, Some(3))));
    assert_eq!(
        node.apply(Event::Message(again.as_bytes()), now),
        [Action::Deployment(deployment(3, Some(3)))]
    );
}

// req: P-026
// inv: INV-P6
#[test]
fn a_higher_epoch_is_durable_before_the_deployment_is_judged() {
    let mut node = managing_greeting(&ready([1]), NOW);
    let conflicting = Deployment {
        specification_digest: digest(9),
        ..deployment(1, None)
    };
    let text = welcome_with(connection(0), epoch(4), Some(conflicting));
    assert_eq!(
        node.apply(Event::Message(text.as_bytes()), NOW),
        [Action::StoreEpoch(epoch(4))]
    );
    assert_eq!(
        node.apply(Event::EpochStored(true), NOW),
        [
            Action::Close(Reason::Violation(Violation::DeploymentDigest)),
            Action::Refresh
        ]
    );
}

// req: P-089, P-090, P-092
// inv: INV-P31
#[test]
fn the_execution_class_that_was_measured_is_reported_whatever_becomes_of_generations() {
    let class = Digest::of("kernel and processor");
    let mut node = managing(&ready([1]), deployment(1, Some(1)), NOW);
    let unready = Standing::Failed(DiagnosticCode::RuntimeImageUnavailable);
    let tables = [
        ready([1]),
        vec![local(1, Standing::Ready), local(2, Standing::Preparing)],
        vec![local(1, Standing::Ready), local(2, unready)],
        ready([1, 2]),
        vec![local(1, Standing::Removing), local(2, Standing::Ready)],
        vec![local(1, Standing::Dropped), local(2, Standing::Ready)],
        vec![local(2, unready)],
    ];
    let told = [
        deployment(1, Some(1)),
        deployment(2, Some(1)),
        deployment(2, Some(1)),
        // Promoted.
        deployment(2, Some(2)),
        deployment(2, Some(2)),
        deployment(2, Some(2)),
        deployment(2, Some(2)),
    ];
    for (n, (table, told)) in (1u64..).zip(tables.into_iter().zip(told)) {
        let now = Moment(n * HEARTBEAT_MILLIS);
        node.apply(Event::Generations(table), now);
        acknowledge(&mut node, Some(told), now);
        let actions = node.apply(Event::Tick, now);
        let [Action::Measure(attempt)] = actions[..] else {
            panic!("{actions:?}");
        };
        let measured = Health {
            execution_class: Nullable(Some(class)),
            ..health(false)
        };
        let frames = sent(&node.apply(Event::Measured(attempt, Box::new(measured)), now));
        let Some(NodeFrame::Heartbeat(heartbeat)) = frames.first() else {
            panic!("{frames:?}");
        };
        assert_eq!(heartbeat.health.execution_class.0, Some(class), "{told:?}");
    }
}

// inv: INV-P16
#[test]
fn retention_asks_for_all_but_target_serving_and_what_is_going_eight_at_a_time_in_turn() {
    let mut held = ready(1..=14);
    held.extend([
        local(15, Standing::Preparing),
        local(16, Standing::Removing),
        local(17, Standing::Stalled),
        local(18, Standing::Dropped),
    ]);
    let mut node = managing(&held, deployment(14, Some(2)), NOW);
    let beat_at = |n: u64| Moment(n * HEARTBEAT_MILLIS);
    let (_, control) = report(&mut node, beat_at(1));
    let control = control.unwrap();
    assert_eq!((control.sequence, control.connection_id), (1, connection(0)));
    assert_eq!(control.owner_epoch, epoch(1));
    assert_eq!(control.references, [1, 3, 4, 5, 6, 7, 8, 9].map(asked));
    // One exchange is pending: the next heartbeat asks nothing.
    assert_eq!(report(&mut node, beat_at(2)).1, None);
    let all_kept = retention_ack(&control, |_| true, deployment(14, Some(2)));
    assert_eq!(answer(&mut node, all_kept, beat_at(2)), []);
    let (_, next) = report(&mut node, beat_at(3));
    let next = next.unwrap();
    assert_eq!(next.sequence, 2);
    assert_ne!(next.id, control.id);
    assert_eq!(next.references, [10, 11, 12, 13, 15, 17, 1, 3].map(asked));
    // A disconnect discards it; the next connection asks the same again, from 1 on.
    node.apply(Event::Lost, beat_at(3));
    assert_eq!(node.asked(), []);
    let now = node.next_wakeup().unwrap();
    node.apply(Event::Tick, now);
    greet(&mut node, now);
    let text = welcome_with(connection(1), epoch(1), Some(deployment(14, Some(2))));
    node.apply(Event::Message(text.as_bytes()), now);
    let (_, again) = report(&mut node, now.plus_millis(HEARTBEAT_MILLIS));
    let again = again.unwrap();
    assert_eq!((again.sequence, again.connection_id), (1, connection(1)));
    assert_eq!(again.references, next.references);
}

#[test]
fn with_nothing_to_ask_no_frame_is_sent() {
    let mut node = managing(&ready([1, 2]), deployment(2, Some(1)), NOW);
    let (_, control) = report(&mut node, Moment(HEARTBEAT_MILLIS));
    assert_eq!(control, None);
}

// req: P-095
#[test]
fn a_drop_is_granted_only_for_what_was_not_kept_and_is_neither_target_nor_serving_nor_going() {
    let mut node = managing(&ready([1, 5, 6, 7, 8, 9]), deployment(9, Some(1)), NOW);
    let now = Moment(HEARTBEAT_MILLIS);
    let (_, control) = report(&mut node, now);
    let control = control.unwrap();
    assert_eq!(control.references, [5, 6, 7, 8].map(asked));
    // Meanwhile 6 is being removed already and 7 was made anew with other content.
    let mut changed = ready([1, 5, 8, 9]);
    changed.push(local(6, Standing::Removing));
    changed.push(Local {
        specification_digest: digest(99),
        ..local(7, Standing::Ready)
    });
    node.apply(Event::Generations(changed), now);
    // The answer's deployment counts first: 8 serves now.
    let told = deployment(9, Some(8));
    let actions = answer(&mut node, retention_ack(&control, |_| false, told), now);
    assert_eq!(
        actions,
        [
            Action::Deployment(told),
            Action::Granted(connection(0), vec![asked(5)])
        ]
    );
}

fn on_generation(sequence: i64, on: i64, lane: u64, arguments: Arguments) -> String {
    let mut request = request(connection(0), sequence, LONG, reference(lane), arguments);
    request.deployment_generation = on;
    request.body.as_mut().unwrap().deployment_generation = generation(on);
    text(request)
}

// req: P-053, P-063
// inv: INV-N20, INV-P11
#[test]
fn a_request_runs_on_its_own_generations_provider_or_is_unconfirmed() {
    let unready = Standing::Failed(DiagnosticCode::ProviderUnavailable);
    let mut held = ready([1]);
    held.extend([
        local(2, unready),
        local(3, Standing::Preparing),
        local(4, Standing::Removing),
    ]);
    let mut node = managing(&held, deployment(3, Some(1)), NOW);
    let create = |lane| create_arguments(reference(lane));
    let cases = [
        (1, create(1), true),
        (1, Arguments::Info, true),
        // A placeholder, or a provider whose probe fails, observes and cleans up; it creates nothing.
        (2, create(2), false),
        (2, Arguments::Kill, true),
        // A plan has no provider; what is being removed gives none; 9 was never heard of.
        (3, Arguments::Info, false),
        (4, Arguments::Info, false),
        (9, Arguments::Info, false),
    ];
    for (index, (on, arguments, runs)) in cases.into_iter().enumerate() {
        let lane = match &arguments {
            Arguments::Create(bootstrap) => bootstrap.reference,
            _ => reference(index as u64 + 10),
        };
        let lane = (0..20).find(|n| reference(*n) == lane).unwrap();
        let text = on_generation(index as i64 + 1, on, lane, arguments);
        let actions = node.apply(Event::Message(text.as_bytes()), NOW);
        let shown = format!("{index}: {actions:?}");
        if runs {
            let [job] = &jobs(actions)[..] else {
                panic!("{shown}")
            };
            assert_eq!(job.request.deployment_generation, generation(on), "{shown}");
            node.apply(Event::Ended(job.ticket), NOW);
        } else {
            let [response] = &responses(&actions)[..] else {
                panic!("{shown}")
            };
            assert_eq!(response.error_code.as_deref(), Some("unconfirmed"), "{shown}");
        }
    }
}

// inv: INV-P28
#[test]
fn a_value_out_of_bounds_is_invalid_before_the_generation_is_looked_for() {
    let mut node = managing(&ready([1]), deployment(1, Some(1)), NOW);
    for (sequence, on, code) in [(1, 9, "invalid"), (2, 9, "unconfirmed")] {
        let mut text = on_generation(sequence, on, 0, Arguments::Info);
        if code == "invalid" {
            text = text.replace(r#""operation":"info""#, r#""operation":"reboot""#);
        }
        let actions = node.apply(Event::Message(text.as_bytes()), NOW);
        assert_eq!(responses(&actions)[0].error_code.as_deref(), Some(code));
    }
    let zero = on_generation(3, 1, 0, Arguments::Info)
        .replace(r#""deployment_generation":1"#, r#""deployment_generation":0"#);
    let actions = node.apply(Event::Message(zero.as_bytes()), NOW);
    assert_eq!(responses(&actions)[0].error_code.as_deref(), Some("invalid"));
    let next = on_generation(4, 1, 0, Arguments::Info);
    assert_eq!(jobs(node.apply(Event::Message(next.as_bytes()), NOW)).len(), 1);
}

// req: P-096
#[test]
fn waiting_and_running_requests_target_and_serving_keep_their_generation() {
    let mut node = managing(&ready([1, 2, 3, 4]), deployment(4, Some(3)), NOW);
    let referenced = |node: &Node| [1, 2, 3, 4].map(|n| node.is_referenced(generation(n)));
    assert_eq!(referenced(&node), [false, false, true, true]);
    let first = on_generation(1, 1, 0, Arguments::Info);
    let running = jobs(node.apply(Event::Message(first.as_bytes()), NOW)).remove(0);
    let second = on_generation(2, 2, 0, Arguments::Info);
    node.apply(Event::Message(second.as_bytes()), NOW);
    assert_eq!(referenced(&node), [true, true, true, true]);
    // A disconnect lets go of what waits at once, and of what runs when its native work ends.
    node.apply(Event::Lost, NOW);
    assert_eq!(referenced(&node), [true, false, true, true]);
    let answer = crate::Outcome::failed(FailureCode::NotFound);
    node.apply(Event::Answered(running.ticket, answer), NOW);
    assert!(node.is_referenced(generation(1)), "the answer is not the end");
    node.apply(Event::Ended(running.ticket), NOW);
    assert_eq!(referenced(&node), [false, false, true, true]);
}

// inv: INV-N20, INV-P11
#[test]
fn what_was_queued_for_a_provider_that_is_gone_by_its_turn_is_unconfirmed() {
    let mut node = managing(&ready([1]), deployment(1, Some(1)), NOW);
    let first = on_generation(1, 1, 0, Arguments::Info);
    let running = jobs(node.apply(Event::Message(first.as_bytes()), NOW)).remove(0);
    let create = on_generation(2, 1, 0, create_arguments(reference(0)));
    let kill = on_generation(3, 1, 0, Arguments::Kill);
    node.apply(Event::Message(create.as_bytes()), NOW);
    node.apply(Event::Message(kill.as_bytes()), NOW);
    let unready = Standing::Failed(DiagnosticCode::ProviderUnavailable);
    node.apply(Event::Generations(vec![local(1, unready)]), NOW);
    let actions = node.apply(Event::Ended(running.ticket), NOW);
    let codes: Vec<_> = responses(&actions)
        .into_iter()
        .map(|r| (r.id, r.error_code))
        .collect();
    assert_eq!(
        codes[1..],
        [(request_id(2), Some("unconfirmed".into()))],
        "the create"
    );
    assert_eq!(jobs(actions).len(), 1, "the kill runs");
}

#[test]
fn what_was_measured_is_reported_as_it_is_whatever_the_generations_do() {
    let class = oac_model::Digest::of("kernel and processor");
    let mut node = managing(&ready([1, 2]), deployment(2, Some(1)), NOW);
    let changes = [
        ready([1, 2]),
        vec![local(2, Standing::Preparing)],
        vec![local(1, Standing::Removing), local(2, Standing::Ready)],
        Vec::new(),
    ];
    for (n, change) in (1..).zip(changes) {
        let now = Moment(n * HEARTBEAT_MILLIS);
        node.apply(Event::Generations(change), now);
        node.apply(Event::Bytes(now), now);
        let actions = node.apply(Event::Tick, now);
        let [Action::Measure(attempt)] = actions[..] else {
            panic!("{actions:?}");
        };
        let measured = Health {
            execution_class: oac_wire::Nullable(Some(class)),
            ..health(false)
        };
        let actions = node.apply(Event::Measured(attempt, Box::new(measured)), now);
        let Some(NodeFrame::Heartbeat(heartbeat)) = sent(&actions).into_iter().next() else {
            panic!("{actions:?}");
        };
        assert_eq!(heartbeat.health.execution_class.0, Some(class));
    }
}

proptest! {
    // req: P-086, P-087
    #[test]
    fn whatever_a_node_holds_its_reports_name_all_of_it_in_as_few_messages_as_eight_places_allow(
        held in 1i64..60,
        target in 1i64..60,
        serving in 1i64..60,
    ) {
        let serving = (serving <= target).then_some(serving);
        let mut node = managing(&ready(1..=held), deployment(target, serving), NOW);
        let first: std::collections::BTreeSet<_> =
            [Some(target), serving].into_iter().flatten().filter(|g| *g <= held).collect();
        let others = (held as usize) - first.len();
        let reports = others.div_ceil(8 - first.len()).max(1);
        let (mut named, mut asked_for) = (std::collections::BTreeSet::new(), Vec::new());
        for n in 1..=reports as u64 {
            let now = Moment(n * HEARTBEAT_MILLIS);
            let (report, control) = report(&mut node, now);
            prop_assert!(report.len() <= 8);
            prop_assert!(first.iter().all(|g| report[..first.len()].contains(g)), "{report:?}");
            named.extend(report);
            if let Some(control) = control {
                asked_for.extend(control.references.iter().map(|r| r.generation.get()));
                answer(&mut node, retention_ack(&control, |_| true, deployment(target, serving)), now);
            }
        }
        prop_assert_eq!(named.len(), held as usize, "starved: {:?}", named);
        // Eight are asked about at a time, target and serving never.
        let unasked: Vec<_> = (1..=held).filter(|g| *g != target && Some(*g) != serving).collect();
        let expected: Vec<_> = unasked.iter().cycle().take(asked_for.len()).copied().collect();
        if unasked.len() >= 8 {
            prop_assert_eq!(asked_for, expected);
        }
    }
}
