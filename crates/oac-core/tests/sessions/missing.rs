//! A sandbox that was found missing and links again.

use oac_model::AllocationId;
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    node::Receipt,
    world::{Placed, World},
};

impl World {
    async fn shown_allocation(&self, id: AllocationId) -> Value {
        let list = self
            .core
            .operator(Method::GET, "/core/v1/sandbox/allocations", None)
            .await
            .expect(200);
        let all = list["data"].as_array().unwrap();
        all.iter().find(|a| a["id"] == id.to_string()).unwrap().clone()
    }

    async fn until_discardable(&self, placed: &Placed) {
        self.eventually("it is discardable", async || {
            let shown = self.shown_allocation(placed.allocation).await;
            (shown["discardable"] == true).then_some(())
        })
        .await;
    }

    async fn until_sandbox(&self, placed: &Placed, state: &str) {
        self.eventually(&format!("a sandbox {state}"), async || {
            (self.session(placed.session).await["sandbox"]["state"] == state).then_some(())
        })
        .await;
    }
}

// req: G-238
#[tokio::test]
async fn a_missing_sandbox_that_links_again_is_given_up_by_nobody_and_shown_as_running_at_once() {
    let mut world = World::start().await;
    let placed = world.place().await;
    let connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    world.until_sandbox(&placed, "running").await;

    // Its node finds nothing, which proves nothing: it is not lost, however often it is looked for.
    world.node.kill().await;
    connection.close().await;
    let host = world.node.host.clone();
    let found = |is: bool| {
        let mut host = host.lock();
        let native = host.natives.get_mut(&placed.allocation).unwrap();
        native.receipt = if is { Receipt::Settled } else { Receipt::None };
        (native.running, native.volumes) = (is, is);
    };
    found(false);
    world.node.connect(&world.core).await;
    world.until_sandbox(&placed, "missing").await;
    world.until_discardable(&placed).await;

    // It links, and the node still says otherwise: it runs.
    let connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    let shown = world.shown_allocation(placed.allocation).await;
    assert_eq!(shown["discardable"], false, "{shown}");
    let path = format!("/core/v1/sandbox/allocations/{}/discard", placed.allocation);
    let body = json!({ "accept_loss": true });
    let answer = world.core.operator(Method::POST, &path, Some(&body)).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (409, "sandbox_not_discardable"),
        "{}",
        answer.body
    );
    connection.close().await;
    world.until_discardable(&placed).await;

    // Found again, it is asked for at once, not when the next look is due.
    found(true);
    let _connection = placed.sandbox.connect(&world.core.url).await;
    world.until_sandbox(&placed, "running").await;
    let shown = world.shown_allocation(placed.allocation).await;
    assert_eq!(
        (&shown["discardable"], &shown["diagnostic"]),
        (&json!(false), &json!(""))
    );
}
