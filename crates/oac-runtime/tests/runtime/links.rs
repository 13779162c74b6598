use std::{collections::HashSet, fs};

use oac_link::{CloseReason, Refusal};

use crate::acceptor::{CREDENTIAL, Sandbox, perform, shell, until};

// inv: INV-S12
#[tokio::test]
async fn the_credential_is_in_the_hello_and_nowhere_else() {
    let mut sandbox = Sandbox::new().await;
    sandbox.start();
    let (client, hello) = sandbox.acceptor.link().await;
    assert_eq!(hello.credential.expose(), CREDENTIAL);
    let seen = sandbox.acceptor.request.to_lowercase();
    assert!(seen.contains("/api/v1/sandbox-link"), "{seen}");
    assert!(
        !seen.contains(CREDENTIAL) && !seen.contains("authorization"),
        "{seen}"
    );
    let proc = |file: &str| fs::read(format!("/proc/{}/{file}", sandbox.pid())).unwrap();
    for file in ["cmdline", "environ"] {
        let text = String::from_utf8(proc(file)).unwrap();
        assert!(!text.contains(CREDENTIAL), "{file}: {text}");
    }
    let told = perform(&client, shell("env; cat /proc/self/cmdline")).await;
    assert!(!String::from_utf8(told.all).unwrap().contains(CREDENTIAL));
    sandbox.terminate();
    let (_, log) = sandbox.finished().await;
    assert!(!log.contains(CREDENTIAL), "{log}");
}

// inv: INV-S13
#[tokio::test]
async fn a_linked_program_listens_on_no_port() {
    let (sandbox, client) = Sandbox::linked().await;
    client.status().await.unwrap();
    let pid = sandbox.pid();
    let own: HashSet<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|fd| Some(fs::read_link(fd.ok()?.path()).ok()?.to_str()?.to_owned()))
        .collect();
    let mut sockets = 0;
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        for line in fs::read_to_string(format!("/proc/{pid}/net/{table}"))
            .unwrap()
            .lines()
            .skip(1)
        {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if own.contains(&format!("socket:[{}]", fields[9])) {
                sockets += 1;
                assert_eq!(
                    (table, fields[3]),
                    ("tcp", "01"),
                    "not one established connection: {line}"
                );
            }
        }
    }
    assert_eq!(sockets, 1);
}

#[tokio::test]
async fn a_refusal_for_good_ends_the_program_with_its_code() {
    for (code, exit) in [
        (Refusal::CredentialRejected, 78),
        (Refusal::Revoked, 78),
        (Refusal::VersionUnsupported, 76),
    ] {
        let mut sandbox = Sandbox::new().await;
        sandbox.start();
        sandbox.acceptor.refuse(code).await;
        let (status, log) = sandbox.finished().await;
        assert_eq!(status.code(), Some(exit), "{log}");
        assert!(log.contains(&code.to_string()), "{log}");
    }
}

#[tokio::test]
async fn a_link_revoked_while_open_ends_the_program_with_78() {
    let (mut sandbox, client) = Sandbox::linked().await;
    client.close(CloseReason::Revoked);
    assert_eq!(sandbox.finished().await.0.code(), Some(78));
}

#[tokio::test]
async fn a_busy_core_is_tried_again_with_the_same_identity() {
    let mut sandbox = Sandbox::new().await;
    sandbox.start();
    let (opening, first) = sandbox.acceptor.hello().await;
    opening.refuse(Refusal::Busy).await;
    let (client, second) = sandbox.acceptor.link().await;
    assert_eq!(first, second);
    assert_eq!(client.status().await.unwrap().instance_id, first.instance_id);
}

#[tokio::test]
async fn bad_arguments_and_files_end_with_64_and_one_line() {
    let mut sandbox = Sandbox::new().await;
    fs::write(sandbox.path("bootstrap.json"), "{}").unwrap();
    sandbox.start();
    let (status, log) = sandbox.finished().await;
    assert_eq!(status.code(), Some(64));
    assert_eq!(log, "oac-runtime: bootstrap file: version is missing\n");
    fs::remove_file(sandbox.path("bootstrap.json")).unwrap();
    sandbox.start();
    let (status, log) = sandbox.finished().await;
    assert_eq!(status.code(), Some(64));
    assert_eq!(
        log,
        "oac-runtime: the bootstrap file cannot be read: no such file or directory\n"
    );
}

#[tokio::test]
async fn sigterm_cancels_the_turn_records_its_exit_and_ends_with_0() {
    let (mut sandbox, client) = Sandbox::linked().await;
    let turn = crate::acceptor::begin(&client, shell("echo up; exec sleep 1000")).await;
    crate::acceptor::first_output(&client, turn).await;
    let mut output = client.output(turn, 0).await.unwrap();
    sandbox.terminate();
    let mut told = crate::acceptor::Told::default();
    while let Ok(Some(item)) = output.next().await {
        told.push(item);
    }
    assert!(told.exit().canceled);
    assert_eq!(sandbox.finished().await.0.code(), Some(0));
    // The record outlives the program.
    sandbox.start();
    let (client, _) = sandbox.acceptor.link().await;
    let record = client.turn(turn).await.unwrap().unwrap();
    assert_eq!(record.exit.0, told.exit);
}

#[tokio::test]
async fn orphans_are_collected() {
    let (sandbox, client) = Sandbox::linked().await;
    perform(
        &client,
        shell("setsid sh -c 'sleep 0.05' >/dev/null 2>&1 & setsid true &"),
    )
    .await;
    let children = format!("/proc/{0}/task/{0}/children", sandbox.pid());
    until("no child is left", async || {
        fs::read_to_string(&children).unwrap().is_empty()
    })
    .await;
}
