//! What the node says of itself to Prometheus.

use std::{collections::BTreeSet, time::Duration};

use oac_node::metrics::table;
use oac_provider::{Cause, Failure};
use oac_testkit::{scrape::Scrape, wait};
use oac_wire::{frames::Arguments, shapes::Operation};

use crate::{
    installation::connected,
    provider::{PRIVATE_TEXT, Reply},
    shapes::{command, create, output, reference, response, running},
};

async fn until(what: &str, holds: impl Fn() -> bool) {
    wait::until(what, Duration::from_secs(40), async || holds().then_some(()))
        .await
        .unwrap();
}

// inv: INV-N35
#[tokio::test]
async fn operations_are_counted_by_what_core_was_told_and_no_text_of_the_provider_is_repeated() {
    let (_core, installation, mut calls, node, mut link) = connected().await;
    let here = reference(0);
    let scrape = || Scrape(node.metrics.text());
    let connected = || Scrape(node.metrics.text()).value("oac_node_connected", &[]);
    until("the welcome was read", || connected() == Some(1.0)).await;
    let rows = [
        (create(here), Reply::Info(running(here))),
        (command(None), Reply::Command(output(Vec::new()))),
        (
            command(None),
            Reply::Failed(Failure::CommandUnconfirmed(Cause::new(PRIVATE_TEXT)), None),
        ),
        (
            Arguments::Kill,
            Reply::Failed(Failure::Ownership(Cause::new(PRIVATE_TEXT)), None),
        ),
    ];
    for (arguments, reply) in rows {
        link.call(0, arguments).await;
        let called = calls.recv().await.unwrap();
        assert_eq!(scrape().value("oac_node_operations_running", &[]), Some(1.0));
        called.reply(reply);
        response(link.next().await);
    }
    let scrape = scrape();
    let ended = |operation: Operation, outcome: &str| {
        let labels = [("operation", operation.as_str()), ("outcome", outcome)];
        scrape.value("oac_node_operations_total", &labels)
    };
    assert_eq!(ended(Operation::Create, "ok"), Some(1.0));
    assert_eq!(ended(Operation::Command, "ok"), Some(1.0));
    assert_eq!(ended(Operation::Command, "command_unconfirmed"), Some(1.0));
    assert_eq!(ended(Operation::Kill, "ownership"), Some(1.0));
    let commands = [("operation", Operation::Command.as_str())];
    assert_eq!(
        scrape.value("oac_node_operation_seconds_count", &commands),
        Some(2.0)
    );
    assert_eq!(scrape.value("oac_node_operations_running", &[]), Some(0.0));
    assert!(!scrape.0.contains(PRIVATE_TEXT) && !scrape.0.contains("canary"));
    assert!(!scrape.0.contains(installation.stored().credential.expose()));
    assert!(!scrape.0.contains(&here.allocation_id.to_string()));

    let rows = table();
    let listed: BTreeSet<String> = rows
        .iter()
        .flat_map(|row| row.series())
        .map(|(name, _)| name)
        .collect();
    for sample in scrape.samples() {
        assert!(listed.contains(&sample.name), "{sample:?}");
    }
    drop(link);
    until("the end was noticed", || connected() == Some(0.0)).await;
    node.stop().await.unwrap();
}

#[test]
fn the_guide_lists_every_metric_of_a_node_with_its_kind_labels_and_meaning() {
    let guide = include_str!("../../../../docs/observe.md");
    let listed: Vec<&str> = guide
        .lines()
        .filter(|line| line.starts_with("| `oac_node_"))
        .collect();
    let expected: Vec<String> = table().iter().map(oac_testkit::scrape::guide_row).collect();
    assert_eq!(listed, expected, "the guide's table is:\n{}", expected.join("\n"));
}
