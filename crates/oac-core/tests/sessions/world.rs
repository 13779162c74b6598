//! A Core with a scripted node, and Sessions made through the API.

use std::time::Duration;

use oac_core::{
    allocations::{self, Cause},
    placement,
};
use oac_model::{AllocationId, AllocationState, ProjectId, SessionId, TurnId};
use oac_store::AllocationRow;
use oac_testkit::{
    core::{Answer, TestCore},
    wait,
};
use oac_wire::shapes::{LinkResource, LinkResourceKind};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{node::Node, sandbox::Sandbox};

pub struct World {
    pub core: TestCore,
    pub node: Node,
}

/// A Session, its allocation, and its sandbox, not linked yet.
pub struct Placed {
    pub session: SessionId,
    pub allocation: AllocationId,
    pub sandbox: Sandbox,
}

impl World {
    pub async fn start() -> Self {
        Self::on(TestCore::start().await, 4).await
    }

    pub async fn start_postgres() -> Self {
        Self::on(TestCore::start_postgres().await, 4).await
    }

    /// One whose node takes so many sandboxes.
    pub async fn on(core: TestCore, room: u32) -> Self {
        core.deploy(1, 512).await;
        placement::refresh_deployment(core.core()).await;
        let node = Node::start(&core, room).await;
        Self { core, node }
    }

    /// A Session whose sandbox was created.
    pub async fn place(&self) -> Placed {
        let session = self.post("/v1/sessions", &json!({})).await.expect(201);
        self.sandbox_of(id(&session["id"])).await
    }

    /// The Session's present sandbox, once it was created.
    pub async fn sandbox_of(&self, session: SessionId) -> Placed {
        let row = self
            .eventually("a running allocation", async || {
                let row = self
                    .core
                    .core()
                    .store
                    .single()
                    .latest_allocation(session)
                    .await
                    .unwrap()?;
                (row.state == AllocationState::Running).then_some(row)
            })
            .await;
        let credential = self.node.host.lock().credentials[&row.id].clone();
        Placed {
            session,
            allocation: row.id,
            sandbox: Sandbox::new(credential, resource(&row)),
        }
    }

    /// Gives the node other labels, of which Core hears with its next connection.
    pub async fn label_node(&mut self, labels: &[(&str, &str)]) {
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        self.node.kill().await;
        let tx = self.core.core().begin().await.unwrap();
        tx.set_node_labels(self.node.id(), &labels.collect())
            .await
            .unwrap();
        tx.commit().await.unwrap();
        self.node.connect(&self.core).await;
    }

    /// The sandbox is given up as lost; waits until nothing of it is left.
    #[allow(
        dead_code,
        reason = "the tests of Turns give sandboxes up for other causes too"
    )]
    pub async fn lose_sandbox(&self, placed: &Placed) {
        let tx = self.core.core().begin().await.unwrap();
        tx.lock_session(placed.session).await.unwrap();
        allocations::begin_cleanup(&tx, placed.allocation, Cause::ComputeLost)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        self.core.core().pokes.allocations.notify_one();
        self.eventually("no sandbox", async || {
            self.session(placed.session).await["placement"]
                .is_null()
                .then_some(())
        })
        .await;
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.core.application(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.core.application(Method::POST, path, Some(body)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.core.application(Method::DELETE, path, None).await
    }

    /// Submits a command; its Turn.
    pub async fn submit(&self, session: SessionId, program: &str) -> TurnId {
        let answer = self.input(session, program).await.expect(202);
        id(&answer["turn"]["id"])
    }

    pub async fn input(&self, session: SessionId, program: &str) -> Answer {
        self.post(
            &format!("/v1/sessions/{session}/inputs"),
            &json!({ "args": [program] }),
        )
        .await
    }

    pub async fn session(&self, session: SessionId) -> Value {
        self.get(&format!("/v1/sessions/{session}")).await.expect(200)
    }

    pub async fn turn(&self, session: SessionId, turn: TurnId) -> Value {
        self.get(&format!("/v1/sessions/{session}/turns/{turn}"))
            .await
            .expect(200)
    }

    pub async fn cancel(&self, session: SessionId, turn: TurnId) -> Value {
        self.post(&format!("/v1/sessions/{session}/turns/{turn}/cancel"), &json!({}))
            .await
            .expect(202)
    }

    /// Waits until the Turn is in `state`.
    pub async fn until_turn(&self, session: SessionId, turn: TurnId, state: &str) -> Value {
        self.eventually(&format!("a Turn {state}"), async || {
            let shown = self.turn(session, turn).await;
            (shown["state"] == state).then_some(shown)
        })
        .await
    }

    pub async fn until_linked(&self, placed: &Placed) {
        self.eventually("a ready link", async || {
            self.core.core().links.ready(placed.allocation).map(drop)
        })
        .await;
    }

    pub async fn allocation(&self, id: AllocationId) -> AllocationRow {
        self.core
            .core()
            .store
            .single()
            .allocation(id)
            .await
            .unwrap()
            .unwrap()
    }

    pub async fn eventually<T>(&self, what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
        wait::until(what, Duration::from_secs(40), look).await.unwrap()
    }
}

pub fn resource(row: &AllocationRow) -> LinkResource {
    LinkResource {
        tenant_id: row.tenant_id,
        environment_id: row.environment_id,
        kind: LinkResourceKind::Allocation,
        id: row.id,
        generation: row.link_generation,
    }
}

pub fn id<T: std::str::FromStr>(value: &Value) -> T {
    value
        .as_str()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("not an id: {value}"))
}

/// What is stored of a Project's Sessions.
pub async fn stored_sessions(core: &TestCore, project: ProjectId) -> usize {
    core.core()
        .store
        .single()
        .sessions_of_project(project, None, None, 1000)
        .await
        .unwrap()
        .len()
}
