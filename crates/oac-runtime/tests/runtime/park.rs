//! Quiescing, parking and waking the real program. `/run` is one of its own, as a sandbox that is suspended has it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use futures_util::{FutureExt as _, stream};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use oac_link::{
    CallError, CloseReason, LinkClient, PortError, Quiesce, Refusal, StreamClass, empty,
    service::{Ack, PutTurnRequest, codes},
};
use oac_model::{OperationId, TurnId};
use tokio::{net::TcpListener, task::JoinSet, time::timeout};

use crate::acceptor::{LONG, Sandbox, begin, first_output, perform, shell, told, until};

/// `oac-runtime wake` in the sandbox.
fn wake_command(pid: u32, suspend_id: OperationId, as_user: Option<u32>) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--mount", "--target", &pid.to_string(), "--"]);
    if let Some(user) = as_user {
        command.args(["setpriv", "--clear-groups", "--reuid", &user.to_string(), "--"]);
    }
    command
        .arg(env!("CARGO_BIN_EXE_oac-runtime"))
        .args(["wake", "--suspend-id", &suspend_id.to_string()])
        .stderr(Stdio::null());
    command
}

/// Its exit status.
async fn wake(pid: u32, suspend_id: OperationId) -> Option<i32> {
    let mut command = wake_command(pid, suspend_id, None);
    let run = tokio::task::spawn_blocking(move || command.status().unwrap());
    timeout(LONG, run).await.unwrap().unwrap().code()
}

/// Quiesced and parked.
async fn park(sandbox: &Sandbox, client: LinkClient) -> OperationId {
    let id = OperationId::random();
    assert_eq!(client.quiesce(id).await.unwrap(), Quiesce::Quiesced);
    client.close(CloseReason::Parked);
    client.closed().await;
    until("the program has parked", async || quiet(sandbox.pid()).await).await;
    id
}

/// Everything by which a program that does something is told from one that does not.
#[derive(Debug, PartialEq, Eq)]
struct Footprint {
    /// How often each thread was given the processor, and what it used of it.
    threads: BTreeMap<String, (Vec<String>, Vec<String>)>,
    open: BTreeMap<String, String>,
    /// System calls that read or wrote, and their bytes.
    io: String,
    children: Vec<String>,
    files: BTreeMap<String, (u64, SystemTime)>,
}

fn footprint(pid: u32, home: &Path) -> Footprint {
    let of = |path: &str| fs::read_to_string(format!("/proc/{pid}/{path}")).unwrap();
    let names = |path: &str| -> Vec<String> {
        let entries = fs::read_dir(format!("/proc/{pid}/{path}")).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    let threads = names("task").into_iter().map(|thread| {
        let switches = of(&format!("task/{thread}/status"))
            .lines()
            .filter(|line| line.contains("ctxt_switches"))
            .map(str::to_owned)
            .collect();
        let stat = of(&format!("task/{thread}/stat"));
        let used = stat.rsplit(") ").next().unwrap().split(' ').skip(11).take(2);
        let used = used.map(str::to_owned).collect();
        (thread, (switches, used))
    });
    let open = names("fd").into_iter().map(|fd| {
        let to = fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap();
        (fd, to.display().to_string())
    });
    let mut files = BTreeMap::new();
    let mut folders = vec![home.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let about = entry.metadata().unwrap();
            if about.is_dir() {
                folders.push(entry.path());
            }
            files.insert(
                entry.path().display().to_string(),
                (about.len(), about.modified().unwrap()),
            );
        }
    }
    Footprint {
        threads: threads.collect(),
        open: open.collect(),
        io: of("io"),
        children: of(&format!("task/{pid}/children"))
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        files,
    }
}

/// Whether the program was not given the processor for a moment.
async fn quiet(pid: u32) -> bool {
    let nothing = tempfile::TempDir::new().unwrap();
    let now = || footprint(pid, nothing.path()).threads;
    let before = now();
    tokio::time::sleep(Duration::from_millis(300)).await;
    now() == before
}

// inv: INV-S14
#[tokio::test]
async fn a_parked_program_opens_no_connection_changes_no_file_and_starts_nothing_while_another_dials_on() {
    let (mut sandbox, client) = Sandbox::linked_with_run().await;
    // Its records exist, and a process that a Turn left in a session of its own goes on, as long as its file is there. The
    // Turn ends when it is in it.
    let marks = tempfile::TempDir::new().unwrap();
    let script = format!(
        "setsid sh -c '> {0}; while [ -e {0} ]; do sleep 0.1; done' & until [ -e {0} ]; do sleep 0.01; done; echo left",
        marks.path().join("left").display()
    );
    perform(&client, shell(&script)).await;
    park(&sandbox, client).await;
    let before = footprint(sandbox.pid(), sandbox.home.path());
    assert_eq!(before.children.len(), 1, "what the Turn left");
    assert!(before.files.keys().any(|path| path.contains("turns")));
    let sockets: BTreeSet<_> = before
        .open
        .values()
        .filter(|to| to.starts_with("socket:"))
        .collect();
    // That of wakes, and the pair on which signals arrive.
    assert_eq!(sockets.len(), 3, "{:?}", before.open);

    // Meanwhile a program that is not parked dials again and again.
    let mut other = Sandbox::new().await;
    other.start();
    for _ in 0..4 {
        other.acceptor.refuse(Refusal::Busy).await;
    }
    assert!(sandbox.acceptor.hello().now_or_never().is_none(), "it dials");
    assert_eq!(footprint(sandbox.pid(), sandbox.home.path()), before);
}

#[tokio::test]
async fn a_wake_ends_once_the_same_program_has_linked_again_and_is_harmless_to_repeat() {
    let (mut sandbox, client) = Sandbox::linked_with_run().await;
    let instance = client.status().await.unwrap().instance_id;
    let kept = begin(&client, shell("echo before")).await;
    let before = told(&client, kept, 0).await;
    assert_eq!(before.stdout, b"before\n");
    let id = park(&sandbox, client).await;
    let pid = sandbox.pid();
    // Two at once, and for another suspension none.
    assert_eq!(wake(pid, OperationId::random()).await, Some(64));
    assert!(sandbox.acceptor.hello().now_or_never().is_none());
    let (one, two, (client, hello)) = tokio::join!(wake(pid, id), wake(pid, id), sandbox.acceptor.link());
    assert_eq!((one, two), (Some(0), Some(0)));
    assert_eq!(hello.instance_id, instance);
    // One that is awake says so, for whatever suspension.
    assert_eq!(wake(pid, id).await, Some(0));
    assert_eq!(wake(pid, OperationId::random()).await, Some(0));
    let status = client.status().await.unwrap();
    assert!(!status.parked && status.instance_id == instance);
    assert!(status.turns.iter().any(|turn| turn.turn_id == kept));
    let after = perform(&client, shell("echo after")).await;
    assert_eq!(after.stdout, b"after\n");
    // And it can be parked again.
    let id = park(&sandbox, client).await;
    let (code, _) = tokio::join!(wake(pid, id), sandbox.acceptor.link());
    assert_eq!(code, Some(0));
}

#[tokio::test]
async fn a_wake_without_a_link_ends_with_75_and_a_later_one_with_0() {
    let (mut sandbox, client) = Sandbox::linked_with_run().await;
    let id = park(&sandbox, client).await;
    let pid = sandbox.pid();
    let busy = async {
        loop {
            sandbox.acceptor.refuse(Refusal::Busy).await;
        }
    };
    let code = tokio::select! {
        code = wake(pid, id) => code,
        () = busy => unreachable!("it never ends"),
    };
    assert_eq!(code, Some(75));
    let (code, _) = tokio::join!(wake(sandbox.pid(), id), sandbox.acceptor.link());
    assert_eq!(code, Some(0));
}

#[tokio::test]
async fn another_user_wakes_nobody() {
    let (mut sandbox, client) = Sandbox::linked_with_run().await;
    let id = park(&sandbox, client).await;
    let pid = sandbox.pid();
    let open = Command::new("nsenter")
        .args(["--mount", "--target", &pid.to_string(), "--"])
        .args(["chmod", "-R", "0777", "/run/oac"])
        .status()
        .unwrap();
    assert!(open.success());
    let before = footprint(pid, sandbox.home.path()).threads;
    let mut stranger = wake_command(pid, id, Some(12_345)).spawn().unwrap();
    until("the stranger was heard", async || {
        footprint(pid, sandbox.home.path()).threads != before
    })
    .await;
    assert!(sandbox.acceptor.hello().now_or_never().is_none());
    assert!(stranger.try_wait().unwrap().is_none(), "it was answered");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    let (code, _) = tokio::join!(wake(pid, id), sandbox.acceptor.link());
    assert_eq!(code, Some(0));
    sandbox.terminate();
    let (_, log) = sandbox.finished().await;
    assert!(log.contains("a wake of another user is refused"), "{log}");
}

async fn refused(client: &LinkClient) {
    assert_eq!(
        client.quiesce(OperationId::random()).await.unwrap(),
        Quiesce::Busy
    );
    // Refusing changes nothing.
    assert!(!client.status().await.unwrap().parked);
}

async fn accepted(sandbox: &mut Sandbox, client: &LinkClient) -> LinkClient {
    until("nothing is under way", async || {
        client.quiesce(OperationId::random()).await.unwrap() == Quiesce::Quiesced
    })
    .await;
    // A link that breaks off before the program is parked has it dial again and take work.
    client.close(CloseReason::GoingAway);
    sandbox.acceptor.link().await.0
}

// inv: INV-S15
#[tokio::test]
async fn a_running_turn_its_unacknowledged_output_an_open_file_and_an_open_port_each_refuse_quiescing() {
    let (mut sandbox, client) = Sandbox::linked_with_run().await;

    let turn = begin(&client, shell("echo out; exec sleep 1000")).await;
    refused(&client).await;
    first_output(&client, turn).await;
    assert!(
        client
            .cancel(turn, oac_link::service::Cancel { grace_ms: 0 })
            .await
            .unwrap()
    );
    until("the Turn has ended", async || {
        client.turn(turn).await.unwrap().unwrap().exit.0.is_some()
    })
    .await;
    refused(&client).await;
    let written = client.turn(turn).await.unwrap().unwrap().offset;
    assert!(written >= 4);
    let ack = |offset| Ack {
        offset,
        is_final: false,
    };
    assert!(client.ack(turn, ack(written - 1)).await.unwrap());
    refused(&client).await;
    assert!(client.ack(turn, ack(written)).await.unwrap());
    let client = accepted(&mut sandbox, &client).await;

    let (send, receive) = tokio::sync::mpsc::channel::<Result<Frame<bytes::Bytes>, std::io::Error>>(1);
    let pieces = stream::unfold(receive, |mut receive| async {
        Some((receive.recv().await?, receive))
    });
    let path = sandbox.path("upload");
    let request = Request::put(format!("/v1/files?path={}", path.display()))
        .header("content-length", "2")
        .body(StreamBody::new(pieces).map_err(Into::into).boxed_unsync())
        .unwrap();
    let mut putting = JoinSet::new();
    let uploader = client.clone();
    putting.spawn(async move {
        let answer = uploader.request(StreamClass::Bulk, request).await.unwrap();
        answer.status()
    });
    send.send(Ok(Frame::data("a".into()))).await.unwrap();
    until("the upload is under way", async || {
        client.quiesce(OperationId::random()).await.unwrap() == Quiesce::Busy
    })
    .await;
    refused(&client).await;
    send.send(Ok(Frame::data("b".into()))).await.unwrap();
    drop(send);
    assert!(putting.join_next().await.unwrap().unwrap().is_success());
    assert_eq!(fs::read(&path).unwrap(), b"ab");
    let client = accepted(&mut sandbox, &client).await;

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().try_into().unwrap();
    let tunnel = client.connect_port(port).await.unwrap();
    refused(&client).await;
    drop(tunnel);
    let client = accepted(&mut sandbox, &client).await;
    perform(&client, shell("true")).await;
}

#[tokio::test]
async fn once_quiesced_nothing_begins() {
    let (sandbox, client) = Sandbox::linked_with_run().await;
    let ended = begin(&client, shell("true")).await;
    told(&client, ended, 0).await;
    let id = OperationId::random();
    assert_eq!(client.quiesce(id).await.unwrap(), Quiesce::Quiesced);
    // Repeating is harmless; another suspension has to wait.
    assert_eq!(client.quiesce(id).await.unwrap(), Quiesce::Quiesced);
    assert_eq!(
        client.quiesce(OperationId::random()).await.unwrap(),
        Quiesce::Busy
    );
    assert!(client.status().await.unwrap().parked);
    let stopping = |error: CallError| match error {
        CallError::Answered { status, code } => {
            assert_eq!(
                (status, code.as_str()),
                (StatusCode::SERVICE_UNAVAILABLE, codes::STOPPING)
            );
        }
        other => panic!("{other}"),
    };
    let put = PutTurnRequest::new(shell("touch started"));
    stopping(client.put_turn(TurnId::random(), &put).await.unwrap_err());
    // The last acknowledgement removes files.
    let ack = Ack {
        offset: 0,
        is_final: true,
    };
    stopping(client.ack(ended, ack).await.unwrap_err());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().try_into().unwrap();
    let connected = client.connect_port(port).await;
    assert!(matches!(connected, Err(PortError::Busy)), "{connected:?}");
    let file = format!("/v1/files?path={}", sandbox.path("bootstrap.json").display());
    let request = Request::get(file).body(empty()).unwrap();
    let answer = client.request(StreamClass::Bulk, request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_quiesced_program_that_was_not_parked_is_woken_from_its_dead_link() {
    let (mut sandbox, client) = Sandbox::linked_with_run().await;
    let id = OperationId::random();
    assert_eq!(client.quiesce(id).await.unwrap(), Quiesce::Quiesced);
    // As after a restore of a copy that was made before the close arrived: the link looks open here.
    let (code, (client, _)) = tokio::join!(wake(sandbox.pid(), id), sandbox.acceptor.link());
    assert_eq!(code, Some(0));
    perform(&client, shell("true")).await;
}

#[tokio::test]
async fn a_sandbox_that_nothing_could_wake_refuses_to_be_quiesced_and_never_parks() {
    let (mut sandbox, client) = Sandbox::linked().await;
    let error = client.quiesce(OperationId::random()).await.unwrap_err();
    assert!(
        matches!(&error, CallError::Answered { status, .. } if *status == StatusCode::NOT_IMPLEMENTED),
        "{error}"
    );
    perform(&client, shell("true")).await;
    client.close(CloseReason::Parked);
    let (client, _) = sandbox.acceptor.link().await;
    perform(&client, shell("true")).await;
}

#[tokio::test]
async fn a_parked_program_still_ends_when_told_to() {
    let (mut sandbox, client) = Sandbox::linked_with_run().await;
    park(&sandbox, client).await;
    sandbox.terminate();
    let (status, log) = sandbox.finished().await;
    assert_eq!(status.code(), Some(0), "{log}");
}
