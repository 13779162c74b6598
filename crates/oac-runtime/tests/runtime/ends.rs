use std::{fs, time::Duration};

use oac_link::service::{Ack, Cancel};
use oac_model::TurnId;

use crate::acceptor::{Sandbox, begin, first_output, perform, run, shell, told, until};

fn alive(pid: &[u8]) -> bool {
    let pid = std::str::from_utf8(pid).unwrap().trim();
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn cancel_lets_a_process_end_itself_and_kills_one_that_does_not() {
    let (_sandbox, client) = Sandbox::linked().await;
    let polite = begin(
        &client,
        shell("trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.01; done"),
    )
    .await;
    first_output(&client, polite).await;
    assert!(client.cancel(polite, Cancel { grace_ms: 600_000 }).await.unwrap());
    let polite = told(&client, polite, 0).await;
    // A shell tells on stderr what became of its child.
    assert_eq!(polite.stdout, b"up\nbye\n");
    assert_eq!((polite.exit().code.0, polite.exit().canceled), (Some(5), true));
    let deaf = begin(
        &client,
        shell("trap '' TERM; echo up; while :; do sleep 0.01; done"),
    )
    .await;
    first_output(&client, deaf).await;
    // Repeating is harmless, and a shorter grace counts.
    for grace_ms in [600_000, 1] {
        assert!(client.cancel(deaf, Cancel { grace_ms }).await.unwrap());
    }
    let deaf = told(&client, deaf, 0).await;
    assert_eq!((deaf.exit().signal.0, deaf.exit().canceled), (Some(9), true));
}

#[tokio::test]
async fn a_process_that_finished_first_is_not_canceled() {
    let (_sandbox, client) = Sandbox::linked().await;
    let turn = begin(&client, run(&["true"])).await;
    let exit = told(&client, turn, 0).await.exit.unwrap();
    assert!(client.cancel(turn, Cancel { grace_ms: 0 }).await.unwrap());
    assert_eq!(
        client.turn(turn).await.unwrap().unwrap().exit.0,
        Some(exit.clone())
    );
    assert_eq!((exit.code.0, exit.canceled), (Some(0), false));
    assert!(
        !client
            .cancel(TurnId::random(), Cancel { grace_ms: 0 })
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn a_process_is_killed_at_its_limit() {
    let (_sandbox, client) = Sandbox::linked().await;
    let mut sleep = shell("trap '' TERM; echo up; sleep 1000");
    sleep.timeout_ms = 300;
    let told = perform(&client, sleep).await;
    let exit = told.exit();
    assert_eq!(told.all, b"up\n");
    assert_eq!(
        (exit.signal.0, exit.timed_out, exit.canceled),
        (Some(9), true, false)
    );
}

#[tokio::test]
async fn what_is_left_of_the_process_group_ends_with_its_leader() {
    let (_sandbox, client) = Sandbox::linked().await;
    let told = perform(&client, shell("trap '' TERM; sleep 1000 & echo $!")).await;
    assert_eq!(told.exit().code.0, Some(0));
    until("the rest of the group is gone", async || !alive(&told.all)).await;
}

#[tokio::test]
async fn a_process_in_a_session_of_its_own_outlives_the_turn_but_does_not_hold_it_up() {
    let (_sandbox, client) = Sandbox::linked().await;
    let marks = tempfile::TempDir::new().unwrap();
    // It keeps both pipes open and writes to them for ever. The Turn ends when it is in its own session.
    let script = format!(
        "setsid sh -c 'echo $$; > {0}; while :; do echo more; sleep 0.01; done' & until [ -e {0} ]; do sleep 0.01; done",
        marks.path().join("left").display()
    );
    let told = tokio::time::timeout(Duration::from_secs(30), perform(&client, shell(&script)))
        .await
        .unwrap();
    assert_eq!(told.exit().code.0, Some(0));
    let pid = told.all.split(|b| *b == b'\n').next().unwrap();
    // Writing to a pipe that nobody reads ends it; the Turn itself did not.
    assert!(told.all.starts_with(pid));
    until("the writer meets the closed pipe", async || !alive(pid)).await;
}

#[tokio::test]
async fn a_final_acknowledgement_needs_an_end() {
    let (_sandbox, client) = Sandbox::linked().await;
    let turn = begin(&client, shell("echo up; exec sleep 1000")).await;
    first_output(&client, turn).await;
    assert!(
        client
            .ack(
                turn,
                Ack {
                    offset: 3,
                    is_final: true
                }
            )
            .await
            .is_err()
    );
    assert!(
        client
            .ack(
                turn,
                Ack {
                    offset: 4,
                    is_final: false
                }
            )
            .await
            .is_err()
    );
    assert!(client.turn(turn).await.unwrap().is_some());
    assert!(
        !client
            .ack(
                TurnId::random(),
                Ack {
                    offset: 0,
                    is_final: true
                }
            )
            .await
            .unwrap()
    );
}

/// More than a pipe holds, to a process that never reads it, closes it, or ends in the middle of it.
#[tokio::test]
async fn input_that_nobody_wants_holds_nothing_up() {
    let (_sandbox, client) = Sandbox::linked().await;
    for (script, stdout) in [
        ("echo unread", "unread\n"),
        ("exec <&-; sleep 0.1; echo closed", "closed\n"),
        ("head -c 5; echo", "xxxxx\n"),
        ("sleep 0.2; wc -c", "8388608\n"),
    ] {
        let mut run = shell(script);
        run.stdin = vec![b'x'; 8 << 20].into();
        let told = perform(&client, run).await;
        assert_eq!(String::from_utf8_lossy(&told.stdout), stdout, "{script}");
        assert_eq!(told.exit().code.0, Some(0), "{script}");
    }
}

/// Bytes are bytes: all of them, in whatever pieces they come, on both streams.
// inv: INV-S4
#[tokio::test]
async fn output_that_is_no_text_and_characters_in_pieces_arrive_as_they_were_written() {
    let (_sandbox, client) = Sandbox::linked().await;
    let script = "i=0; while [ $i -lt 256 ]; do printf \"\\\\$(printf %03o $i)\"; i=$((i+1)); done; \
         for b in 342 202 254; do printf \"\\\\$b\"; sleep 0.05; printf \"\\\\$b\" >&2; done";
    let told = perform(&client, shell(script)).await;
    let all: Vec<u8> = (0..=255).chain("€".bytes()).collect();
    assert_eq!(told.stdout, all);
    assert_eq!(told.stderr, "€".as_bytes());
}

#[tokio::test]
async fn a_daemon_in_a_session_of_its_own_lives_on_and_the_next_turns_run() {
    let (sandbox, client) = Sandbox::linked().await;
    let file = sandbox.path("alive");
    let script = format!(
        "setsid sh -c 'echo $$ > {0}; while [ -e {0} ]; do echo on >> {0}; sleep 0.01; done' </dev/null >/dev/null 2>&1 & \
         while [ ! -s {0} ]; do sleep 0.01; done",
        file.display()
    );
    assert_eq!(perform(&client, shell(&script)).await.exit().code.0, Some(0));
    let lines = || fs::read_to_string(&file).unwrap().lines().count();
    for _ in 0..3 {
        let before = lines();
        assert_eq!(perform(&client, run(&["echo", "next"])).await.stdout, b"next\n");
        until("the daemon goes on", async || lines() > before).await;
    }
    // It ends with its file.
    fs::remove_file(&file).unwrap();
}

/// Of what is kept for starts and ends, this disk has room for the first alone.
#[tokio::test]
async fn a_command_that_fills_a_disk_too_small_to_keep_room_for_ends_has_one_and_the_next_frees_it() {
    let (sandbox, client) = Sandbox::linked_with_small_disk("1m").await;
    let file = sandbox.path("turns/big");
    let fill = format!("cat /dev/zero > {}", file.display());
    let told = perform(&client, shell(&fill)).await;
    assert_eq!(told.exit().code.0, Some(1));
    let said = String::from_utf8_lossy(&told.stderr);
    assert!(said.to_lowercase().contains("no space left"), "{said}");
    let free = format!("rm {}; echo freed", file.display());
    assert_eq!(perform(&client, shell(&free)).await.stdout, b"freed\n");
}
