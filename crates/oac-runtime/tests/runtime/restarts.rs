use std::fs;

use oac_link::service::Exit;

use crate::acceptor::{Sandbox, begin, first_output, perform, run, shell, told};

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
