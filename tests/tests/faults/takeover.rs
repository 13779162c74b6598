//! Two Core programs on one PostgreSQL, behind one address, with three nodes on the real engine: whichever of them is
//! killed, frozen, stopped or cut off, and whatever becomes of the database, another one goes on under the next epoch,
//! every command runs on and was started once, and every allocation has one container.

use std::{net::SocketAddr, path::PathBuf};

use oac_testkit::{
    between::Relay,
    core_process::{self, CoreSettings},
    engine::Engine,
    installation::Node,
    port,
    postgres::{Durability, PrivateServer},
    program::{Program, Tie},
    runtime_image::RuntimeImage,
};
use oac_tests::story::{Story, gateway};
use serde_json::{Value, json};

const NODES: [&str; 3] = ["one", "two", "three"];
/// On each node.
const SLOTS: u32 = 3;
/// Counts until it is told to stop, and tells how often it was started.
const COUNT: &str = "echo started >> starts; i=0; \
    until [ -e stop ]; do i=$((i+1)); echo $i; sleep 0.05; done; echo end; wc -l < starts";

/// One of the Cores, and its own line to the database.
struct Core {
    program: Option<Program>,
    listen: SocketAddr,
    config: PathBuf,
    log: PathBuf,
    database: Relay,
}

impl Core {
    fn url(&self) -> String {
        format!("http://{}", self.listen)
    }

    fn program(&self) -> &Program {
        self.program.as_ref().unwrap()
    }

    /// Starts the program (again) and waits until it answers, as owner or standby.
    async fn start(&mut self, story: &Story) {
        let exe = story.installation.program("oac-core");
        let mut program = core_process::start(&exe, &self.config, &self.log, Tie::Bound).unwrap();
        core_process::until_answered(&mut program, &self.url(), "healthz")
            .await
            .unwrap();
        self.program = Some(program);
    }

    async fn is_ready(&self) -> bool {
        let answer = reqwest::get(format!("{}/readyz", self.url())).await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }
}

struct Field {
    story: Story,
    nodes: Vec<Node>,
    cores: [Core; 2],
    owner: usize,
    epoch: i64,
    /// What nodes, sandboxes and callers know as Core.
    front: Relay,
    server: PrivateServer,
    /// Each with a command that counts.
    counting: Vec<(String, String)>,
    /// Others.
    sessions: Vec<String>,
}

impl Field {
    async fn start() -> Self {
        let server = PrivateServer::start(Durability::Real).unwrap();
        let lines = [
            Relay::to(server.address()).await,
            Relay::to(server.address()).await,
        ];
        let url = |line: &Relay| format!("postgres://postgres@{}/postgres", line.address);
        let gateway = gateway().await;
        // It leads to a Core as soon as there is one.
        let front = Relay::on(gateway, server.address()).await;
        let engine = Engine::of_tests().await;
        let image = RuntimeImage::of_tests();
        let mut story = Story::begin_on(engine, Some(&url(&lines[0])), image, Some(front.address)).await;
        let listen = SocketAddr::new(gateway, port::unused(gateway).unwrap());
        let public_url = format!("http://{}", front.address);
        let settings = CoreSettings {
            listen,
            public_url: Some(&public_url),
            database_url: &url(&lines[1]),
            database_password: None,
        };
        let config = settings.write(story.folder(), "second").unwrap();
        let [line, other_line] = lines;
        let first = Core {
            program: story.installation.take_core(),
            listen: story
                .installation
                .url
                .trim_start_matches("http://")
                .parse()
                .unwrap(),
            config: story.installation.core_config().to_owned(),
            log: story.folder().join("core.log"),
            database: line,
        };
        let mut second = Core {
            program: None,
            listen,
            config,
            log: story.folder().join("second.log"),
            database: other_line,
        };
        front.lead_to(first.listen);
        story.installation.url = public_url;
        second.start(&story).await;
        let mut nodes = Vec::new();
        for name in NODES {
            nodes.push(story.add_node(name, SLOTS).await);
        }
        let mut field = Self {
            story,
            nodes,
            cores: [first, second],
            owner: 0,
            epoch: 0,
            front,
            server,
            counting: Vec::new(),
            sessions: Vec::new(),
        };
        field.epoch = field.deployment().await.unwrap()["owner_epoch"].as_i64().unwrap();
        for _ in NODES {
            let session = field.story.new_session().await;
            let turn = field.story.submit(&session, COUNT).await;
            field.counting.push((session, turn));
        }
        field.counts_on().await;
        field
    }

    fn owner(&self) -> &Core {
        &self.cores[self.owner]
    }

    fn standby(&self) -> &Core {
        &self.cores[1 - self.owner]
    }

    async fn deployment(&self) -> Option<Value> {
        let installation = &self.story.installation;
        let path = "/core/v1/sandbox/deployment";
        let answer = installation.call("GET", path, &installation.core_key, None).await;
        answer.ok()
    }

    /// Waits until the standby owns, leads everybody there, and waits until all nodes are back.
    async fn standby_takes_over(&mut self) {
        let standby = self.standby();
        self.story
            .until("the standby owns", async || standby.is_ready().await)
            .await;
        self.owner = 1 - self.owner;
        self.epoch += 1;
        self.front.lead_to(self.owner().listen);
        self.front.passage.cut();
        self.is_whole().await;
    }

    /// Waits until the present owner, under the present epoch, has every node.
    async fn is_whole(&self) {
        let installation = &self.story.installation;
        let path = "/core/v1/sandbox/nodes";
        self.story
            .until("every node is back", async || {
                let Some(deployment) = self.deployment().await else {
                    return false;
                };
                assert_eq!(deployment["owner_epoch"], self.epoch, "{deployment}");
                let nodes = installation.call("GET", path, &installation.core_key, None).await;
                let Ok(nodes) = nodes else { return false };
                let ready = |node: &&Value| node["online"] == true && node["provider_ready"] == true;
                nodes["data"].as_array().unwrap().iter().filter(ready).count() == NODES.len()
            })
            .await;
    }

    /// Waits until more is stored of every command that counts.
    async fn counts_on(&self) {
        let stored = async |(session, turn): &(String, String)| {
            let path = format!("/v1/sessions/{session}/turns/{turn}");
            let installation = &self.story.installation;
            let turn = installation
                .call("GET", &path, &self.story.key, None)
                .await
                .ok()?;
            assert!(turn["ended_at"].is_null(), "{turn}");
            turn["output_bytes"].as_u64()
        };
        for one in &self.counting {
            let mut before = None;
            self.story
                .until("a command counts on", async || {
                    let now = stored(one).await;
                    before = before.or(now);
                    now > before
                })
                .await;
        }
    }

    /// A Session, asked of the owner itself; its sandbox is under way when this returns.
    async fn ask_for_a_session(&mut self) {
        let answer = self
            .story
            .installation
            .http()
            .post(format!("{}/v1/sessions", self.owner().url()))
            .bearer_auth(self.story.key.expose())
            .json(&json!({}))
            .send()
            .await
            .unwrap();
        let session: Value = answer.json().await.unwrap();
        self.sessions.push(session["id"].as_str().unwrap().to_owned());
    }

    /// Every Session works, every allocation has one container, every command ran once and lost nothing; then nothing
    /// is left.
    async fn end(mut self) {
        for session in &self.sessions {
            let (turn, said) = self.story.run(session, "echo alive").await;
            assert_eq!(
                (said.as_str(), &turn["exit_code"]),
                ("alive\n", &json!(0)),
                "{turn}"
            );
        }
        let allocations = self
            .story
            .operator("GET", "/core/v1/sandbox/allocations", None)
            .await;
        let allocations = allocations["data"].as_array().unwrap().iter();
        let mut allocations: Vec<&str> = allocations.map(|one| one["id"].as_str().unwrap()).collect();
        allocations.sort_unstable();
        assert_eq!(allocations.len(), self.sessions.len() + self.counting.len());
        let filter = format!("label=io.oac.installation={}", self.story.id);
        let format = "{{.Label \"io.oac.allocation\"}}";
        let containers = ["ps", "--all", "--filter", &filter, "--format", format];
        let containers = self.story.docker(&containers).await;
        let mut containers: Vec<&str> = containers.lines().collect();
        containers.sort_unstable();
        assert_eq!(containers, allocations, "one container for each allocation");

        for container in self.story.containers().await {
            self.story
                .docker(&["exec", &container, "touch", "/workspace/stop"])
                .await;
        }
        for (session, turn) in &self.counting {
            let ended = self.story.turn_end(session, turn).await;
            assert_eq!(
                (&ended["state"], &ended["exit_code"]),
                (&json!("completed"), &json!(0)),
                "{ended}"
            );
            let output = self.story.output(session, turn).await;
            let counted = output.lines().count() - 2;
            let expected: String = (1..=counted).map(|n| format!("{n}\n")).collect();
            assert!(output == expected + "end\n1\n", "{ended}: {output}");
        }
        let all = self
            .sessions
            .iter()
            .chain(self.counting.iter().map(|(session, _)| session));
        for session in all {
            let path = format!("/v1/sessions/{session}");
            self.story.app("DELETE", &path, None).await;
        }
        self.story.until_empty().await;
        self.story.until_released().await;
        for core in &mut self.cores {
            if let Some(program) = core.program.take() {
                assert_eq!(program.stop().await, Some(0));
            }
        }
        self.story.end(self.nodes).await;
    }
}

// inv: INV-C1, INV-C2, INV-C16, INV-C17, INV-S1, INV-S2, INV-S4, INV-S5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docker_two_cores_are_killed_stopped_and_frozen_in_turn_and_every_command_runs_on() {
    let mut field = Field::start().await;

    // Killed, while sandboxes are being created.
    for _ in NODES {
        field.ask_for_a_session().await;
    }
    let killed = field.owner;
    field.cores[killed].program.take().unwrap().kill().await;
    field.standby_takes_over().await;
    field.cores[killed].start(&field.story).await;
    field.counts_on().await;

    // Stopped: the next one need not wait for the lease to run out.
    let stopped = field.owner;
    field.ask_for_a_session().await;
    let program = field.cores[stopped].program.take().unwrap();
    assert_eq!(program.stop().await, Some(0));
    field.standby_takes_over().await;
    field.cores[stopped].start(&field.story).await;
    field.counts_on().await;

    // Frozen past its lease, with a request under way; when it moves again it does nothing more.
    let frozen = field.owner;
    field.ask_for_a_session().await;
    field.cores[frozen].program().freeze();
    let request = field.story.installation.http();
    let request = request
        .post(format!("{}/v1/sessions", field.cores[frozen].url()))
        .bearer_auth(field.story.key.expose())
        .json(&json!({ "name": "late" }));
    let taken = async {
        field.standby_takes_over().await;
        field.cores[frozen].program().thaw();
    };
    let (late, ()) = tokio::join!(request.send(), taken);
    let late = late.unwrap();
    assert_eq!(late.status().as_u16(), 503);
    let late: Value = late.json().await.unwrap();
    assert_eq!(late["error"]["code"], "core_standby");
    assert!(!field.cores[frozen].is_ready().await);
    field.is_whole().await;
    field.counts_on().await;
    field.end().await;
}

// inv: INV-C1, INV-C2, INV-C17, INV-S1, INV-S2, INV-S4, INV-S5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docker_an_owner_cut_off_from_database_or_nodes_and_a_database_that_crashes_lose_and_repeat_nothing()
{
    let mut field = Field::start().await;

    // The owner's line to the database goes dead: it stands by while it still cannot ask who owns.
    let former = field.owner;
    field.ask_for_a_session().await;
    field.cores[former].database.passage.freeze();
    field.standby_takes_over().await;
    let is_ready = async || field.cores[former].is_ready().await;
    field
        .story
        .until("the former owner stands by", async || !is_ready().await)
        .await;
    field.cores[former].database.passage.thaw();
    field.counts_on().await;

    // It breaks for a moment: the owner remains the owner.
    field.owner().database.passage.cut();
    field.ask_for_a_session().await;
    field.is_whole().await;

    // Nodes and sandboxes are silent, then cut off, while a sandbox is being created.
    field.front.passage.freeze();
    field.ask_for_a_session().await;
    field.front.passage.thaw();
    field.counts_on().await;
    field.ask_for_a_session().await;
    field.front.passage.cut();
    field.is_whole().await;
    field.counts_on().await;

    // The database crashes and recovers. Whoever owns then goes on.
    field.server.crash_and_start().unwrap();
    let ready = async || {
        let (owner, standby) = (field.owner().is_ready().await, field.standby().is_ready().await);
        owner || standby
    };
    field.story.until("a Core owns", ready).await;
    if !field.owner().is_ready().await {
        field.standby_takes_over().await;
    }
    field.ask_for_a_session().await;
    field.is_whole().await;
    field.counts_on().await;
    field.end().await;
}
