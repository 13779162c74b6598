//! Whose turn it is: among children, among probes, and between both.

use super::*;

#[test]
fn collections_that_go_on_and_on_leave_every_second_turn_to_a_preparation_that_is_due() {
    let mut node = Node::with([1, 2, 3, 4].map(published).to_vec());
    node.connect();
    node.deploy(9, Some(1));
    let mut order = Vec::new();
    for n in [2, 3, 4] {
        node.grant(n);
    }
    for _ in 0..5 {
        node.plan();
        let Some((generation, errand)) = node.child else {
            break;
        };
        order.push((generation.get(), errand));
        match errand {
            Errand::Collect => {
                let n = generation.get();
                node.end(Ended::Failed, Some(files(n, State::Collecting, Files::Stalled)));
            }
            Errand::Prepare => node.end(Ended::TransferFailed, None),
        }
    }
    let expected = [
        (2, Errand::Collect),
        (9, Errand::Prepare),
        // Its next attempt is not due.
        (3, Errand::Collect),
        (4, Errand::Collect),
    ];
    assert_eq!(order, expected);
}

#[test]
fn one_probe_at_a_time_of_a_generation_and_none_while_a_child_works_on_it() {
    let mut node = Node::with(vec![published(1)]);
    node.connect();
    node.deploy(1, Some(1));
    node.ask();
    assert_eq!(node.probes.len(), 1);
    for _ in 0..8 {
        node.now += SECOND;
        node.ask();
    }
    assert_eq!(node.probes.len(), 1, "it has not ended");
    node.settle(|_| NO_IMAGE);
    for _ in 0..8 {
        assert!(node.second(|_| READY).is_empty());
    }
    assert_eq!(node.prepares(), Some(1));
}

#[test]
fn target_and_serving_have_every_fourth_turn_each_and_one_that_is_ready_rests_for_ten_seconds() {
    let mut node = Node::with([1, 2, 3, 4].map(published).to_vec());
    node.connect();
    node.deploy(4, Some(1));
    let unsupported = |_| Probed::Failed(DiagnosticCode::HostUnsupported);
    let turns: Vec<i64> = (0..8).flat_map(|_| node.second(unsupported)).collect();
    assert_eq!(turns, [1, 4, 2, 1, 3, 4, 4, 1]);
    assert_eq!(node.child, None, "no repair helps there");
    let mut node = Node::with([1, 2].map(published).to_vec());
    node.connect();
    node.deploy(2, Some(1));
    let mut last = BTreeMap::new();
    for second in 0..60 {
        for n in node.second(|_| READY) {
            if let Some(before) = last.insert(n, second) {
                assert!(
                    (10..=13).contains(&(second - before)),
                    "{n} after {}",
                    second - before
                );
            }
        }
    }
    assert_eq!(last.len(), 2);
}

// inv: INV-N42
#[test]
fn a_published_generation_without_a_provider_has_failed_and_is_loaded_again_as_the_backoff_allows() {
    let unavailable = Some(Reported::Failed(DiagnosticCode::ProviderUnavailable));
    let mut node = Node::of(vec![published(1)], |_| false);
    assert_eq!(node.standing(1), unavailable);
    node.connect();
    node.deploy(1, Some(1));
    for minutes in [1, 2, 5] {
        node.plan();
        assert_eq!(node.prepares(), Some(1));
        node.end_with(Ended::Completed, Reloaded::Found(Box::new(published(1))), false);
        assert_eq!(node.standing(1), unavailable);
        node.now += minutes * MINUTE - SECOND;
        node.plan();
        assert_eq!(node.child, None);
        node.now += SECOND;
    }
    node.plan();
    node.end(Ended::Completed, Some(published(1)));
    assert_eq!(node.standing(1), Some(Reported::Preparing));
    while node.standing(1) != Some(Reported::Ready) {
        node.second(|_| READY);
    }
    for _ in 0..120 {
        node.second(|_| READY);
        assert_eq!(node.child, None);
    }
}
