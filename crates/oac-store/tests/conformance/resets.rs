use oac_model::{AllocationState, ComputePhase, Digest, SessionId, Time, TurnState};
use oac_store::{
    AllocationDiagnostic, CleanupCause, DeploymentLock, FileOperationKind, NewEnrollmentToken, NewReset,
    Ownership, ResetClear, ResetSession, ResourceCounts, ResourceGroup, Selection, SessionRow, StoreError,
    TokenLimits,
};

use crate::world::{LEASE, World, new_input, new_placement, selection};

fn reset(clear: ResetClear) -> NewReset {
    NewReset {
        clear,
        deadline_seconds: (clear == ResetClear::Auto).then_some(300),
        actor: "core_key:1".into(),
        source: "192.0.2.1".into(),
    }
}

fn token(text: &str) -> NewEnrollmentToken {
    NewEnrollmentToken {
        token_digest: Digest::of(text),
        limits: TokenLimits::Recommended,
        max_active: 1,
        max_retained: 1,
        lives_seconds: 3600,
    }
}

// inv: INV-C1, INV-C2, INV-C4, INV-C26
pub(crate) async fn a_completed_reset_leaves_nothing_of_the_deployment_and_begins_the_next_epoch_and_generation(
    world: World,
) {
    let mut generation = world.generation(1).await;
    let node = world.node(generation, 1, 1).await;
    for cpus in 2..40 {
        generation = world.generation(cpus).await;
    }
    let tx = world.begin().await;
    tx.lock_deployment(DeploymentLock::Exclusive).await.unwrap();
    let sealed = Selection {
        credential_sealed: Some(vec![1]),
        metadata: serde_json::json!({ "any": 1 }),
        configuration: serde_json::json!({ "any": 2 }),
        ..selection(1)
    };
    let target = tx.save_selection(&sealed).await.unwrap();
    tx.save_suspension(60, 3600).await.unwrap();
    let installation = tx.deployment().await.unwrap().installation_id;
    tx.create_enrollment_token(installation, &token("unused"))
        .await
        .unwrap();
    let used = tx
        .create_enrollment_token(installation, &token("used"))
        .await
        .unwrap();
    assert!(
        tx.consume_enrollment_token(used.enrollment_id, node)
            .await
            .unwrap()
    );
    tx.start_reset(&reset(ResetClear::Force)).await.unwrap();
    tx.commit().await.unwrap();

    let last = world.store.begin_last(&world.owner).await.unwrap();
    last.lock_deployment(DeploymentLock::Exclusive).await.unwrap();
    let completed = last.complete_reset().await.unwrap();
    last.commit().await.unwrap();

    let next = world.owner.epoch.next().unwrap();
    let after = target.get() + 1;
    assert_eq!(completed, (after, next));
    let read = world.store.single();
    let row = read.deployment().await.unwrap();
    assert_eq!(
        (row.provider, row.generation, row.resetting()),
        (None, after, false)
    );
    assert_eq!((row.idle_seconds, row.retention_seconds), (300, 86_400));
    assert_eq!(row.credential_sealed, None);
    assert_eq!(
        (row.configuration, row.metadata),
        (serde_json::json!({}), serde_json::json!({}))
    );
    assert_eq!(
        (row.reset_clear, row.reset_actor, row.reset_source),
        (None, None, None)
    );
    assert_eq!((row.reset_deadline_at, row.reset_forced_at), (None, None));
    assert_eq!(read.nodes().await.unwrap(), []);
    assert!(read.node(node).await.unwrap().unwrap().retired_at.is_some());
    let unused = read
        .enrollment_token(&oac_model::Secret::new("unused"))
        .await
        .unwrap();
    assert_eq!(unused, None);
    let kept = read
        .enrollment_token(&oac_model::Secret::new("used"))
        .await
        .unwrap();
    assert_eq!(kept.unwrap().node_id, Some(node));
    for old in [generation, target] {
        assert_eq!(read.generation(old).await.unwrap(), None);
    }

    // The holder stays, under the next epoch alone.
    assert!(matches!(
        world.store.begin(&world.owner).await.map(drop),
        Err(StoreError::NotOwner { .. })
    ));
    let owner = Ownership {
        epoch: next,
        ..world.owner
    };
    let renewed = world
        .store
        .renew_ownership(world.owner.holder, LEASE)
        .await
        .unwrap();
    assert_eq!(renewed, Some(owner));
    let tx = world.store.begin(&owner).await.unwrap();
    tx.lock_deployment(DeploymentLock::Exclusive).await.unwrap();
    let again = tx.save_selection(&selection(1)).await.unwrap();
    assert_eq!(again.get(), after + 1, "no number comes twice");
    tx.commit().await.unwrap();
}

// inv: INV-C1
pub(crate) async fn the_last_transaction_of_an_epoch_waits_for_the_others_of_it(world: World) {
    let open = world.begin().await;
    open.create_project("of the old epoch").await.unwrap();
    let last = world.store.begin_last(&world.owner);
    tokio::pin!(last);
    for _ in 0..20 {
        // It advances while this reads, and must not get past the lock.
        tokio::select! {
            biased;
            early = &mut last => panic!("began beside another transaction: {early:?}"),
            owner = async { world.store.single().owner().await.unwrap() } => {
                assert_eq!(owner.epoch, Some(world.owner.epoch));
            }
        }
    }
    open.commit().await.unwrap();
    let last = last.await.unwrap();
    assert_eq!(last.projects().await.unwrap().len(), 1);
    last.complete_reset().await.unwrap();
    let late = world.store.begin(&world.owner);
    let (late, committed) = tokio::join!(late, last.commit());
    committed.unwrap();
    assert!(matches!(late.map(drop), Err(StoreError::NotOwner { .. })));
}

pub(crate) async fn a_reset_is_forced_or_canceled_only_while_it_stands(world: World) {
    world.generation(1).await;
    let tx = world.begin().await;
    tx.force_reset().await.unwrap();
    assert!(!tx.deployment().await.unwrap().resetting());
    tx.start_reset(&reset(ResetClear::Auto)).await.unwrap();
    let auto = tx.deployment().await.unwrap();
    assert_eq!(
        (auto.reset_clear, auto.reset_forced_at),
        (Some(ResetClear::Auto), None)
    );
    let deadline = auto.reset_deadline_at.map(Time::millis);
    assert_eq!(deadline, Some(tx.now().millis() + 300_000));
    tx.force_reset().await.unwrap();
    let forced = tx.deployment().await.unwrap();
    assert_eq!(forced.reset_clear, Some(ResetClear::Force));
    assert_eq!(forced.reset_forced_at, Some(tx.now()));
    assert_eq!(forced.reset_deadline_at, auto.reset_deadline_at);
    assert_eq!(forced.reset_source.as_deref(), Some("192.0.2.1"));
    tx.cancel_reset().await.unwrap();
    let canceled = tx.deployment().await.unwrap();
    assert_eq!((canceled.resetting(), canceled.provider), (false, auto.provider));
    tx.commit().await.unwrap();
}

async fn turn(world: &World, session: &SessionRow, state: TurnState) {
    let tx = world.begin().await;
    tx.lock_session(session.id).await.unwrap();
    let mut new = new_input(session.id);
    new.state = state;
    tx.insert_input(&new).await.unwrap();
    tx.commit().await.unwrap();
}

// inv: INV-C23
pub(crate) async fn what_is_left_is_told_apart_and_adds_up(world: World) {
    let older = world.generation(1).await;
    let node = world.node(older, 100, 100).await;
    let target = world.generation(2).await;
    let project = world.project().await;
    let read = world.store.single();
    assert_eq!(read.left_of_reset().await.unwrap(), (0, false));
    assert_eq!(read.resource_groups().await.unwrap(), []);

    let session = async || world.session(project).await;
    let (idle, waiting, running, queued) =
        (session().await, session().await, session().await, session().await);
    let (writing, reading, pending, leaving) =
        (session().await, session().await, session().await, session().await);
    assert_eq!(read.left_of_reset().await.unwrap(), (0, true));
    for placed in [&idle, &waiting, &running, &queued, &writing, &reading] {
        world.allocation_on(node, target, placed).await;
    }
    let mut row = world.allocation_on(node, older, &leaving).await;
    turn(&world, &waiting, TurnState::Waiting).await;
    turn(&world, &running, TurnState::Running).await;
    turn(&world, &queued, TurnState::Queued).await;
    turn(&world, &leaving, TurnState::Waiting).await;
    let tx = world.begin().await;
    tx.begin_file_operation(writing.id, FileOperationKind::Write)
        .await
        .unwrap();
    tx.begin_file_operation(reading.id, FileOperationKind::Read)
        .await
        .unwrap();
    tx.begin_file_operation(reading.id, FileOperationKind::Port)
        .await
        .unwrap();
    tx.insert_placement(&new_placement(pending.environment_id, None, target))
        .await
        .unwrap();
    row.cause = Some(CleanupCause::Discard);
    row.diagnostic = Some(AllocationDiagnostic::ResourceMissing);
    tx.save_allocation(&mut row).await.unwrap();
    tx.commit().await.unwrap();

    let mut groups = read.resource_groups().await.unwrap();
    groups.sort_by_key(|g| (g.node_id, g.given_up, g.works));
    let reserved = Some(AllocationState::Reserved);
    let group = |node_id, state, given_up, works, resources, older| ResourceGroup {
        node_id,
        state,
        given_up,
        works,
        resources,
        older,
    };
    assert_eq!(
        groups,
        [
            group(None, None, false, false, 1, 0),
            group(Some(node), reserved, false, false, 3, 0),
            group(Some(node), reserved, false, true, 3, 0),
            group(Some(node), reserved, true, true, 1, 1),
        ]
    );
    let counts = read.resource_counts().await.unwrap();
    assert_eq!(ResourceCounts::of(&groups), counts);
    assert_eq!(
        read.left_of_reset().await.unwrap(),
        (counts.allocations + counts.pending, true)
    );
    let diagnosed = async |diagnostics: &[AllocationDiagnostic]| {
        let found = read.allocations_with_diagnostics(diagnostics).await.unwrap();
        found.iter().map(|allocation| allocation.id).collect::<Vec<_>>()
    };
    let (missing, unconfirmed) = (
        AllocationDiagnostic::ResourceMissing,
        AllocationDiagnostic::ComputeUnconfirmed,
    );
    assert_eq!(diagnosed(&[missing]).await, [row.id]);
    assert_eq!(diagnosed(&[unconfirmed, missing]).await, [row.id]);
    assert_eq!(diagnosed(&[unconfirmed]).await, []);

    for (session, works, has_compute) in [
        (&idle, false, true),
        (&waiting, true, true),
        (&running, true, true),
        (&queued, false, true),
        (&writing, true, true),
        (&reading, false, true),
        (&pending, false, true),
    ] {
        let expected = ResetSession {
            id: session.id,
            works,
            has_compute,
        };
        assert_eq!(read.reset_session(session.id).await.unwrap(), Some(expected));
    }
    let bare = session().await;
    turn(&world, &bare, TurnState::Waiting).await;
    let expected = ResetSession {
        id: bare.id,
        works: true,
        has_compute: false,
    };
    assert_eq!(read.reset_session(bare.id).await.unwrap(), Some(expected));

    let asleep = session().await;
    let mut row = world.allocation_on(node, target, &asleep).await;
    turn(&world, &asleep, TurnState::Waiting).await;
    let expected = |has_compute| ResetSession {
        id: asleep.id,
        works: true,
        has_compute,
    };
    for (phase, has_compute) in [
        (ComputePhase::Suspended, false),
        (ComputePhase::Restoring, true),
        (ComputePhase::Running, true),
    ] {
        let tx = world.begin().await;
        (row.state, row.compute_phase) = (AllocationState::Running, phase);
        tx.save_allocation(&mut row).await.unwrap();
        tx.commit().await.unwrap();
        let found = read.reset_session(asleep.id).await.unwrap();
        assert_eq!(found, Some(expected(has_compute)), "{phase}");
    }
}

/// A working Session may go on for as long as the deadline allows: it is not read again and again meanwhile.
pub(crate) async fn an_automatic_reset_reads_only_the_sessions_that_it_may_archive(world: World) {
    let generation = world.generation(1).await;
    let node = world.node(generation, 100, 100).await;
    let project = world.project().await;
    let mut spared = Vec::new();
    let mut wanted = Vec::new();
    for _ in 0..3 {
        let working = world.session(project).await;
        world.allocation_on(node, generation, &working).await;
        turn(&world, &working, TurnState::Running).await;
        spared.push(working.id);
        let idle = world.session(project).await;
        world.allocation_on(node, generation, &idle).await;
        let bare = world.session(project).await;
        turn(&world, &bare, TurnState::Waiting).await;
        let asleep = world.session(project).await;
        let mut row = world.allocation_on(node, generation, &asleep).await;
        turn(&world, &asleep, TurnState::Waiting).await;
        let tx = world.begin().await;
        (row.state, row.compute_phase) = (AllocationState::Running, ComputePhase::Suspended);
        tx.save_allocation(&mut row).await.unwrap();
        tx.commit().await.unwrap();
        wanted.extend([idle.id, bare.id, asleep.id]);
    }
    wanted.sort_unstable();
    assert_eq!(read_in_pages(&world, ResetClear::Auto).await, wanted);
    wanted.extend(spared);
    wanted.sort_unstable();
    assert_eq!(read_in_pages(&world, ResetClear::Force).await, wanted);
}

async fn read_in_pages(world: &World, clear: ResetClear) -> Vec<SessionId> {
    let read = world.store.single();
    let mut found: Vec<SessionId> = Vec::new();
    loop {
        let page = read
            .reset_sessions(clear, found.last().copied(), 2)
            .await
            .unwrap();
        assert!(page.len() <= 2);
        if page.is_empty() {
            return found;
        }
        found.extend(page.iter().map(|s| s.id));
    }
}

pub(crate) async fn the_sessions_of_a_reset_come_in_pages_without_archived_ones(world: World) {
    let project = world.project().await;
    let mut ids = Vec::new();
    for _ in 0..7 {
        ids.push(world.session(project).await.id);
    }
    let archived = ids.swap_remove(3);
    let tx = world.begin().await;
    assert!(tx.archive_session(archived).await.unwrap());
    tx.commit().await.unwrap();
    ids.sort_unstable();
    for clear in [ResetClear::Auto, ResetClear::Force] {
        assert_eq!(read_in_pages(&world, clear).await, ids);
    }
    let read = world.store.single();
    assert_eq!(read.reset_session(archived).await.unwrap(), None);
}
