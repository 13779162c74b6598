use std::time::Duration;

use oac_model::TurnState;
use oac_store::{OutputChunk, OutputStream};

use crate::world::World;

fn chunk(stream: OutputStream, bytes: &[u8]) -> OutputChunk {
    OutputChunk {
        stream,
        bytes: bytes.to_vec(),
    }
}

async fn all(world: &World, turn: oac_model::TurnId, from: u64) -> Vec<(u64, OutputStream, Vec<u8>)> {
    let read = world.store.single();
    let rows = read.output_from(turn, from, 100).await.unwrap();
    rows.into_iter()
        .map(|r| (r.start_offset, r.stream, r.bytes))
        .collect()
}

pub(crate) async fn output_is_a_gapless_prefix_in_the_order_appended(world: World) {
    use OutputStream::{Stderr, Stdout};
    let project = world.project().await;
    let session = world.session(project).await;
    let (_, turn) = world.input(&session).await;
    let tx = world.begin().await;
    let batch = [chunk(Stdout, b"abc"), chunk(Stderr, b""), chunk(Stderr, b"de")];
    assert!(tx.append_output(turn.id, 0, &batch, 0).await.unwrap());
    tx.commit().await.unwrap();

    let tx = world.begin().await;
    for wrong in [0, 4, 6] {
        let repeated = tx.append_output(turn.id, wrong, &[chunk(Stdout, b"x")], 0).await;
        assert!(!repeated.unwrap(), "at {wrong}");
    }
    // A batch and its offset are one: undone together.
    assert!(
        tx.append_output(turn.id, 5, &[chunk(Stdout, b"undone")], 0)
            .await
            .unwrap()
    );
    drop(tx);

    let tx = world.begin().await;
    assert!(
        tx.append_output(turn.id, 5, &[chunk(Stdout, b"fg")], 10)
            .await
            .unwrap()
    );
    assert!(
        !tx.append_output(turn.id, 17, &[chunk(Stdout, b"behind a gap")], 0)
            .await
            .unwrap()
    );
    assert!(tx.append_output(turn.id, 17, &[], 3).await.unwrap());
    tx.record_acked(turn.id, 20).await.unwrap();
    tx.record_acked(turn.id, 5).await.unwrap();
    tx.commit().await.unwrap();
    let row = world.store.single().turn(turn.id).await.unwrap().unwrap();
    assert_eq!((row.output_stored, row.output_bytes, row.acked), (7, 20, 20));
    assert!(row.output_truncated);
    let expected = [
        (0, Stdout, b"abc".to_vec()),
        (3, Stderr, b"de".to_vec()),
        (5, Stdout, b"fg".to_vec()),
    ];
    assert_eq!(all(&world, turn.id, 0).await, expected);
}

pub(crate) async fn a_reader_finds_the_record_that_holds_its_offset(world: World) {
    use OutputStream::Stdout;
    let project = world.project().await;
    let session = world.session(project).await;
    let (_, turn) = world.input(&session).await;
    let (_, silent) = world.input(&session).await;
    let tx = world.begin().await;
    let batch = [chunk(Stdout, b"0123"), chunk(Stdout, b"4567")];
    assert!(tx.append_output(turn.id, 0, &batch, 0).await.unwrap());
    tx.commit().await.unwrap();
    for from in 0..8 {
        let rows = all(&world, turn.id, from).await;
        let (start, _, bytes) = &rows[0];
        let first = bytes[usize::try_from(from - start).unwrap()];
        assert_eq!(u64::from(first - b'0'), from);
    }
    assert_eq!(all(&world, turn.id, 8).await, []);
    assert_eq!(all(&world, turn.id, 900).await, []);
    assert_eq!(all(&world, silent.id, 0).await, []);
}

pub(crate) async fn old_output_is_pruned_with_its_turn_kept(world: World) {
    let project = world.project().await;
    let session = world.session(project).await;
    let (_, mut ended) = world.input(&session).await;
    let (_, open) = world.input(&session).await;
    let tx = world.begin().await;
    for id in [ended.id, open.id] {
        let batch = [chunk(OutputStream::Stdout, b"text")];
        assert!(tx.append_output(id, 0, &batch, 0).await.unwrap());
    }
    ended.state = TurnState::Completed;
    ended.ended_at = Some(tx.now());
    assert!(tx.save_turn(&ended).await.unwrap());
    let first = tx.now();
    assert_eq!(tx.prune_output(first, tx.now()).await.unwrap(), 0);
    tx.commit().await.unwrap();
    let (later, owner) = world.later(Duration::from_secs(8 * 86400)).await;
    let tx = later.begin(&owner).await.unwrap();
    let week_ago = tx.now().plus_millis(-7 * 86_400_000);
    assert_eq!(tx.prune_output(first.plus_millis(1), week_ago).await.unwrap(), 0);
    assert_eq!(tx.prune_output(first, week_ago).await.unwrap(), 1);
    tx.commit().await.unwrap();
    assert_eq!(all(&world, ended.id, 0).await, []);
    assert_eq!(all(&world, open.id, 0).await.len(), 1);
    let row = world.store.single().turn(ended.id).await.unwrap().unwrap();
    assert_eq!(row.output_bytes, 4);
}
