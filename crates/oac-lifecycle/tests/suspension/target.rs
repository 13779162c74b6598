//! Where a checkpoint is restored.

use std::collections::{BTreeMap, BTreeSet};

use oac_lifecycle::{
    placement::{Deployment, Mode, Node, Request},
    suspension::{
        pressure::{place_with_room, restore_with_room},
        target::{Candidate, Needs, choose, takes},
    },
};
use oac_model::{Digest, Generation, StoreId, Time};

use crate::scene::node as id;

pub const URL: &str = "https://core.example";

fn store() -> StoreId {
    "00000000-0000-4000-8000-00000000aaaa".parse().unwrap()
}

pub fn node(n: usize) -> Node {
    Node {
        id: id(n),
        created_at: Time::from_millis(1_000 + i64::try_from(n).unwrap()).unwrap(),
        online: true,
        provider_ready: true,
        pin: Some(Generation::FIRST),
        core_url: URL.to_owned(),
        cordoned: false,
        draining: false,
        labels: BTreeMap::new(),
        active: 0,
        retained: 0,
        max_active: 2,
        max_retained: 4,
        target_status: None,
        checkpoint_store: Some(store()),
        execution_class: Some(Digest::of("class")),
    }
}

pub fn needs() -> Needs {
    Needs {
        store: store(),
        class: Digest::of("class"),
        home: id(1),
        haunted: BTreeSet::new(),
        failed: BTreeSet::new(),
        labels: BTreeMap::new(),
    }
}

fn candidate(node: &Node) -> Candidate<'_> {
    Candidate {
        node,
        ready: true,
        drained: false,
    }
}

// inv: INV-C10, INV-C24
#[test]
fn each_thing_alone_keeps_a_node_from_a_restore_and_at_home_only_what_it_cannot_do() {
    type Change = (&'static str, fn(&mut Node), bool);
    let changes: [Change; 10] = [
        ("offline", |n| n.online = false, true),
        (
            "another store",
            |n| n.checkpoint_store = Some(StoreId::random()),
            true,
        ),
        ("no store", |n| n.checkpoint_store = None, true),
        (
            "another class",
            |n| n.execution_class = Some(Digest::of("other")),
            true,
        ),
        ("active full", |n| n.active = n.max_active, true),
        ("retained full", |n| n.retained = n.max_retained, false),
        ("cordoned", |n| n.cordoned = true, false),
        ("draining", |n| n.draining = true, false),
        (
            "another address",
            |n| n.core_url = "https://old.example".to_owned(),
            false,
        ),
        ("not serving", |n| n.pin = None, false),
    ];
    for (what, change, at_home) in changes {
        for n in [1, 2] {
            let mut changed = node(n);
            change(&mut changed);
            let refused = !takes(&needs(), Some(URL), &candidate(&changed));
            // What it serves otherwise is nothing to a restore, which names its own generation.
            let expected = if n == 1 { at_home } else { what != "not serving" };
            assert_eq!(refused, expected, "{what} at {n}");
        }
    }
    let plain = node(2);
    let unready = Candidate {
        ready: false,
        ..candidate(&plain)
    };
    assert!(!takes(&needs(), Some(URL), &unready));
    assert!(!takes(&needs(), None, &candidate(&plain)));
    let home = node(1);
    let drained = Candidate {
        drained: true,
        ..candidate(&home)
    };
    assert!(
        !takes(&needs(), Some(URL), &drained),
        "past the deadline of its drain"
    );
    let labelled = Needs {
        labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
        ..needs()
    };
    assert!(takes(&labelled, Some(URL), &candidate(&home)));
    assert!(!takes(&labelled, Some(URL), &candidate(&plain)));
}

#[test]
fn home_comes_first_then_the_placement_order_and_last_who_failed_it_and_never_who_may_still_hold_a_target() {
    let mut nodes: Vec<Node> = (1..5).map(node).collect();
    nodes[1].active = 1;
    let choice = |needs: &Needs, nodes: &[Node]| {
        let forward = choose(needs, Some(URL), nodes.iter().map(candidate));
        let backward = choose(needs, Some(URL), nodes.iter().rev().map(candidate));
        assert_eq!(forward, backward);
        forward
    };
    assert_eq!(choice(&needs(), &nodes), Some(id(1)));
    let failed = Needs {
        failed: BTreeSet::from([id(1)]),
        ..needs()
    };
    assert_eq!(choice(&failed, &nodes), Some(id(3)), "2 has more to do");
    let haunted = Needs {
        haunted: BTreeSet::from([id(1), id(3), id(4)]),
        failed: BTreeSet::from([id(2)]),
        ..needs()
    };
    assert_eq!(
        choice(&haunted, &nodes),
        Some(id(2)),
        "better one that failed it than none"
    );
    nodes.truncate(1);
    assert_eq!(choice(&haunted, &nodes), None);
}

fn deployment() -> Deployment {
    Deployment {
        reset_in_progress: false,
        specification_valid: true,
        installation_matches: true,
        mode: Mode::Nodes,
        target: Some(Generation::FIRST),
        public_url: Some(URL.to_owned()),
    }
}

fn full(n: usize) -> Node {
    Node {
        active: 2,
        retained: 2,
        ..node(n)
    }
}

#[test]
fn room_is_made_on_the_node_that_placement_would_choose_with_a_slot_more_and_nowhere_else() {
    let room = |nodes: &[Node], without: &[usize]| {
        let without = without.iter().map(|n| id(*n)).collect();
        place_with_room(&Request::default(), &deployment(), nodes, &without)
    };
    let nodes = [full(2), full(1)];
    assert_eq!(room(&nodes, &[]), Some(id(1)));
    assert_eq!(room(&nodes, &[1]), Some(id(2)), "nothing is idle on the first");
    assert_eq!(room(&nodes, &[1, 2]), None);
    // A slot more would not help where nothing is retained any more, or nothing may be placed.
    let hopeless = [
        Node {
            retained: 4,
            ..full(1)
        },
        Node {
            cordoned: true,
            ..full(2)
        },
    ];
    assert_eq!(room(&hopeless, &[]), None);
    assert_eq!(room(&[node(1)], &[]), None, "it is not for want of room");
    assert_eq!(room(&[full(1), node(2)], &[]), None, "it fits as it is");
    assert_eq!(room(&[full(1), node(2)], &[2]), None);
    let over = Node { active: 3, ..full(1) };
    assert_eq!(room(&[over], &[]), None, "one slot more is none");
}

#[test]
fn room_for_a_checkpoint_is_made_at_home_first_and_only_where_it_could_be_restored() {
    let room = |needs: &Needs, nodes: &[Node]| {
        let candidates = nodes.iter().map(|node| Candidate {
            node,
            ready: true,
            drained: false,
        });
        restore_with_room(needs, Some(URL), candidates, &BTreeSet::new())
    };
    let needs = needs();
    assert_eq!(room(&needs, &[full(2), full(1)]), Some(needs.home));
    assert_eq!(room(&needs, &[full(2), node(1)]), None, "it is restored as it is");
    let haunted = Needs {
        haunted: BTreeSet::from([id(1), id(2)]),
        ..needs
    };
    assert_eq!(room(&haunted, &[full(2), full(1)]), None);
}
