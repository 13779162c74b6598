use std::fs;

use oac_link::{
    PutTurn,
    service::{Exit, PutTurnRequest},
};
use oac_model::TurnId;

use crate::acceptor::{Sandbox, begin, finish, first_output, perform, run, shell, told, until};

// inv: INV-S6
#[tokio::test]
async fn after_a_crash_the_old_process_is_gone_its_output_kept_and_its_turn_interrupted() {
    let (mut sandbox, client) = Sandbox::linked().await;
    let witness = sandbox.path("witness");
    let script = format!(
        "trap '' TERM HUP; echo $$; while :; do echo x >> {}; sleep 0.01; done",
        witness.display()
    );
    let turn = begin(&client, shell(&script)).await;
    let pid = first_output(&client, turn).await;
    let pid = std::str::from_utf8(&pid).unwrap().trim().to_owned();
    let first = client.status().await.unwrap();
    sandbox.crash();
    sandbox.start();
    let (client, hello) = sandbox.acceptor.link().await;
    let status = client.status().await.unwrap();
    assert_ne!(hello.instance_id, first.instance_id);
    assert_eq!(status.boot_id, first.boot_id);
    let process = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(process.is_empty() || process.contains(") Z "), "{process}");
    let told = told(&client, turn, 0).await;
    assert_eq!(told.stdout, format!("{pid}\n").into_bytes());
    assert_eq!(told.exit(), &Exit::failed(Exit::RUNTIME_RESTARTED));
    // The new instance works.
    assert_eq!(perform(&client, run(&["true"])).await.exit().code.0, Some(0));
}

#[tokio::test]
async fn a_torn_log_is_cut_to_what_was_offered_and_a_torn_record_is_no_turn() {
    let (mut sandbox, client) = Sandbox::linked().await;
    let turn = begin(&client, shell("echo kept; exec sleep 1000")).await;
    first_output(&client, turn).await;
    sandbox.crash();
    let directory = sandbox.path("turns").join(turn.to_string());
    let log = directory.join("output-00000000000000000000");
    let mut bytes = fs::read(&log).unwrap();
    // A whole header, and a payload that never reached the disk.
    bytes.extend_from_slice(&[1, 0, 0, 5, 1, 2, 3, 4, 0, 0, 0, 0, 0]);
    fs::write(&log, bytes).unwrap();
    let never = sandbox.path("turns").join("99999999-9999-4999-8999-999999999999");
    fs::create_dir(&never).unwrap();
    fs::write(never.join("turn.json"), "{\"format\":1,").unwrap();
    sandbox.start();
    let (client, _) = sandbox.acceptor.link().await;
    assert_eq!(client.status().await.unwrap().turns.len(), 1);
    let told = told(&client, turn, 0).await;
    assert_eq!(told.all, b"kept\n");
    assert_eq!(told.exit(), &Exit::failed(Exit::RUNTIME_RESTARTED));
    assert!(!never.exists());
}

/// Core never heard that it started, and asks the next runtime to run it.
// inv: INV-S2
#[tokio::test]
async fn a_turn_that_removed_its_records_is_not_started_again_by_the_next_runtime() {
    let (mut sandbox, client) = Sandbox::linked().await;
    let witness = sandbox.path("witness");
    let script = format!(
        "echo once >> {}; cd {}; while [ -e turns ]; do rm -rf turns; done; exec sleep 1000",
        witness.display(),
        sandbox.home.path().display()
    );
    let request = PutTurnRequest::new(shell(&script));
    let turn = TurnId::random();
    client.put_turn(turn, &request).await.unwrap();
    until("the records are gone", async || !sandbox.path("turns").exists()).await;
    sandbox.crash();
    sandbox.start();
    let (client, _) = sandbox.acceptor.link().await;
    let put = client.put_turn(turn, &request).await.unwrap();
    assert!(matches!(put, PutTurn::Known { .. }), "{put:?}");
    let ended = told(&client, turn, 0).await;
    assert_eq!(ended.exit(), &Exit::failed(Exit::RUNTIME_RESTARTED));
    finish(&client, turn, 0).await;
    assert_eq!(client.status().await.unwrap().turns, []);
    assert_eq!(fs::read_to_string(&witness).unwrap(), "once\n");
}

#[tokio::test]
async fn whatever_commands_leave_in_the_records_the_next_runtime_links_and_works() {
    let (mut sandbox, client) = Sandbox::linked().await;
    let turns = sandbox.path("turns");
    let turn = begin(&client, shell("echo kept; exec sleep 1000")).await;
    first_output(&client, turn).await;
    sandbox.crash();
    // Neither a log nor a list, then nothing of the kind at all.
    let directory = turns.join(turn.to_string());
    let log = directory.join("output-00000000000000000000");
    fs::remove_file(&log).unwrap();
    fs::create_dir(&log).unwrap();
    fs::create_dir(turns.join("ended")).unwrap();
    for _ in 0..2 {
        sandbox.start();
        let (client, _) = sandbox.acceptor.link().await;
        let told = told(&client, turn, 0).await;
        assert_eq!(told.exit(), &Exit::failed(Exit::RUNTIME_RESTARTED));
        sandbox.crash();
    }
    fs::remove_dir_all(&turns).unwrap();
    fs::write(&turns, "not a directory").unwrap();
    sandbox.start();
    let (client, _) = sandbox.acceptor.link().await;
    assert_eq!(perform(&client, run(&["echo", "on"])).await.stdout, b"on\n");
}
