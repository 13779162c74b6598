use std::fs;

use oac_link::{
    CallError, OutputError, PutTurn,
    service::{PutTurnRequest, RunState},
};
use oac_model::TurnId;

use crate::acceptor::{Sandbox, begin, finish, perform, run, shell, told, until};

#[tokio::test]
async fn a_command_gets_its_input_directory_and_environment_and_no_shell() {
    let (_sandbox, client) = Sandbox::linked().await;
    let mut echo = run(&["cat", "-"]);
    echo.stdin = (0..=255).collect::<Vec<u8>>().into();
    assert_eq!(perform(&client, echo.clone()).await.stdout, echo.stdin.0);
    let mut environment = run(&["env"]);
    environment.env = [
        ("A b".to_owned(), "x=y".to_owned()),
        ("LANG".to_owned(), "C".to_owned()),
    ]
    .into();
    let told = perform(&client, environment).await;
    let mut lines: Vec<&str> = std::str::from_utf8(&told.stdout).unwrap().lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "A b=x=y",
            "HOME=/home/runtime",
            "LANG=C",
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        ]
    );
    let mut directory = run(&["pwd"]);
    directory.cwd = "/usr".into();
    assert_eq!(perform(&client, directory).await.stdout, b"/usr\n");
    let told = perform(&client, run(&["printf", "%s|", "$HOME", "a b", "*"])).await;
    assert_eq!(told.stdout, b"$HOME|a b|*|");
}

#[tokio::test]
async fn every_exit_is_told_with_its_code_or_signal_and_both_streams() {
    let (_sandbox, client) = Sandbox::linked().await;
    let told = perform(&client, shell("printf out; printf err >&2; exit 3")).await;
    assert_eq!((&told.stdout[..], &told.stderr[..]), (&b"out"[..], &b"err"[..]));
    let exit = told.exit();
    assert_eq!(
        (exit.code.0, exit.signal.0, &exit.error.0),
        (Some(3), None, &None)
    );
    let told = perform(&client, shell("kill -9 $$")).await;
    let exit = told.exit();
    assert_eq!((exit.code.0, exit.signal.0), (None, Some(9)));
    assert!(!exit.canceled && !exit.timed_out);
}

#[tokio::test]
async fn what_cannot_be_started_ends_with_an_error_that_names_it() {
    let (sandbox, client) = Sandbox::linked().await;
    fs::write(sandbox.path("plain"), "text").unwrap();
    let plain = sandbox.path("plain");
    let mut nowhere = run(&["true"]);
    nowhere.cwd = "/nowhere".into();
    let mut no_directory = run(&["true"]);
    no_directory.cwd = plain.to_str().unwrap().into();
    for (run, says) in [
        (
            run(&["no-such-program"]),
            "no-such-program cannot be executed: no such file or directory",
        ),
        (run(&[plain.to_str().unwrap()]), "permission denied"),
        (
            nowhere,
            "the working directory /nowhere cannot be used: no such file or directory",
        ),
        (no_directory, "is not a directory"),
    ] {
        let told = perform(&client, run).await;
        let exit = told.exit();
        assert!(exit.error.0.as_ref().unwrap().contains(says), "{exit:?}");
        assert_eq!((exit.code.0, exit.signal.0, told.all.len()), (None, None, 0));
    }
}

// inv: INV-S2
#[tokio::test]
async fn a_turn_put_again_at_any_time_is_started_once() {
    let (mut sandbox, client) = Sandbox::linked().await;
    let starts = sandbox.path("starts");
    let request = PutTurnRequest::new(shell(&format!("echo x >> {}; cat", starts.display())));
    let turn = TurnId::random();
    // At the same moment.
    let puts = [(); 8].map(|()| client.put_turn(turn, &request));
    let puts = futures_util::future::join_all(puts).await;
    let started = puts
        .iter()
        .filter(|put| matches!(put, Ok(PutTurn::Started { .. })))
        .count();
    let known = puts
        .iter()
        .filter(|put| matches!(put, Ok(PutTurn::Known { .. })))
        .count();
    assert_eq!((started, known), (1, 7), "{puts:?}");
    // While it runs or after it ended, over this link or the next, by this program or the next.
    let told = told(&client, turn, 0).await;
    assert!(matches!(
        client.put_turn(turn, &request).await.unwrap(),
        PutTurn::Known { .. }
    ));
    sandbox.crash();
    sandbox.start();
    let (client, _) = sandbox.acceptor.link().await;
    assert!(matches!(
        client.put_turn(turn, &request).await.unwrap(),
        PutTurn::Known { .. }
    ));
    // After its end was acknowledged, again by both programs.
    finish(&client, turn, told.all.len() as u64).await;
    assert_eq!(
        client.put_turn(turn, &request).await.unwrap(),
        PutTurn::EndedAndAcknowledged
    );
    assert_eq!(client.turn(turn).await.unwrap(), None);
    sandbox.crash();
    sandbox.start();
    let (client, _) = sandbox.acceptor.link().await;
    assert_eq!(
        client.put_turn(turn, &request).await.unwrap(),
        PutTurn::EndedAndAcknowledged
    );
    finish(&client, turn, 0).await;
    assert!(!sandbox.path("turns").join(turn.to_string()).exists());
    assert_eq!(fs::read_to_string(starts).unwrap(), "x\n");
}

// inv: INV-S2
#[tokio::test]
async fn the_record_is_on_disk_when_the_process_runs() {
    let (sandbox, client) = Sandbox::linked().await;
    let turn = TurnId::random();
    let record = sandbox.path("turns").join(turn.to_string()).join("turn.json");
    let request = PutTurnRequest::new(run(&["cat", record.to_str().unwrap()]));
    client.put_turn(turn, &request).await.unwrap();
    let told = told(&client, turn, 0).await;
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(
        text.contains(&turn.to_string()) && text.contains(&request.digest.to_string()),
        "{text}"
    );
}

#[tokio::test]
async fn a_put_that_contradicts_what_is_known_is_refused_and_starts_nothing() {
    let (sandbox, client) = Sandbox::linked().await;
    let turn = begin(&client, shell("echo up; exec sleep 1000")).await;
    let witness = sandbox.path("witness");
    let other = PutTurnRequest::new(run(&["touch", witness.to_str().unwrap()]));
    assert_eq!(
        client.put_turn(turn, &other).await.unwrap(),
        PutTurn::DigestDiffers
    );
    assert_eq!(
        client.put_turn(TurnId::random(), &other).await.unwrap(),
        PutTurn::OtherRunning
    );
    let mut forged = other.clone();
    forged.timeout_ms += 1;
    let refused = client.put_turn(TurnId::random(), &forged).await.unwrap_err();
    assert!(matches!(refused, CallError::Answered { status, .. } if status == 400));
    let status = client.status().await.unwrap();
    assert_eq!(status.turns.len(), 1);
    assert_eq!(
        (status.turns[0].turn_id, status.turns[0].state),
        (turn, RunState::Running)
    );
    assert!(!witness.exists());
}

#[tokio::test]
async fn a_record_that_cannot_be_made_starts_nothing_and_may_be_put_again() {
    let (sandbox, client) = Sandbox::linked().await;
    let (turns, aside) = (sandbox.path("turns"), sandbox.path("aside"));
    fs::rename(&turns, &aside).unwrap();
    fs::write(&turns, "not a directory").unwrap();
    let turn = TurnId::random();
    let request = PutTurnRequest::new(run(&["true"]));
    let refused = client.put_turn(turn, &request).await.unwrap_err();
    assert!(matches!(refused, CallError::Answered { status, .. } if status == 500));
    assert_eq!(client.turn(turn).await.unwrap(), None);
    fs::remove_file(&turns).unwrap();
    fs::rename(&aside, &turns).unwrap();
    assert!(matches!(
        client.put_turn(turn, &request).await.unwrap(),
        PutTurn::Started { .. }
    ));
    assert_eq!(told(&client, turn, 0).await.exit().code.0, Some(0));
}

#[tokio::test]
async fn a_command_that_removes_the_records_ends_and_further_turns_run() {
    let (sandbox, client) = Sandbox::linked().await;
    let turns = sandbox.path("turns");
    // Without output, with some in one segment of the log, and with more than a segment holds.
    for output in ["true", "echo gone", "head -c 9000000 /dev/zero"] {
        let remove = format!("rm -rf {}; {output}", turns.display());
        let turn = begin(&client, shell(&remove)).await;
        until("the Turn ended", async || {
            let record = client.turn(turn).await.unwrap().unwrap();
            record.state == RunState::Ended
        })
        .await;
        let offset = client.turn(turn).await.unwrap().unwrap().offset;
        if offset > 0 {
            let refused = client.output(turn, 0).await.err();
            assert!(matches!(refused, Some(OutputError::OutOfRange)), "{refused:?}");
        }
        finish(&client, turn, offset).await;
        assert_eq!(client.status().await.unwrap().turns, []);
        assert_eq!(perform(&client, run(&["echo", "on"])).await.stdout, b"on\n");
    }
}

#[tokio::test]
async fn the_next_turn_may_start_as_soon_as_the_last_exit_is_told() {
    let (_sandbox, client) = Sandbox::linked().await;
    for _ in 0..50 {
        let turn = begin(&client, run(&["true"])).await;
        told(&client, turn, 0).await;
    }
    assert_eq!(client.status().await.unwrap().turns.len(), 50);
}
