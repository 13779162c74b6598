//! Core's end of the link in a test, and the program started against it.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use oac_link::{
    Hello, LinkClient, LinkEnd, Opening, OutputItem, PutTurn, Refusal, Socket, Welcome,
    service::{Ack, Exit, OutputStreamName, PutTurnRequest, Run},
};
use oac_model::{AllocationId, EnvironmentId, Generation, LinkId, OwnerEpoch, ProjectId, TurnId};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::{
    accept_hdr_async_with_config,
    tungstenite::{
        handshake::server::{ErrorResponse, Request, Response},
        protocol::WebSocketConfig,
    },
};

/// Far beyond what anything here takes; a test that waits this long has failed.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) const CREDENTIAL: &str = "5ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2";

/// Accepts links as Core does.
pub(crate) struct Acceptor {
    listener: TcpListener,
    links: JoinSet<LinkEnd>,
    tls: Option<TlsAcceptor>,
    /// Request line and headers of the latest upgrade, as text.
    pub request: String,
}

impl Acceptor {
    pub(crate) async fn bind(address: &str) -> Self {
        Self {
            listener: TcpListener::bind(address).await.unwrap(),
            links: JoinSet::new(),
            tls: None,
            request: String::new(),
        }
    }

    /// One that speaks TLS as `core.listed.test`, with a certificate of the test authority.
    pub(crate) async fn bind_tls(address: &str) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certificate = CertificateDer::from_pem_slice(include_bytes!("tls/server.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/server.key.pem")).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        Self {
            tls: Some(Arc::new(config).into()),
            ..Self::bind(address).await
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// The next WebSocket and its hello.
    pub(crate) async fn hello(&mut self) -> (Opening, Hello) {
        loop {
            let (stream, _) = timeout(LONG, self.listener.accept()).await.unwrap().unwrap();
            stream.set_nodelay(true).unwrap();
            let Some(tls) = &self.tls else {
                return self.upgrade(stream).await;
            };
            // One that does not trust this acceptor leaves; the next may.
            if let Ok(stream) = tls.accept(stream).await {
                return self.upgrade(stream).await;
            }
        }
    }

    async fn upgrade(
        &mut self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> (Opening, Hello) {
        let seen = Arc::new(Mutex::new(String::new()));
        let config = WebSocketConfig::default()
            .max_message_size(Some(oac_link::limits::MESSAGE_BYTES))
            .max_frame_size(Some(oac_link::limits::MESSAGE_BYTES));
        let look = {
            let seen = seen.clone();
            #[allow(clippy::result_large_err, reason = "the library's signature")]
            move |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
                *seen.lock().unwrap() = format!("{} {:?}", request.uri(), request.headers());
                Ok(response)
            }
        };
        let socket = accept_hdr_async_with_config(stream, look, Some(config))
            .await
            .unwrap();
        self.request = seen.lock().unwrap().clone();
        let mut opening = Opening::new(Socket::from_tungstenite(socket));
        let hello = opening.hello().await.unwrap();
        (opening, hello)
    }

    /// Whether the next connection ends in its TLS handshake.
    pub(crate) async fn is_distrusted(&mut self) -> bool {
        let (stream, _) = timeout(LONG, self.listener.accept()).await.unwrap().unwrap();
        self.tls.as_ref().unwrap().accept(stream).await.is_err()
    }

    /// The next link, welcomed.
    pub(crate) async fn link(&mut self) -> (LinkClient, Hello) {
        let (opening, hello) = self.hello().await;
        let welcome = Welcome {
            connection_id: LinkId::random(),
            owner_epoch: OwnerEpoch::FIRST,
        };
        let (client, driver) = opening.welcome(welcome).await.unwrap();
        self.links.spawn(driver.run());
        (client, hello)
    }

    pub(crate) async fn refuse(&mut self, code: Refusal) {
        let (opening, _) = self.hello().await;
        opening.refuse(code).await;
    }
}

/// A bootstrap file's text for the acceptor at `host`, or at a whole origin.
pub(crate) fn bootstrap(host: &str) -> String {
    let origin = match host.contains("://") {
        true => host.to_owned(),
        false => format!("ws://{host}"),
    };
    serde_json::json!({
        "version": 1,
        "link_url": format!("{origin}/api/v1/sandbox-link"),
        "credential": CREDENTIAL,
        "resource": {
            "tenant_id": ProjectId::random(),
            "environment_id": EnvironmentId::random(),
            "kind": "allocation",
            "id": AllocationId::random(),
            "generation": Generation::FIRST,
        },
    })
    .to_string()
}

/// The program, its home, and where it links to. Killed when dropped.
pub(crate) struct Sandbox {
    pub acceptor: Acceptor,
    pub home: TempDir,
    pub process: Option<Child>,
}

impl Sandbox {
    /// A home with a bootstrap file; nothing runs yet.
    pub(crate) async fn new() -> Self {
        let acceptor = Acceptor::bind("127.0.0.1:0").await;
        let home = TempDir::new().unwrap();
        let text = bootstrap(&acceptor.address().to_string());
        std::fs::write(home.path().join("bootstrap.json"), text).unwrap();
        Self {
            acceptor,
            home,
            process: None,
        }
    }

    /// A running and linked program.
    pub(crate) async fn linked() -> (Self, LinkClient) {
        let mut sandbox = Self::new().await;
        sandbox.start();
        let (client, _) = sandbox.acceptor.link().await;
        (sandbox, client)
    }

    /// A running and linked program whose `/run` is its own and has the folder for its socket. Takes the right to mount.
    pub(crate) async fn linked_with_run() -> (Self, LinkClient) {
        let run = "mount -t tmpfs tmpfs /run && mkdir -m 0700 /run/oac";
        Self::new().await.linked_behind(run).await
    }

    /// Likewise one whose Turns are kept on a disk of `size`.
    pub(crate) async fn linked_with_small_disk(size: &str) -> (Self, LinkClient) {
        let sandbox = Self::new().await;
        let turns = sandbox.path("turns");
        let disk = format!(
            "mkdir {0} && mount -t tmpfs -o size={size} tmpfs {0}",
            turns.display()
        );
        sandbox.linked_behind(&disk).await
    }

    /// Starts it behind `mounts`, which only it sees.
    async fn linked_behind(self, mounts: &str) -> (Self, LinkClient) {
        let mut sandbox = self;
        let script = format!("{mounts} && exec \"$0\" \"$@\"");
        let process = Command::new("unshare")
            .args([
                "--mount",
                "--propagation",
                "private",
                "--",
                "/bin/sh",
                "-c",
                &script,
            ])
            .arg(env!("CARGO_BIN_EXE_oac-runtime"))
            .arg("--bootstrap-file")
            .arg(sandbox.home.path().join("bootstrap.json"))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        sandbox.process = Some(process);
        let (client, _) = sandbox.acceptor.link().await;
        (sandbox, client)
    }

    pub(crate) fn start(&mut self) {
        let process = Command::new(env!("CARGO_BIN_EXE_oac-runtime"))
            .arg("--bootstrap-file")
            .arg(self.home.path().join("bootstrap.json"))
            .env_clear()
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        self.process = Some(process);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(self.process.as_ref().unwrap());
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// SIGKILL, as a crash would.
    pub(crate) fn crash(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// The program's end by itself, and what it printed.
    pub(crate) async fn finished(&mut self) -> (ExitStatus, String) {
        let process = self.process.take().unwrap();
        let output = timeout(LONG, tokio::task::spawn_blocking(|| process.wait_with_output()));
        let output = output.await.unwrap().unwrap().unwrap();
        (
            output.status,
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
        self.end_turn();
    }
}

impl Sandbox {
    /// Ends what the killed program left running, which outlives it here as it does not in a container.
    fn end_turn(&self) {
        let noted = std::fs::read_to_string(self.path(".latest-turn")).unwrap_or_default();
        let mark = noted.split_once('\n').map_or("", |(_, mark)| mark);
        let mark: serde_json::Value = serde_json::from_str(mark).unwrap_or_default();
        let (Some(pid), Some(started)) = (mark["pid"].as_i64(), mark["started"].as_u64()) else {
            return;
        };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let since = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .nth(19);
        if since == Some(&started.to_string())
            && let Some(group) = rustix::process::Pid::from_raw(pid as i32)
        {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

pub(crate) fn run(args: &[&str]) -> Run {
    Run {
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        cwd: "/".to_owned(),
        env: BTreeMap::new(),
        stdin: Vec::new().into(),
        timeout_ms: 3_600_000,
    }
}

pub(crate) fn shell(script: &str) -> Run {
    run(&["/bin/sh", "-c", script])
}

/// Starts `run` under a new id.
pub(crate) async fn begin(client: &LinkClient, run: Run) -> TurnId {
    let turn = TurnId::random();
    let put = client.put_turn(turn, &PutTurnRequest::new(run)).await.unwrap();
    assert!(matches!(put, PutTurn::Started { .. }), "{put:?}");
    turn
}

/// All output from `offset` on, stdout and stderr together and apart, and the exit. Acknowledges as Core does.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub all: Vec<u8>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit: Option<Exit>,
}

impl Told {
    pub(crate) fn push(&mut self, item: OutputItem) {
        match item {
            OutputItem::Data { stream, data, .. } => {
                self.all.extend_from_slice(&data);
                match stream {
                    OutputStreamName::Stdout => self.stdout.extend_from_slice(&data),
                    OutputStreamName::Stderr => self.stderr.extend_from_slice(&data),
                }
            }
            OutputItem::End { exit, .. } => self.exit = Some(exit),
        }
    }

    pub(crate) fn exit(&self) -> &Exit {
        self.exit.as_ref().unwrap()
    }
}

/// Follows to the end, acknowledging what comes; a busy host may take its time, as long as something comes.
pub(crate) async fn told(client: &LinkClient, turn: TurnId, offset: u64) -> Told {
    let mut told = Told::default();
    let mut output = client.output(turn, offset).await.unwrap();
    loop {
        let batch = timeout(LONG, output.next_batch(1 << 20)).await.unwrap().unwrap();
        if batch.is_empty() {
            return told;
        }
        for item in batch {
            told.push(item);
        }
        let ack = Ack {
            offset: output.offset(),
            is_final: false,
        };
        assert!(timeout(LONG, client.ack(turn, ack)).await.unwrap().unwrap());
    }
}

/// Begins, follows to the end, and acknowledges it.
pub(crate) async fn perform(client: &LinkClient, run: Run) -> Told {
    let turn = begin(client, run).await;
    let told = told(client, turn, 0).await;
    finish(client, turn, told.all.len() as u64).await;
    told
}

pub(crate) async fn finish(client: &LinkClient, turn: TurnId, offset: u64) {
    let ack = Ack {
        offset,
        is_final: true,
    };
    assert!(client.ack(turn, ack).await.unwrap());
}

/// Waits until `condition` holds.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let poll = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, poll)
        .await
        .unwrap_or_else(|_| panic!("waited in vain until {what}"));
}

/// The first bytes of a Turn's output, without acknowledging them.
pub(crate) async fn first_output(client: &LinkClient, turn: TurnId) -> Bytes {
    let mut output = client.output(turn, 0).await.unwrap();
    match timeout(LONG, output.next()).await.unwrap().unwrap() {
        Some(OutputItem::Data { data, .. }) => data,
        other => panic!("no output but {other:?}"),
    }
}
