use oac_model::TurnState;
use oac_store::{Dispatch, StoreError};

use crate::world::{World, new_input};

// inv: INV-S9
pub(crate) async fn an_input_and_its_turn_exist_together_or_not_at_all(world: World) {
    let project = world.project().await;
    let session = world.session(project).await;
    let new = new_input(session.id);
    let tx = world.begin().await;
    tx.lock_session(session.id).await.unwrap();
    tx.insert_input(&new).await.unwrap();
    drop(tx);
    let read = world.store.single();
    assert_eq!(read.input(new.id).await.unwrap(), None);
    assert_eq!(read.turn(new.turn_id).await.unwrap(), None);

    let (input, turn) = world.input(&session).await;
    assert_eq!(turn.sequence, 1, "a refused input uses no number");
    assert_eq!(turn.input_id, input.id);
    assert_eq!(
        read.turn_of_session(session.id, turn.id).await.unwrap(),
        Some(turn.clone())
    );
    let other = world.session(project).await;
    assert_eq!(read.turn_of_session(other.id, turn.id).await.unwrap(), None);
}

// inv: INV-S3
pub(crate) async fn a_terminal_turn_never_changes(world: World) {
    let project = world.project().await;
    let session = world.session(project).await;
    for state in TurnState::ALL.iter().copied().filter(|s| s.is_terminal()) {
        let (_, mut turn) = world.input(&session).await;
        let tx = world.begin().await;
        turn.state = state;
        turn.ended_at = Some(tx.now());
        assert!(tx.save_turn(&turn).await.unwrap());
        tx.commit().await.unwrap();
        for other in TurnState::ALL {
            let tx = world.begin().await;
            let mut changed = turn.clone();
            changed.state = *other;
            changed.exit_code = Some(1);
            assert!(!tx.save_turn(&changed).await.unwrap(), "{state} to {other}");
            let chunk = oac_store::OutputChunk {
                stream: oac_store::OutputStream::Stdout,
                bytes: b"late".to_vec(),
            };
            assert!(!tx.append_output(turn.id, 0, &[chunk], 0).await.unwrap());
            tx.commit().await.unwrap();
        }
        assert_eq!(world.store.single().turn(turn.id).await.unwrap(), Some(turn));
    }
}

// inv: INV-S1
pub(crate) async fn one_turn_of_a_session_runs_at_a_time(world: World) {
    let project = world.project().await;
    let session = world.session(project).await;
    let (_, mut first) = world.input(&session).await;
    let (_, mut second) = world.input(&session).await;
    let tx = world.begin().await;
    (first.state, first.dispatch) = (TurnState::Running, Dispatch::Intent);
    assert!(tx.save_turn(&first).await.unwrap());
    tx.commit().await.unwrap();
    let tx = world.begin().await;
    second.state = TurnState::Running;
    let refused = tx.save_turn(&second).await;
    assert!(
        matches!(refused, Err(StoreError::Duplicate { .. })),
        "{refused:?}"
    );
    drop(tx);
    assert_eq!(
        world.store.single().turn_counts(session.id).await.unwrap(),
        (1, 1)
    );
    let tx = world.begin().await;
    first.state = TurnState::Completed;
    assert!(tx.save_turn(&first).await.unwrap());
    assert!(tx.save_turn(&second).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(
        world.store.single().turn_counts(session.id).await.unwrap(),
        (0, 1)
    );
}

pub(crate) async fn unfinished_turns_are_found_in_order(world: World) {
    let allocation = world.allocation().await;
    let read = world.store.single();
    let session = read.session(allocation.session_id).await.unwrap().unwrap();
    let quiet = world.session(session.project_id).await;
    let mut turns = Vec::new();
    for _ in 0..4 {
        turns.push(world.input(&session).await.1);
    }
    let tx = world.begin().await;
    turns[0].state = TurnState::Canceled;
    turns[1].allocation_id = Some(allocation.id);
    assert!(tx.save_turn(&turns[0]).await.unwrap());
    assert!(tx.save_turn(&turns[1]).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(read.unfinished_turns(session.id).await.unwrap(), turns[1..]);
    assert_eq!(read.turns(session.id, 0, 2).await.unwrap(), turns[..2]);
    assert_eq!(read.turns(session.id, 2, 9).await.unwrap(), turns[2..]);
    let named = read
        .unfinished_turns_of_allocation(session.id, allocation.id)
        .await;
    assert_eq!(named.unwrap(), turns[1..2]);
    assert_eq!(
        read.sessions_with_unfinished_turns(None, 32).await.unwrap(),
        [session.id]
    );
    let after = read.sessions_with_unfinished_turns(Some(session.id), 32).await;
    assert_eq!(after.unwrap(), []);
    assert_eq!(read.unfinished_turns(quiet.id).await.unwrap(), []);
}
