//! A whole installation on this machine for one test: Core, the engine, nodes, a Project.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use oac_model::{InstallationId, Secret};
use oac_testkit::{
    engine::{Engine, Leftovers},
    installation::{Installation, Node},
    program,
    runtime_image::RuntimeImage,
    wait,
};
use serde_json::{Value, json};

/// How long anything in a story may take before it counts as broken.
pub const PATIENCE: Duration = Duration::from_secs(150);

/// Smallest sandbox there is, so that several fit on a small machine.
pub const CPUS: u32 = 1;
pub const MEMORY_MIB: u64 = 512;

/// The host's address that containers of every engine reach.
pub async fn gateway() -> IpAddr {
    Engine::of_tests().await.bridge_gateway().await.unwrap()
}

/// An installation with its deployment saved and its network made; nodes are added by the test.
pub struct Story {
    pub installation: Installation,
    pub engine: Engine,
    pub image: RuntimeImage,
    pub id: InstallationId,
    pub project: String,
    pub key: Secret,
    pub cli_config: PathBuf,
    folder: tempfile::TempDir,
    ended: bool,
}

impl Story {
    /// Core on SQLite (or on `database`), reachable from containers.
    pub async fn begin(database: Option<&str>) -> Self {
        Self::begin_with(database, RuntimeImage::of_tests()).await
    }

    /// Likewise, with sandboxes of `image`.
    pub async fn begin_with(database: Option<&str>, image: RuntimeImage) -> Self {
        let engine = Engine::of_tests().await;
        Self::begin_on(engine, database, image, None).await
    }

    /// Likewise, with nodes on `engine`, and with `public` as the address that nodes and sandboxes are told instead of Core's own.
    pub async fn begin_on(
        engine: Engine,
        database: Option<&str>,
        image: RuntimeImage,
        public: Option<SocketAddr>,
    ) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::Builder::new().prefix("oac-story-").tempdir().unwrap();
        let gateway = gateway().await;
        let programs = program::built_programs();
        let started = match public {
            None => {
                Installation::start(&programs, folder.path(), gateway, database, program::Tie::Bound).await
            }
            Some(public) => {
                let listen = SocketAddr::new(gateway, oac_testkit::port::unused(gateway).unwrap());
                let addresses = (listen, public);
                Installation::start_behind(&programs, folder.path(), addresses, database, program::Tie::Bound)
                    .await
            }
        };
        let installation = started.unwrap_or_else(|e| panic!("{e}"));
        installation
            .deploy(CPUS, MEMORY_MIB, &image.selection())
            .await
            .unwrap_or_else(|e| panic!("{e}"));
        let id = installation.installation_id().await.unwrap();
        engine.create_node_network(id).await.unwrap();
        let (project, key) = installation.project("story").await.unwrap();
        let cli_config = installation.write_cli_config(&key).unwrap();
        Self {
            installation,
            engine,
            image,
            id,
            project,
            key,
            cli_config,
            folder,
            ended: false,
        }
    }

    pub async fn add_node(&self, name: &str, max_active: u32) -> Node {
        self.installation
            .add_node(&self.engine, name, max_active, oac_release::SECCOMP_PROFILE)
            .await
            .unwrap_or_else(|e| panic!("{e}"))
    }

    /// One that manages generations.
    pub async fn add_managing_node(&self, name: &str, max_active: u32) -> Node {
        self.installation
            .add_managing_node(&self.engine, name, max_active, oac_release::SECCOMP_PROFILE)
            .await
            .unwrap_or_else(|e| panic!("{e}"))
    }

    /// An application's request; panics unless it succeeds.
    pub async fn app(&self, method: &'static str, path: &str, body: Option<&Value>) -> Value {
        self.installation
            .call(method, path, &self.key, body)
            .await
            .unwrap_or_else(|e| panic!("{e}"))
    }

    /// An application's request, whatever the answer: status and body.
    pub async fn try_app(&self, method: &'static str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let (status, text) = self
            .installation
            .try_call(method, path, &self.key, body)
            .await
            .unwrap_or_else(|e| panic!("{e}"));
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// An operator's request; panics unless it succeeds.
    pub async fn operator(&self, method: &'static str, path: &str, body: Option<&Value>) -> Value {
        let key = &self.installation.core_key;
        self.installation
            .call(method, path, key, body)
            .await
            .unwrap_or_else(|e| panic!("{e}"))
    }

    /// A new Session's id.
    pub async fn new_session(&self) -> String {
        self.app("POST", "/v1/sessions", Some(&json!({}))).await["id"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Waits until the Session's document satisfies `holds`, and returns it.
    pub async fn session_until(&self, session: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let path = format!("/v1/sessions/{session}");
        wait::until(what, PATIENCE, async || {
            let session = self.app("GET", &path, None).await;
            holds(&session).then_some(session)
        })
        .await
        .unwrap_or_else(|e| panic!("{e}\nCore's log:\n{}", self.installation.core_log()))
    }

    /// Waits until the Turn ended, and returns it.
    pub async fn turn_end(&self, session: &str, turn: &str) -> Value {
        let path = format!("/v1/sessions/{session}/turns/{turn}");
        wait::until("the Turn ends", PATIENCE, async || {
            let turn = self.app("GET", &path, None).await;
            (!turn["ended_at"].is_null()).then_some(turn)
        })
        .await
        .unwrap_or_else(|e| panic!("{e}\nCore's log:\n{}", self.installation.core_log()))
    }

    /// Submits a shell command; the Turn's id.
    pub async fn submit(&self, session: &str, script: &str) -> String {
        let body = json!({ "args": ["bash", "-c", script] });
        let answer = self
            .app("POST", &format!("/v1/sessions/{session}/inputs"), Some(&body))
            .await;
        answer["turn"]["id"].as_str().unwrap().to_owned()
    }

    /// `oac` with this installation's configuration and a closed standard input.
    pub fn oac(&self) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(self.installation.program("oac"));
        command
            .arg("--config")
            .arg(&self.cli_config)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// `oac session exec` of a shell script: exit status, standard output, standard error.
    pub async fn exec(&self, session: &str, script: &str) -> (Option<i32>, String, String) {
        let output = self
            .oac()
            .args(["session", "exec", session, "--", "bash", "-c", script])
            .output()
            .await
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// Containers of this installation.
    pub async fn containers(&self) -> Vec<String> {
        self.engine.leftovers(self.id).await.unwrap().containers
    }

    /// Waits until the engine holds no container and no volume of this installation.
    pub async fn until_empty(&self) {
        wait::until("containers and volumes are gone", PATIENCE, async || {
            let left = self.engine.leftovers(self.id).await.ok()?;
            (left.containers.is_empty() && left.volumes.is_empty()).then_some(())
        })
        .await
        .unwrap_or_else(|e| panic!("{e}\nCore's log:\n{}", self.installation.core_log()));
    }

    /// Waits until no allocation is left in Core.
    pub async fn until_released(&self) {
        self.until_released_but(0).await;
    }

    /// Waits until only `rest` allocations are left in Core.
    pub async fn until_released_but(&self, rest: usize) {
        self.until("allocations are released", async || {
            let all = self.operator("GET", "/core/v1/sandbox/allocations", None).await;
            all["data"].as_array().is_some_and(|all| all.len() == rest)
        })
        .await;
    }

    /// Waits until `holds`.
    pub async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        wait::until(what, PATIENCE, async || holds().await.then_some(()))
            .await
            .unwrap_or_else(|e| panic!("{e}\nCore's log:\n{}", self.installation.core_log()));
    }

    pub async fn left(&self) -> Leftovers {
        self.engine.leftovers(self.id).await.unwrap()
    }

    /// How many of this installation's containers run.
    pub async fn running_containers(&self) -> usize {
        let filter = format!("label=io.oac.installation={}", self.id);
        self.docker(&["ps", "-q", "--filter", &filter, "--filter", "status=running"])
            .await
            .lines()
            .count()
    }

    /// The engine's own command line; its output.
    pub async fn docker(&self, arguments: &[&str]) -> String {
        let output = tokio::process::Command::new("docker")
            .args(arguments)
            .env("DOCKER_HOST", self.engine.host())
            .output()
            .await
            .unwrap();
        assert!(
            output.status.success(),
            "docker {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The arguments and environments of every process on this machine.
    pub fn every_command_line() -> String {
        let mut text = String::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            for file in ["cmdline", "environ"] {
                let bytes = std::fs::read(entry.path().join(file)).unwrap_or_default();
                text.push_str(&String::from_utf8_lossy(&bytes));
                text.push('\n');
            }
        }
        text
    }

    /// The types of the Session's events so far.
    pub async fn event_kinds(&self, session: &str) -> Vec<String> {
        let text = self
            .read_events(
                &format!("/v1/sessions/{session}/events?after=0"),
                "environment.reset",
            )
            .await;
        text.lines()
            .filter_map(|l| l.strip_prefix("event:"))
            .map(|l| l.trim().to_owned())
            .collect()
    }

    /// Runs a shell command to its end, through the API: the Turn and its output, both streams together.
    pub async fn run(&self, session: &str, script: &str) -> (Value, String) {
        let turn = self.submit(session, script).await;
        let ended = self.turn_end(session, &turn).await;
        (ended, self.output(session, &turn).await)
    }

    /// A Turn's stored output, both streams together, once it ended.
    pub async fn output(&self, session: &str, turn: &str) -> String {
        String::from_utf8_lossy(&self.output_bytes(session, turn).await).into_owned()
    }

    /// Likewise, as bytes.
    pub async fn output_bytes(&self, session: &str, turn: &str) -> Vec<u8> {
        self.output_of(&format!("/v1/sessions/{session}/turns/{turn}/output?offset=0"))
            .await
    }

    /// The bytes of an output stream of the API, read to its end.
    pub async fn output_of(&self, path: &str) -> Vec<u8> {
        let text = self.read_events(path, "end").await;
        let records = text
            .lines()
            .filter_map(|l| l.strip_prefix("data:"))
            .filter_map(|l| {
                let record: Value = serde_json::from_str(l).ok()?;
                oac_wire::B64::decode(record["data"].as_str()?.as_bytes())
            });
        records.flat_map(|b| b.0).collect()
    }

    /// Reads an event stream until an event of type `last` was read whole.
    async fn read_events(&self, path: &str, last: &str) -> String {
        let client = reqwest::Client::new();
        let mut response = client
            .get(format!("{}{path}", self.installation.url))
            .bearer_auth(self.key.expose())
            .send()
            .await
            .unwrap();
        assert!(response.status().is_success(), "{path}: {}", response.status());
        let mut text = String::new();
        // No further back than this can the last event begin. All of it is ASCII.
        let (end, mut looked) = (format!("event: {last}\n"), 0);
        let read = async {
            while let Some(chunk) = response.chunk().await.unwrap() {
                text.push_str(&String::from_utf8_lossy(&chunk));
                looked = text[looked..]
                    .find(&end)
                    .map_or(text.len().saturating_sub(end.len()), |at| looked + at);
                if text[looked..].starts_with(&end) && text[looked..].contains("\n\n") {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(PATIENCE, read).await;
        text
    }

    /// Ends everything and gives the engine back as it was.
    pub async fn end(mut self, nodes: Vec<Node>) {
        for mut node in nodes {
            node.stop().await;
        }
        self.installation.stop_core().await;
        self.engine.clear(self.id).await.unwrap();
        self.ended = true;
        let left = self.engine.leftovers(self.id).await.unwrap();
        assert!(left.containers.is_empty() && left.volumes.is_empty(), "{left:?}");
    }

    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }
}

impl Drop for Story {
    /// One that did not come to its end, as in a failed test, leaves no containers behind either.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let filter = format!("label=io.oac.installation={}", self.id);
        let script = format!(
            "docker ps -aq --filter {filter} | xargs -r docker rm -f; docker volume ls -q --filter {filter} | xargs -r docker volume rm; docker network ls -q --filter {filter} | xargs -r docker network rm"
        );
        let _ = std::process::Command::new("sh")
            .args(["-c", &script])
            .env("DOCKER_HOST", self.engine.host())
            .stdout(Stdio::null())
            .status();
    }
}
