use oac_model::{AllocationState, ComputePhase, ConnectionId, Digest, Secret};
use oac_store::{
    AllocationDiagnostic, Claim, GenerationState, GenerationStatusRow, Holder, NodeCounts, NodeHealth,
    SlotCounts,
};

use crate::world::{LEASE, World, new_placement, new_session};

pub(crate) async fn presence_belongs_to_one_connection_of_one_epoch(world: World) {
    let generation = world.generation(2).await;
    let node = world.node(generation, 1, 1).await;
    let (old, new) = (ConnectionId::random(), ConnectionId::random());
    let health = NodeHealth {
        provider_ready: true,
        ..NodeHealth::default()
    };
    let tx = world.begin().await;
    assert!(
        !tx.record_heartbeat(node, old, &health).await.unwrap(),
        "no hello yet"
    );
    assert!(tx.record_hello(node, old, true, &health).await.unwrap());
    assert!(tx.record_heartbeat(node, old, &health).await.unwrap());
    assert!(tx.record_hello(node, new, true, &health).await.unwrap());
    // What the old connection still has to say, its goodbye included, is about nothing.
    assert!(!tx.record_heartbeat(node, old, &health).await.unwrap());
    assert!(!tx.clear_presence(node, old).await.unwrap());
    assert!(tx.record_heartbeat(node, new, &health).await.unwrap());
    tx.commit().await.unwrap();

    let later = world.another_core(LEASE * 2).await;
    let next = later
        .acquire_ownership(Holder::random(), LEASE, Claim::WhenExpired)
        .await
        .unwrap()
        .unwrap();
    let tx = later.begin(&next).await.unwrap();
    assert!(
        !tx.record_heartbeat(node, new, &health).await.unwrap(),
        "another epoch's connection"
    );
    let row = tx.node(node).await.unwrap().unwrap();
    assert!(!row.online(next.epoch, tx.now(), 45_000));
    assert!(tx.clear_presence(node, new).await.unwrap());
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
    let hello = tx
        .record_hello(node, connection, false, &NodeHealth::default())
        .await;
    assert!(hello.unwrap());
    assert!(tx.retire_node(node).await.unwrap());
    assert!(!tx.retire_node(node).await.unwrap());
    let again = tx
        .record_hello(node, connection, false, &NodeHealth::default())
        .await;
    assert!(!again.unwrap());
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
    assert!(tx.record_hello(node, old, true, &health).await.unwrap());
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
        tx.save_generation_status(&status).await.unwrap();
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
    assert!(tx.record_hello(node, new, true, &health).await.unwrap());
    let rows = tx.standing_generation_statuses(Some(target)).await.unwrap();
    assert_eq!(standing(rows), []);
    tx.commit().await.unwrap();
}
