//! `place` and `recheck` against core.md section 7.

use std::collections::BTreeMap;

use oac_lifecycle::placement::{
    Answer, Deployment, Mode, Node, Recheck, Request, TargetStatus, place, recheck,
};
use oac_model::{Generation, NodeId, Time};

const URL: &str = "http://core.example:8080";

fn generation(n: i64) -> Generation {
    Generation::try_from(n).unwrap()
}

fn id(n: u8) -> NodeId {
    format!("00000000-0000-4000-8000-0000000000{n:02x}")
        .parse()
        .unwrap()
}

fn deployment() -> Deployment {
    Deployment {
        reset_in_progress: false,
        specification_valid: true,
        installation_matches: true,
        mode: Mode::Nodes,
        target: Some(generation(2)),
        public_url: Some(URL.to_owned()),
    }
}

/// A node that qualifies, with room for two more.
fn node(n: u8) -> Node {
    Node {
        id: id(n),
        created_at: Time::from_millis(1_000).unwrap(),
        online: true,
        provider_ready: true,
        pin: Some(generation(2)),
        core_url: URL.to_owned(),
        cordoned: false,
        draining: false,
        labels: BTreeMap::new(),
        active: 0,
        retained: 0,
        max_active: 2,
        max_retained: 2,
        target_status: Some(TargetStatus::Ready),
        checkpoint_store: None,
        execution_class: None,
    }
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn chosen(nodes: &[Node]) -> Answer {
    place(&Request::default(), &deployment(), nodes)
}

fn on(n: u8, pin: i64) -> Answer {
    Answer::Node {
        id: id(n),
        pin: generation(pin),
    }
}

// inv: INV-C9
#[test]
fn the_order_is_highest_pin_fewest_active_earliest_created_lowest_id_whatever_order_nodes_come_in() {
    let older = Node {
        pin: Some(generation(1)),
        ..node(1)
    };
    let busy = Node {
        active: 1,
        retained: 1,
        ..node(2)
    };
    let late = Node {
        created_at: Time::from_millis(2_000).unwrap(),
        ..node(3)
    };
    let best = node(4);
    let higher_id = node(5);
    let ranked = [best, higher_id, late, busy, older];
    for first in 0..ranked.len() {
        let rest = &ranked[first..];
        let expected = Answer::Node {
            id: rest[0].id,
            pin: rest[0].pin.unwrap(),
        };
        for rotation in 0..rest.len() {
            let mut shuffled = rest.to_vec();
            shuffled.rotate_left(rotation);
            assert_eq!(chosen(&shuffled), expected);
            shuffled.reverse();
            assert_eq!(chosen(&shuffled), expected);
        }
    }
}

// req: G-172, G-173
#[test]
fn nodes_on_the_new_configuration_come_first_and_older_ones_take_what_does_not_fit() {
    let new = node(2);
    let old = Node {
        pin: Some(generation(1)),
        ..node(1)
    };
    assert_eq!(chosen(&[old.clone(), new.clone()]), on(2, 2));
    let full = Node {
        active: 2,
        retained: 2,
        ..new
    };
    assert_eq!(chosen(&[old, full]), on(1, 1));
}

// req: G-004
#[test]
fn a_node_that_fails_any_one_condition_receives_nothing_and_its_recheck_says_why() {
    let refused: [(Node, Recheck); 9] = [
        (
            Node {
                online: false,
                ..node(1)
            },
            Recheck::NotReady,
        ),
        (
            Node {
                provider_ready: false,
                ..node(1)
            },
            Recheck::NotReady,
        ),
        (Node { pin: None, ..node(1) }, Recheck::PinMoved),
        (
            Node {
                core_url: "http://elsewhere".to_owned(),
                ..node(1)
            },
            Recheck::NotAdmitted,
        ),
        (
            Node {
                cordoned: true,
                ..node(1)
            },
            Recheck::NotAdmitted,
        ),
        (
            Node {
                draining: true,
                ..node(1)
            },
            Recheck::NotAdmitted,
        ),
        (Node { active: 2, ..node(1) }, Recheck::Full),
        (
            Node {
                retained: 2,
                ..node(1)
            },
            Recheck::Full,
        ),
        (
            Node {
                max_active: 0,
                ..node(1)
            },
            Recheck::Full,
        ),
    ];
    for (node, why) in refused {
        assert_eq!(
            chosen(std::slice::from_ref(&node)),
            Answer::Unavailable,
            "{node:?}"
        );
        assert_eq!(
            recheck(&Request::default(), URL, generation(2), &node),
            Err(why),
            "{node:?}"
        );
    }
    assert_eq!(recheck(&Request::default(), URL, generation(2), &node(1)), Ok(()));
    assert_eq!(
        recheck(&Request::default(), URL, generation(1), &node(1)),
        Err(Recheck::PinMoved)
    );
}

#[test]
fn every_required_label_must_be_equal() {
    let request = Request {
        required_labels: labels(&[("zone", "a"), ("disk", "fast")]),
    };
    for (have, fits) in [
        (labels(&[("zone", "a"), ("disk", "fast"), ("more", "x")]), true),
        (labels(&[("zone", "a")]), false),
        (labels(&[("zone", "a"), ("disk", "slow")]), false),
        (labels(&[]), false),
    ] {
        let node = Node {
            labels: have,
            ..node(1)
        };
        let answer = place(&request, &deployment(), [&node]);
        assert_eq!(answer, if fits { on(1, 2) } else { Answer::Unavailable });
        assert_eq!(recheck(&request, URL, generation(2), &node).is_ok(), fits);
    }
}

#[test]
fn room_under_preparation_is_told_from_no_room() {
    let preparing = Node {
        pin: None,
        provider_ready: false,
        target_status: Some(TargetStatus::Preparing),
        ..node(1)
    };
    assert_eq!(chosen(std::slice::from_ref(&preparing)), Answer::Preparing);
    assert_eq!(chosen(&[preparing.clone(), node(2)]), on(2, 2));
    for other in [
        Node {
            online: false,
            ..preparing.clone()
        },
        Node {
            core_url: "http://elsewhere".to_owned(),
            ..preparing.clone()
        },
        Node {
            cordoned: true,
            ..preparing.clone()
        },
        Node {
            active: 2,
            ..preparing.clone()
        },
        Node {
            target_status: Some(TargetStatus::Failed),
            ..preparing.clone()
        },
        Node {
            target_status: None,
            ..preparing.clone()
        },
    ] {
        assert_eq!(chosen(&[other]), Answer::Unavailable);
    }
    let request = Request {
        required_labels: labels(&[("zone", "a")]),
    };
    assert_eq!(place(&request, &deployment(), [&preparing]), Answer::Unavailable);
}

#[test]
fn admission_is_answered_in_order_reset_closed_unavailable() {
    let nodes = [node(1)];
    let answer = |deployment: &Deployment| place(&Request::default(), deployment, &nodes);
    let broken = Deployment {
        specification_valid: false,
        ..deployment()
    };
    assert_eq!(
        answer(&Deployment {
            reset_in_progress: true,
            ..broken.clone()
        }),
        Answer::Reset
    );
    assert_eq!(answer(&broken), Answer::Closed);
    assert_eq!(
        answer(&Deployment {
            installation_matches: false,
            ..deployment()
        }),
        Answer::Closed
    );
    assert_eq!(
        answer(&Deployment {
            mode: Mode::Unset,
            ..deployment()
        }),
        Answer::Unavailable
    );
    assert_eq!(
        answer(&Deployment {
            public_url: None,
            ..deployment()
        }),
        Answer::Unavailable
    );
}

// req: G-001
#[test]
fn with_a_direct_provider_no_node_is_ever_chosen() {
    let nodes = [node(1)];
    let direct = |address_usable, active, retained| Deployment {
        mode: Mode::Direct {
            address_usable,
            active,
            max_active: 2,
            retained,
            max_retained: 4,
        },
        ..deployment()
    };
    let answer = |deployment| place(&Request::default(), &deployment, &nodes);
    assert_eq!(answer(direct(true, 1, 3)), Answer::Direct);
    assert_eq!(answer(direct(false, 1, 3)), Answer::Unavailable);
    assert_eq!(answer(direct(true, 2, 3)), Answer::Unavailable);
    assert_eq!(answer(direct(true, 1, 4)), Answer::Unavailable);
}
