use std::fs;

use oac_link::{CloseReason, OutputError, OutputItem, service::Ack};

use crate::acceptor::{LONG, Sandbox, Told, begin, finish, first_output, shell, told, until};

const MIB: u64 = 1 << 20;

/// Numbered lines of 16 bytes: a gap, a repetition or a swap cannot hide.
fn numbered(lines: u64) -> String {
    format!("seq -f '%015.0f' 1 {lines}")
}

fn expected(lines: u64) -> Vec<u8> {
    (1..=lines)
        .flat_map(|n| format!("{n:015}\n").into_bytes())
        .collect()
}

// inv: INV-S4
#[tokio::test]
async fn output_over_many_links_is_the_processs_bytes_once_and_in_order() {
    let (mut sandbox, mut client) = Sandbox::linked().await;
    let lines = 160_000;
    let turn = begin(&client, shell(&numbered(lines))).await;
    let mut stored = Told::default();
    let mut links = 1;
    while stored.exit.is_none() {
        let mut output = client.output(turn, stored.all.len() as u64).await.unwrap();
        let mut taken = 0;
        while taken < MIB as usize {
            let batch = output.next_batch(64 * 1024).await.unwrap();
            if batch.is_empty() {
                break;
            }
            for item in batch {
                stored.push(item);
            }
            taken += 64 * 1024;
        }
        let ack = Ack {
            offset: stored.all.len() as u64,
            is_final: false,
        };
        client.ack(turn, ack).await.unwrap();
        if stored.exit.is_none() {
            // More is on its way through this link; it is lost with it, and asked for again.
            drop(output);
            client.close(CloseReason::EpochChanged);
            (client, _) = sandbox.acceptor.link().await;
            links += 1;
        }
    }
    assert!(links > 2, "{links}");
    assert!(stored.all == expected(lines));
}

#[tokio::test]
async fn acknowledged_output_is_gone_and_its_end_stays_until_the_final_acknowledgement() {
    let (_sandbox, client) = Sandbox::linked().await;
    let turn = begin(&client, shell("printf 0123456789")).await;
    assert_eq!(told(&client, turn, 0).await.all, b"0123456789");
    assert!(matches!(
        client.output(turn, 9).await,
        Err(OutputError::OutOfRange)
    ));
    let end = told(&client, turn, 10).await;
    assert!(end.all.is_empty() && end.exit.is_some());
    assert!(matches!(
        client.output(turn, 11).await,
        Err(OutputError::OutOfRange)
    ));
    finish(&client, turn, 10).await;
    assert!(matches!(client.output(turn, 10).await, Err(OutputError::Unknown)));
}

// inv: INV-S7
#[tokio::test]
async fn every_offset_of_unacknowledged_output_can_be_read_from() {
    let (_sandbox, client) = Sandbox::linked().await;
    let turn = begin(&client, shell("printf 0123456789; printf abc >&2; printf xyz")).await;
    until("it has ended", async || {
        client.turn(turn).await.unwrap().unwrap().exit.0.is_some()
    })
    .await;
    let mut all = Vec::new();
    for offset in 0..=16_usize {
        let mut output = client.output(turn, offset as u64).await.unwrap();
        let mut told = Told::default();
        while let Some(item) = output.next().await.unwrap() {
            told.push(item);
        }
        if offset == 0 {
            all = told.all.clone();
            assert_eq!(all.len(), 16);
        }
        assert_eq!(told.all, all[offset..], "from {offset}");
    }
}

// inv: INV-S6
#[tokio::test]
async fn unacknowledged_output_stops_the_process_and_is_never_dropped() {
    let (sandbox, client) = Sandbox::linked().await;
    let lines = 3 * MIB; // 48 MiB
    let turn = begin(&client, shell(&numbered(lines))).await;
    let written = async || client.turn(turn).await.unwrap().unwrap().offset;
    until("32 MiB are held", async || written().await >= 32 * MIB).await;
    // It waits in a write, for as long as nobody acknowledges.
    let children = format!("/proc/{0}/task/{0}/children", sandbox.pid());
    let child = fs::read_to_string(children).unwrap().trim().to_owned();
    until("the process is blocked", async || {
        let wait = fs::read_to_string(format!("/proc/{child}/wchan")).unwrap_or_default();
        wait.contains("pipe") || is_asleep(&child)
    })
    .await;
    let held = written().await;
    assert!((32 * MIB..33 * MIB).contains(&held), "{held}");
    assert!(client.turn(turn).await.unwrap().unwrap().exit.0.is_none());
    // Acknowledged, it goes on, and everything is there.
    let told = told(&client, turn, 0).await;
    assert!(told.all == expected(lines));
    assert_eq!(told.exit().code.0, Some(0));
    // What was acknowledged is discarded but for the segment in use.
    let directory = sandbox.path("turns").join(turn.to_string());
    let kept: u64 = fs::read_dir(directory)
        .unwrap()
        .map(|e| e.unwrap().metadata().unwrap().len())
        .sum();
    assert!(kept < 10 * MIB, "{kept}");
}

/// The log is several files here, and each acknowledgement ends inside one.
// inv: INV-S6
#[tokio::test]
async fn an_acknowledgement_takes_nothing_that_lies_behind_it() {
    let (_sandbox, client) = Sandbox::linked().await;
    let lines = 768 * 1024; // 12 MiB
    let turn = begin(&client, shell(&numbered(lines))).await;
    until("it has ended", async || {
        client.turn(turn).await.unwrap().unwrap().exit.0.is_some()
    })
    .await;
    let all = expected(lines);
    for offset in [1, 3 * MIB, 5 * MIB + 7, 6 * MIB, 9 * MIB + 1, 12 * MIB - 1] {
        let ack = Ack {
            offset,
            is_final: false,
        };
        assert!(client.ack(turn, ack).await.unwrap());
        let mut output = client.output(turn, offset).await.unwrap();
        let mut told = Told::default();
        while let Some(item) = output.next().await.unwrap() {
            told.push(item);
        }
        assert!(told.all == all[offset as usize..], "from {offset}");
    }
}

fn is_asleep(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") S "))
}

// inv: INV-S20
#[tokio::test]
async fn bytes_written_before_the_end_are_logged_before_the_exit_however_much_is_unacknowledged() {
    let (_sandbox, client) = Sandbox::linked().await;
    // The last 48 KiB beyond the bound wait in the pipe when the process ends.
    let lines = (32 * MIB + 48 * 1024) / 16;
    let turn = begin(&client, shell(&numbered(lines))).await;
    until("it has ended", async || {
        client.turn(turn).await.unwrap().unwrap().exit.0.is_some()
    })
    .await;
    let mut output = client.output(turn, 0).await.unwrap();
    let mut told = Told::default();
    let read = async {
        while let Some(item) = output.next().await.unwrap() {
            told.push(item);
        }
    };
    tokio::time::timeout(LONG, read).await.unwrap();
    assert!(told.all == expected(lines));
    assert_eq!(told.exit().code.0, Some(0));
}

#[tokio::test]
async fn output_arrives_while_the_process_runs() {
    let (_sandbox, client) = Sandbox::linked().await;
    let turn = begin(&client, shell("echo first; exec sleep 1000")).await;
    assert_eq!(&first_output(&client, turn).await[..], b"first\n");
    assert!(client.turn(turn).await.unwrap().unwrap().exit.0.is_none());
}

#[tokio::test]
async fn the_output_and_end_of_a_finished_turn_arrive_as_one_batch() {
    let (_sandbox, client) = Sandbox::linked().await;
    let turn = begin(&client, shell("echo out; echo err >&2")).await;
    until("it has ended", async || {
        client.turn(turn).await.unwrap().unwrap().exit.0.is_some()
    })
    .await;
    let mut output = client.output(turn, 0).await.unwrap();
    let batch = output.next_batch(1 << 20).await.unwrap();
    assert!(
        matches!(batch.last(), Some(OutputItem::End { offset: 8, .. })),
        "{batch:?}"
    );
    assert!(output.next_batch(1 << 20).await.unwrap().is_empty());
}
