//! One Core program on SQLite with three nodes on the real engine: killed, cut off from its nodes, and killed again while
//! a reset stands, it goes on where it was, every command runs on and was started once.

use std::net::{IpAddr, SocketAddr};

use oac_testkit::{between::Relay, engine::Engine, runtime_image::RuntimeImage};
use oac_tests::story::{Story, gateway};

use crate::field::{Field, NODES};

/// The installation's Core, and what it owns.
struct One {
    field: Field,
    listen: SocketAddr,
}

impl One {
    async fn start() -> Self {
        let gateway = gateway().await;
        // It leads to Core as soon as there is one.
        let front = Relay::on(gateway, SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0)).await;
        let (engine, image) = (Engine::of_tests().await, RuntimeImage::of_tests());
        let story = Story::begin_on(engine, None, image, Some(front.address)).await;
        let listen = story
            .installation
            .url
            .trim_start_matches("http://")
            .parse()
            .unwrap();
        front.lead_to(listen);
        Self {
            field: Field::begin(story, front).await,
            listen,
        }
    }

    async fn ask_for_a_session(&mut self) {
        self.field.ask_for_a_session(self.listen).await;
    }

    /// Killed and started again: it owns at once, under the next epoch.
    async fn is_killed(&mut self) {
        let installation = &mut self.field.story.installation;
        installation.kill_core().await;
        installation.start_core().await.unwrap();
        self.field.epoch += 1;
    }
}

// inv: INV-C2, INV-C15, INV-C17, INV-C23, INV-S1, INV-S2, INV-S4, INV-S5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docker_a_core_on_sqlite_killed_and_cut_off_while_commands_run_and_a_reset_stands_loses_and_repeats_nothing()
 {
    let mut one = One::start().await;

    // Killed, while sandboxes are being created.
    for _ in NODES {
        one.ask_for_a_session().await;
    }
    one.is_killed().await;
    one.field.is_whole().await;
    one.field.counts_on().await;

    // Nodes and sandboxes are silent while a sandbox is being created; Core goes down before they are heard again.
    one.field.front.passage.freeze();
    one.ask_for_a_session().await;
    one.is_killed().await;
    one.field.front.passage.thaw();
    one.field.counts_on().await;
    one.field.is_whole().await;

    // They are cut off.
    one.ask_for_a_session().await;
    one.field.front.passage.cut();
    one.field.is_whole().await;
    one.field.counts_on().await;
    one.field.everything_works().await;

    // During a reset: before it has archived what is idle or still to come, while it waits for commands, and when those
    // have ended. What works is not disturbed.
    one.ask_for_a_session().await;
    let generation = one.field.ask_for_a_reset("auto").await;
    one.is_killed().await;
    one.field.is_whole().await;
    one.field.until_only_counting().await;
    one.field.counts_on().await;
    one.is_killed().await;
    one.field.counts_on().await;
    one.field.stop_counting().await;
    one.is_killed().await;
    one.field
        .is_reset(generation, &["reset_start", "reset_complete"])
        .await;
    one.field.story.end(one.field.nodes).await;
}
