//! Three nodes on the real engine, and Sessions whose commands count, behind one address: what holds of them whichever
//! Core owns them, however often it was killed or replaced.

use std::net::SocketAddr;

use oac_testkit::{between::Relay, installation::Node};
use oac_tests::story::Story;
use serde_json::{Value, json};

pub(crate) const NODES: [&str; 3] = ["one", "two", "three"];
/// On each node.
const SLOTS: u32 = 3;
/// Counts until it is told to stop, and tells how often it was started.
const COUNT: &str = "echo started >> starts; i=0; \
    until [ -e stop ]; do i=$((i+1)); echo $i; sleep 0.05; done; echo end; wc -l < starts";

pub(crate) struct Field {
    pub(crate) story: Story,
    pub(crate) nodes: Vec<Node>,
    /// The present owner's.
    pub(crate) epoch: i64,
    /// What nodes and sandboxes know as Core.
    pub(crate) front: Relay,
    /// Each with a command that counts.
    counting: Vec<(String, String)>,
    /// Others.
    sessions: Vec<String>,
}

impl Field {
    /// Every node of the story whose Core is behind `front`, with a command that counts on each.
    pub(crate) async fn begin(story: Story, front: Relay) -> Self {
        let mut nodes = Vec::new();
        for name in NODES {
            nodes.push(story.add_node(name, SLOTS).await);
        }
        let mut field = Self {
            story,
            nodes,
            epoch: 0,
            front,
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

    pub(crate) async fn deployment(&self) -> Option<Value> {
        let installation = &self.story.installation;
        let path = "/core/v1/sandbox/deployment";
        let answer = installation.call("GET", path, &installation.core_key, None).await;
        answer.ok()
    }

    /// Waits until the present owner, under the present epoch, has every node.
    pub(crate) async fn is_whole(&self) {
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
    pub(crate) async fn counts_on(&self) {
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

    /// A Session, asked of the Core at `core` itself; its sandbox is under way when this returns.
    pub(crate) async fn ask_for_a_session(&mut self, core: SocketAddr) {
        let answer = self
            .story
            .installation
            .http()
            .post(format!("http://{core}/v1/sessions"))
            .bearer_auth(self.story.key.expose())
            .json(&json!({}))
            .send()
            .await
            .unwrap();
        let session: Value = answer.json().await.unwrap();
        self.sessions.push(session["id"].as_str().unwrap().to_owned());
    }

    /// Asks for a reset; the generation that it ends.
    pub(crate) async fn ask_for_a_reset(&self, clear: &str) -> i64 {
        let generation = self.deployment().await.unwrap()["generation"].as_i64().unwrap();
        let body = json!({ "expected_generation": generation, "clear": clear });
        let path = "/core/v1/sandbox/deployment/reset";
        let asked = self.story.operator("POST", path, Some(&body)).await;
        assert_eq!(asked["reset"]["clear"], *clear);
        generation
    }

    /// Waits until only the commands that count are left.
    pub(crate) async fn until_only_counting(&self) {
        self.story.until_released_but(self.counting.len()).await;
    }

    /// The reset of this generation completes, once, when nothing is left; `actions` is what the audit log tells of it.
    pub(crate) async fn is_reset(&self, generation: i64, actions: &[&str]) {
        self.story
            .until("the deployment is reset", async || {
                let Some(deployment) = self.deployment().await else {
                    return false;
                };
                adds_up(&deployment);
                deployment["reset"].is_null() && deployment["provider"].is_null()
            })
            .await;
        let left = self.story.left().await;
        assert!(left.containers.is_empty() && left.volumes.is_empty(), "{left:?}");
        let after = self.deployment().await.unwrap();
        assert_eq!(
            (&after["generation"], &after["owner_epoch"]),
            (&json!(generation + 1), &json!(self.epoch + 1)),
            "one completion"
        );
        assert_eq!(after["resources"], json!({ "allocations": 0, "pending": 0 }));
        let told = self.told(&["reset_start", "reset_force", "reset_complete"]).await;
        let told: Vec<_> = told.iter().map(|(action, _)| action.as_str()).collect();
        assert_eq!(told, actions);
        let mut archived = self.told(&["archive"]).await;
        archived.sort_unstable();
        let mut all: Vec<_> = self.all().collect();
        all.sort_unstable();
        assert_eq!(
            archived.iter().map(|(_, id)| id).collect::<Vec<_>>(),
            all,
            "each once"
        );
        for node in &self.nodes {
            self.story
                .until("the retired node's program ended", async || {
                    node.log().contains("refuses this node's credential")
                })
                .await;
        }
    }

    /// How often the audit log has each action about a resource, by action and resource.
    async fn told(&self, of: &[&str]) -> Vec<(String, String)> {
        let log = self.story.operator("GET", "/core/v1/audit?limit=100", None).await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let entries = log["data"].as_array().unwrap();
        assert!(entries.len() < 100, "one page holds all");
        entries
            .iter()
            .rev()
            .map(|entry| (text(&entry["action"]), text(&entry["resource_id"])))
            .filter(|(action, _)| of.contains(&action.as_str()))
            .collect()
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        let counting = self.counting.iter().map(|(session, _)| session);
        self.sessions.iter().chain(counting)
    }

    /// Every Session works, and every allocation has one container.
    pub(crate) async fn everything_works(&self) {
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
    }

    /// The commands that count are told to stop: each was started once, and all it ever wrote is stored once.
    pub(crate) async fn stop_counting(&self) {
        // Detached: the sandbox may be gone before its engine has told how that ended.
        for container in self.story.containers().await {
            self.story
                .docker(&["exec", "--detach", &container, "touch", "/workspace/stop"])
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
    }

    /// Every Session is archived, and nothing is left.
    pub(crate) async fn archive_all(&self) {
        for session in self.all() {
            let path = format!("/v1/sessions/{session}");
            self.story.app("DELETE", &path, None).await;
        }
        self.story.until_empty().await;
        self.story.until_released().await;
    }
}

/// What a standing reset says is left is what the deployment says it holds.
fn adds_up(deployment: &Value) {
    let remaining = &deployment["reset"]["remaining"];
    if remaining.is_null() {
        return;
    }
    let count = |of: &Value, name: &str| of[name].as_u64().unwrap();
    let left = ["busy", "idle", "cleanup"].map(|name| count(remaining, name));
    let held = ["allocations", "pending"].map(|name| count(&deployment["resources"], name));
    assert_eq!(left.iter().sum::<u64>(), held.iter().sum::<u64>(), "{deployment}");
}
