//! Two Core programs on one PostgreSQL, behind one address, with three nodes on the real engine: whichever of them is
//! killed, frozen, stopped or cut off, and whatever becomes of the database, another one goes on under the next epoch,
//! every command runs on and was started once, and every allocation has one container.

use std::{net::SocketAddr, path::PathBuf};

use oac_testkit::{
    between::Relay,
    core_process::{self, CoreSettings},
    engine::Engine,
    port,
    postgres::{Durability, PrivateServer},
    program::{Program, Tie},
    runtime_image::RuntimeImage,
};
use oac_tests::story::{Story, gateway};
use serde_json::{Value, json};

use crate::field::{Field, NODES};

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

/// What becomes of the nodes after a takeover.
enum Nodes {
    Return,
    /// They need not all be seen online again.
    MayBeRetired,
}

/// Two Cores and what they own in turn.
struct Pair {
    field: Field,
    cores: [Core; 2],
    owner: usize,
    server: PrivateServer,
}

impl Pair {
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
        Self {
            field: Field::begin(story, front).await,
            cores: [first, second],
            owner: 0,
            server,
        }
    }

    fn owner(&self) -> &Core {
        &self.cores[self.owner]
    }

    fn standby(&self) -> &Core {
        &self.cores[1 - self.owner]
    }

    /// Kills the owner and starts it again once the standby owns; with `nodes`, once that has all of them too.
    async fn owner_is_killed(&mut self, nodes: Nodes) {
        let killed = self.owner;
        self.cores[killed].program.take().unwrap().kill().await;
        self.standby_owns().await;
        if let Nodes::Return = nodes {
            self.field.is_whole().await;
        }
        self.cores[killed].start(&self.field.story).await;
    }

    /// Waits until the standby owns, leads everybody there, and waits until all nodes are back.
    async fn standby_takes_over(&mut self) {
        self.standby_owns().await;
        self.field.is_whole().await;
    }

    /// Waits until the standby owns, and leads everybody there.
    async fn standby_owns(&mut self) {
        let standby = self.standby();
        self.field
            .story
            .until("the standby owns", async || standby.is_ready().await)
            .await;
        self.owner = 1 - self.owner;
        self.field.epoch += 1;
        self.field.front.lead_to(self.owner().listen);
        self.field.front.passage.cut();
    }

    /// A Session, asked of the owner itself.
    async fn ask_for_a_session(&mut self) {
        let owner = self.owner().listen;
        self.field.ask_for_a_session(owner).await;
    }

    /// Everything works and lost nothing; then nothing is left.
    async fn end(self) {
        self.field.everything_works().await;
        self.field.stop_counting().await;
        self.field.archive_all().await;
        self.shut().await;
    }

    async fn shut(mut self) {
        for core in &mut self.cores {
            if let Some(program) = core.program.take() {
                assert_eq!(program.stop().await, Some(0));
            }
        }
        self.field.story.end(self.field.nodes).await;
    }
}

// inv: INV-C1, INV-C2, INV-C16, INV-C17, INV-S1, INV-S2, INV-S4, INV-S5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docker_two_cores_are_killed_stopped_and_frozen_in_turn_and_every_command_runs_on() {
    let mut pair = Pair::start().await;

    // Killed, while sandboxes are being created.
    for _ in NODES {
        pair.ask_for_a_session().await;
    }
    pair.owner_is_killed(Nodes::Return).await;
    pair.field.counts_on().await;

    // Stopped: the next one need not wait for the lease to run out.
    let stopped = pair.owner;
    pair.ask_for_a_session().await;
    let program = pair.cores[stopped].program.take().unwrap();
    assert_eq!(program.stop().await, Some(0));
    pair.standby_takes_over().await;
    pair.cores[stopped].start(&pair.field.story).await;
    pair.field.counts_on().await;

    // Frozen past its lease, with a request under way; when it moves again it does nothing more.
    let frozen = pair.owner;
    pair.ask_for_a_session().await;
    pair.cores[frozen].program().freeze();
    let request = pair.field.story.installation.http();
    let request = request
        .post(format!("{}/v1/sessions", pair.cores[frozen].url()))
        .bearer_auth(pair.field.story.key.expose())
        .json(&json!({ "name": "late" }));
    let taken = async {
        pair.standby_takes_over().await;
        pair.cores[frozen].program().thaw();
    };
    let (late, ()) = tokio::join!(request.send(), taken);
    let late = late.unwrap();
    assert_eq!(late.status().as_u16(), 503);
    let late: Value = late.json().await.unwrap();
    assert_eq!(late["error"]["code"], "core_standby");
    assert!(!pair.cores[frozen].is_ready().await);
    pair.field.is_whole().await;
    pair.field.counts_on().await;
    pair.end().await;
}

// inv: INV-C1, INV-C2, INV-C17, INV-S1, INV-S2, INV-S4, INV-S5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docker_an_owner_cut_off_from_database_or_nodes_and_a_database_that_crashes_lose_and_repeat_nothing()
{
    let mut pair = Pair::start().await;

    // The owner's line to the database goes dead: it stands by while it still cannot ask who owns.
    let former = pair.owner;
    pair.ask_for_a_session().await;
    pair.cores[former].database.passage.freeze();
    pair.standby_takes_over().await;
    let is_ready = async || pair.cores[former].is_ready().await;
    pair.field
        .story
        .until("the former owner stands by", async || !is_ready().await)
        .await;
    pair.cores[former].database.passage.thaw();
    pair.field.counts_on().await;

    // It breaks for a moment: the owner remains the owner.
    pair.owner().database.passage.cut();
    pair.ask_for_a_session().await;
    pair.field.is_whole().await;

    // Nodes and sandboxes are silent, then cut off, while a sandbox is being created.
    pair.field.front.passage.freeze();
    pair.ask_for_a_session().await;
    pair.field.front.passage.thaw();
    pair.field.counts_on().await;
    pair.ask_for_a_session().await;
    pair.field.front.passage.cut();
    pair.field.is_whole().await;
    pair.field.counts_on().await;

    // The database crashes and recovers. Whoever owns then goes on.
    pair.server.crash_and_start().unwrap();
    let ready = async || {
        let (owner, standby) = (pair.owner().is_ready().await, pair.standby().is_ready().await);
        owner || standby
    };
    pair.field.story.until("a Core owns", ready).await;
    if !pair.owner().is_ready().await {
        pair.standby_takes_over().await;
    }
    pair.ask_for_a_session().await;
    pair.field.is_whole().await;
    pair.field.counts_on().await;
    pair.end().await;
}

// inv: INV-C2, INV-C15, INV-C23
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docker_owners_killed_during_a_reset_are_followed_by_standbys_that_complete_it_once_and_leave_nothing()
 {
    let mut pair = Pair::start().await;
    for _ in NODES {
        pair.ask_for_a_session().await;
    }

    // Patient: what is idle, or still to come, is archived by whoever owns; what works goes on.
    pair.field.ask_for_a_reset("auto").await;
    pair.owner_is_killed(Nodes::Return).await;
    pair.field.until_only_counting().await;
    pair.field.counts_on().await;

    // Forced. The nodes may be retired before all of them have returned.
    let generation = pair.field.ask_for_a_reset("force").await;
    pair.owner_is_killed(Nodes::MayBeRetired).await;
    let actions = ["reset_start", "reset_force", "reset_complete"];
    pair.field.is_reset(generation, &actions).await;
    pair.shut().await;
}
