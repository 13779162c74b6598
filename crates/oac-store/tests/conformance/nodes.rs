use oac_model::{
    AllocationState, BootId, ComputePhase, ConnectionId, DiagnosticCode, Digest, NodeId, Secret, Time,
};
use oac_store::{
    AllocationDiagnostic, Claim, DrainIdle, DrainRetained, DrainThen, GenerationState, GenerationStatusRow,
    Holder, NewDrain, NodeCounts, NodeHealth, SlotCounts,
};

use crate::world::{LEASE, World, counts, heartbeat, hello, new_placement, new_session};

pub(crate) async fn presence_belongs_to_one_connection_of_one_epoch(world: World) {
    let generation = world.generation(2).await;
    let node = world.node(generation, 1, 1).await;
    let (old, new) = (ConnectionId::random(), ConnectionId::random());
    let health = NodeHealth {
        provider_ready: true,
        ..NodeHealth::default()
    };
    let tx = world.begin().await;
    assert!(!counts(&tx, heartbeat(node, old, &health)).await, "no hello yet");
    assert!(counts(&tx, hello(node, old, true, &health)).await);
    assert!(counts(&tx, heartbeat(node, old, &health)).await);
    assert!(counts(&tx, hello(node, new, true, &health)).await);
    // What the old connection still has to say, its goodbye included, is about nothing.
    assert!(!counts(&tx, heartbeat(node, old, &health)).await);
    assert_eq!(tx.clear_presence(&[(node, old)]).await.unwrap(), 0);
    assert!(counts(&tx, heartbeat(node, new, &health)).await);
    tx.commit().await.unwrap();

    let later = world.another_core(LEASE * 2).await;
    let next = later
        .acquire_ownership(Holder::random(), LEASE, Claim::WhenExpired)
        .await
        .unwrap()
        .unwrap();
    let tx = later.begin(&next).await.unwrap();
    assert!(
        !counts(&tx, heartbeat(node, new, &health)).await,
        "another epoch's connection"
    );
    let row = tx.node(node).await.unwrap().unwrap();
    assert!(!row.online(next.epoch, tx.now(), 45_000));
    assert_eq!(tx.clear_presence(&[(node, new)]).await.unwrap(), 1);
    tx.commit().await.unwrap();
    let row = later.single().node(node).await.unwrap().unwrap();
    assert_eq!((row.connection_id, row.connection_epoch), (None, None));
    assert!(row.last_seen_at.is_some());
}

pub(crate) async fn a_retired_node_authenticates_nowhere_and_reports_nothing(world: World) {
    let generation = world.generation(2).await;
    let (node, other) = (
        world.node(generation, 1, 1).await,
        world.node(generation, 1, 1).await,
    );
    let credential = Secret::new(format!("credential of {node}"));
    let read = world.store.single();
    assert!(read.authenticate_node(node, &credential).await.unwrap().is_some());
    assert!(read.node_by_credential(&credential).await.unwrap().is_some());
    assert_eq!(read.authenticate_node(other, &credential).await.unwrap(), None);
    let connection = ConnectionId::random();
    let tx = world.begin().await;
    let said = hello(node, connection, false, &NodeHealth::default());
    assert!(counts(&tx, said.clone()).await);
    assert!(tx.retire_node(node).await.unwrap());
    assert!(!tx.retire_node(node).await.unwrap());
    assert!(!counts(&tx, said).await);
    tx.commit().await.unwrap();
    assert_eq!(read.authenticate_node(node, &credential).await.unwrap(), None);
    assert_eq!(read.node_by_credential(&credential).await.unwrap(), None);
    let present: Vec<_> = read.nodes().await.unwrap().iter().map(|n| n.id).collect();
    assert_eq!(present, [other]);
    assert_eq!(
        read.enrolled_core_urls().await.unwrap(),
        ["http://core.example:8080"]
    );
}

pub(crate) async fn counts_follow_placements_and_phases(world: World) {
    let generation = world.generation(2).await;
    let node = world.node(generation, 10, 10).await;
    let empty = world.node(generation, 10, 10).await;
    let project = world.project().await;
    let phases = [
        (AllocationState::Reserved, ComputePhase::Disabled),
        (AllocationState::Creating, ComputePhase::Disabled),
        (AllocationState::Running, ComputePhase::Running),
        (AllocationState::Running, ComputePhase::Suspended),
        (AllocationState::CleanupPending, ComputePhase::Suspended),
        (AllocationState::CleanupPending, ComputePhase::Running),
    ];
    for (state, phase) in phases {
        let session = world.session(project).await;
        let mut allocation = world.allocation_on(node, generation, &session).await;
        let tx = world.begin().await;
        (allocation.state, allocation.compute_phase) = (state, phase);
        allocation.diagnostic =
            (state == AllocationState::CleanupPending).then_some(AllocationDiagnostic::NodeUnavailable);
        tx.save_allocation(&mut allocation).await.unwrap();
        tx.commit().await.unwrap();
    }
    let tx = world.begin().await;
    let pending = tx.insert_session(&new_session(project)).await.unwrap();
    let placement = new_placement(pending.environment_id, Some(node), generation);
    tx.insert_placement(&placement).await.unwrap();
    let gone = tx.insert_session(&new_session(project)).await.unwrap();
    let released = new_placement(gone.environment_id, Some(node), generation);
    tx.insert_placement(&released).await.unwrap();
    tx.release_placement(released.id).await.unwrap();
    let direct = tx.insert_session(&new_session(project)).await.unwrap();
    let unplaced = new_placement(direct.environment_id, None, generation);
    tx.insert_placement(&unplaced).await.unwrap();
    tx.commit().await.unwrap();

    let expected = NodeCounts {
        slots: SlotCounts {
            active: 5,
            retained: 7,
        },
        reserved: 3,
        running: 1,
        cleanup_pending: 2,
        issues: 2,
    };
    let read = world.store.read().await.unwrap();
    assert_eq!(read.node_counts(node).await.unwrap(), expected);
    assert_eq!(read.slot_counts(Some(node)).await.unwrap(), expected.slots);
    assert_eq!(read.slot_counts(None).await.unwrap().active, 1);
    let listed: Vec<_> = read
        .nodes_with_counts()
        .await
        .unwrap()
        .into_iter()
        .map(|(row, counts)| (row.id, counts))
        .collect();
    // In the order of their creation, which two nodes of one millisecond share.
    assert_eq!(listed.len(), 2);
    assert!(
        listed.contains(&(node, expected)) && listed.contains(&(empty, NodeCounts::default())),
        "{listed:?}"
    );
    let resources = read.resource_counts().await.unwrap();
    assert_eq!((resources.allocations, resources.pending), (6, 2));
    assert_eq!(resources.previous_generation, 0);
    let waiting: Vec<_> = read
        .placements_without_allocation(None, 32)
        .await
        .unwrap()
        .iter()
        .map(|p| p.id)
        .collect();
    let mut both = [placement.id, unplaced.id];
    both.sort();
    assert_eq!(waiting, both);
    assert_eq!(read.project_resources(project).await.unwrap(), (6, 2));
    drop(read);
    world.generation(3).await;
    let resources = world.store.single().resource_counts().await.unwrap();
    assert_eq!(resources.previous_generation, 8);
}

pub(crate) async fn a_status_stands_only_under_the_connection_that_reported_it(world: World) {
    let pin = world.generation(1).await;
    let other = world.generation(2).await;
    let target = world.generation(3).await;
    let node = world.node(pin, 1, 1).await;
    let (old, new) = (ConnectionId::random(), ConnectionId::random());
    let health = NodeHealth::default();
    let tx = world.begin().await;
    tx.set_serving_generation(node, pin).await.unwrap();
    assert!(counts(&tx, hello(node, old, true, &health)).await);
    for generation in [pin, other, target] {
        let status = GenerationStatusRow {
            node_id: node,
            generation,
            digest: Digest::of("specification"),
            state: GenerationState::Ready,
            diagnostic: None,
            connection_id: old,
            owner_epoch: world.owner.epoch,
        };
        tx.save_generation_statuses(&[status]).await.unwrap();
    }
    tx.delete_generation_status(node, other).await.unwrap();
    let standing = |rows: Vec<GenerationStatusRow>| {
        let mut generations: Vec<_> = rows.iter().map(|row| row.generation).collect();
        generations.sort();
        generations
    };
    let rows = tx.standing_generation_statuses(Some(target)).await.unwrap();
    assert_eq!(standing(rows), [pin, target]);
    let rows = tx.standing_generation_statuses(None).await.unwrap();
    assert_eq!(standing(rows), [pin]);
    assert_eq!(tx.statuses_of_generation(target).await.unwrap().len(), 1);
    assert!(counts(&tx, hello(node, new, true, &health)).await);
    let rows = tx.standing_generation_statuses(Some(target)).await.unwrap();
    assert_eq!(standing(rows), []);
    tx.commit().await.unwrap();
}

pub(crate) async fn reports_of_many_nodes_are_stored_together_and_each_as_if_alone(world: World) {
    let generation = world.generation(2).await;
    let mut nodes = Vec::new();
    for _ in 0..11 {
        nodes.push((world.node(generation, 10, 10).await, ConnectionId::random()));
    }
    let health = |n: usize| NodeHealth {
        provider_ready: n.is_multiple_of(2),
        diagnostic: (!n.is_multiple_of(2)).then_some(DiagnosticCode::HostUnsupported),
        observed_at: Time::from_millis(n as i64),
        active_operations: n as u32,
        cpu_utilization: Some(n as f64 / 16.0),
        total_memory_bytes: n.is_multiple_of(3).then_some(1 << 40),
        execution_class: Some(Digest::of(n.to_string())),
        boot_id: Some(BootId::random()),
        ..NodeHealth::default()
    };
    let ids: Vec<_> = nodes.iter().map(|(node, _)| *node).collect();

    let tx = world.begin().await;
    let before = tx.lock_nodes(&ids).await.unwrap();
    let mut sorted = ids.clone();
    sorted.sort();
    assert_eq!(before.iter().map(|row| row.id).collect::<Vec<_>>(), sorted);
    let hellos: Vec<_> = nodes
        .iter()
        .enumerate()
        .map(|(n, (node, connection))| hello(*node, *connection, n.is_multiple_of(2), &health(n)))
        .collect();
    assert_eq!(tx.record_reports(&hellos).await.unwrap(), 11);
    for said in &hellos {
        let before = before.iter().find(|row| row.id == said.node_id).unwrap();
        let after = tx.node(said.node_id).await.unwrap().unwrap();
        assert_eq!(after, said.applied_to(before, world.owner.epoch, tx.now()));
    }
    // One of another connection, one of a retired node and one never heard of: the others count.
    tx.retire_node(ids[1]).await.unwrap();
    let beats: Vec<_> = nodes
        .iter()
        .map(|(node, connection)| match *node == ids[0] {
            true => heartbeat(*node, ConnectionId::random(), &health(12)),
            false => heartbeat(*node, *connection, &health(12)),
        })
        .chain([heartbeat(NodeId::random(), ConnectionId::random(), &health(12))])
        .collect();
    assert_eq!(tx.record_reports(&beats).await.unwrap(), 9);
    for (n, id) in ids.iter().enumerate() {
        let row = tx.node(*id).await.unwrap().unwrap();
        assert_eq!(row.active_operations, Some(if n < 2 { n as u32 } else { 12 }));
        let managing = n.is_multiple_of(2);
        assert_eq!(row.generation_management, Some(managing), "a heartbeat leaves it");
    }

    let status = |node_id, connection_id, state| GenerationStatusRow {
        node_id,
        generation,
        digest: Digest::of("specification"),
        state,
        diagnostic: None,
        connection_id,
        owner_epoch: world.owner.epoch,
    };
    for state in [GenerationState::Preparing, GenerationState::Ready] {
        let all: Vec<_> = nodes.iter().map(|(n, c)| status(*n, *c, state)).collect();
        tx.save_generation_statuses(&all).await.unwrap();
    }
    tx.forget_generation_statuses(&ids[..3]).await.unwrap();
    let of = tx.generation_statuses_of(&ids).await.unwrap();
    assert_eq!(of.len(), 8);
    for (node, connection) in &nodes[3..] {
        assert_eq!(of[node], [status(*node, *connection, GenerationState::Ready)]);
    }
    let wrong = [(ids[5], ConnectionId::random())];
    assert_eq!(
        tx.clear_presence(&[&nodes[6..], &wrong].concat()).await.unwrap(),
        5
    );
    for (n, id) in ids.iter().enumerate().skip(2) {
        let row = tx.node(*id).await.unwrap().unwrap();
        assert_eq!(row.connection_id.is_some(), n < 6);
    }
    tx.commit().await.unwrap();
    for (node, expected) in [(ids[2], 0), (ids[3], 2)] {
        let project = world.project().await;
        for _ in 0..expected {
            let session = world.session(project).await;
            world.allocation_on(node, generation, &session).await;
        }
    }
    let read = world.store.single();
    let counts = read.slot_counts_of(&ids).await.unwrap();
    assert_eq!(counts.len(), 1);
    assert_eq!(counts[&ids[3]], read.slot_counts(Some(ids[3])).await.unwrap());
}

pub(crate) async fn a_drain_is_stored_whole_keeps_an_earlier_cordon_and_leaves_it_when_it_ends(world: World) {
    let generation = world.generation(1).await;
    let (node, other) = (
        world.node(generation, 1, 1).await,
        world.node(generation, 1, 1).await,
    );
    let drain = NewDrain {
        deadline_seconds: 604_800,
        idle: DrainIdle::Suspend,
        then: DrainThen::Terminate,
        retained: DrainRetained::Release,
        source: "192.0.2.1".to_owned(),
    };
    let tx = world.begin().await;
    tx.set_node_cordoned(node, true).await.unwrap();
    let cordoned = tx.now();
    tx.commit().await.unwrap();
    assert!(world.store.single().draining_nodes().await.unwrap().is_empty());

    let tx = world.begin().await;
    tx.start_drain(node, &drain).await.unwrap();
    let started = tx.now();
    tx.commit().await.unwrap();
    let read = world.store.single();
    let [row] = &read.draining_nodes().await.unwrap()[..] else {
        panic!("one is drained")
    };
    assert_eq!((row.id, row.cordoned_at), (node, Some(cordoned)));
    assert_eq!(row.drain_requested_at, Some(started));
    assert_eq!(row.drain_deadline_at, Some(started.plus_millis(604_800_000)));
    assert_eq!(
        (row.drain_idle, row.drain_then, row.drain_retained),
        (Some(drain.idle), Some(drain.then), Some(drain.retained))
    );
    assert_eq!(row.drain_source.as_deref(), Some("192.0.2.1"));
    assert_eq!(row.drain_deadline_passed_at, None);

    let tx = world.begin().await;
    tx.pass_drain_deadline(node).await.unwrap();
    let passed = tx.now();
    tx.commit().await.unwrap();
    let row = read.node(node).await.unwrap().unwrap();
    assert_eq!(row.drain_deadline_passed_at, Some(passed));

    let tx = world.begin().await;
    tx.end_drain(node).await.unwrap();
    tx.start_drain(other, &drain).await.unwrap();
    assert!(tx.retire_node(other).await.unwrap());
    tx.commit().await.unwrap();
    assert!(read.draining_nodes().await.unwrap().is_empty());
    let row = read.node(node).await.unwrap().unwrap();
    assert_eq!(row.cordoned_at, Some(cordoned));
    let left = (
        row.drain_requested_at,
        row.drain_deadline_at,
        row.drain_deadline_passed_at,
        row.drain_idle,
        row.drain_then,
        row.drain_retained,
        row.drain_source,
    );
    assert_eq!(left, (None, None, None, None, None, None, None));
}
