//! Another Core takes over while a Turn runs (core.md section 3, sessions.md section 8). Its owner is the program
//! itself, which can be stopped, killed and frozen; the Core in the test's process stands by.

use std::net::SocketAddr;

use oac_link::service::OutputStreamName::{Stderr, Stdout};
use oac_model::TurnId;
use oac_store::Dispatch;
use oac_testkit::{
    between::Relay,
    core::{Answer, CoreOptions, TestCore, send},
    core_program::CoreProgram,
};
use reqwest::Method;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Error;

use crate::{
    reader::whole,
    runtime::Runtime,
    sandbox::{Connection, exit_code},
    world::{Placed, World, id},
};

const EXE: &str = env!("CARGO_BIN_EXE_oac-core");

/// The owner, and a standby: the world's Core.
struct Pair {
    world: World,
    owner: CoreProgram,
    placed: Placed,
}

impl Pair {
    async fn start() -> Self {
        let mut world = World::start_postgres().await;
        let placed = world.place().await;
        let owner = CoreProgram::in_place_of(&mut world.core, EXE.as_ref()).await;
        world.core.start_again().await;
        assert!(world.core.core().owner.ownership().is_none());
        Self { world, owner, placed }
    }

    async fn ask_owner(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut request = client
            .request(method, format!("{}{path}", self.owner.url))
            .bearer_auth(self.world.core.project_key.expose());
        if let Some(body) = body {
            request = request.json(&body);
        }
        send(request).await
    }

    async fn submit(&self) -> TurnId {
        let path = format!("/v1/sessions/{}/inputs", self.placed.session);
        let body = json!({ "args": ["write"] });
        let answer = self.ask_owner(Method::POST, &path, Some(body)).await.expect(202);
        id(&answer["turn"]["id"])
    }

    /// A Turn that runs under the owner and has written a lot, of which the owner has stored something.
    async fn running(&self) -> (Connection, TurnId) {
        let connection = self.placed.sandbox.connect(&self.owner.url).await;
        let turn = self.submit().await;
        self.placed.sandbox.started(0).await;
        self.placed.sandbox.write(turn, Stdout, &bytes(2_000_000));
        self.world
            .eventually("some of it stored", async || {
                (stored(&self.world, turn).await > 0).then_some(())
            })
            .await;
        (connection, turn)
    }
}

/// The Turn goes on at the present owner and ends there.
async fn ends(world: &World, placed: &Placed, turn: TurnId) {
    let connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(placed).await;
    placed.sandbox.write(turn, Stderr, b"the last words");
    placed.sandbox.exit(turn, exit_code(3));
    let ended = world.until_turn(placed.session, turn, "completed").await;
    assert_eq!(ended["exit_code"], 3);
    placed.sandbox.finally_acknowledged(turn).await;
    let written = placed.sandbox.written(turn);
    let (bytes, end) = whole(&world.core, placed.session, turn).await;
    assert!(bytes == written, "stored is what was written, once and in order");
    assert_eq!(end["output_bytes"], written.len());
    assert_eq!(placed.sandbox.starts(), [turn]);
    let acks = placed.sandbox.acks(turn);
    assert!(acks.iter().all(|ack| ack.offset <= written.len() as u64));
    assert_eq!(acks.iter().filter(|ack| ack.is_final).count(), 1, "settled once");
    // It stays as it is, whatever connects later.
    connection.cut().await;
    let _again = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(placed).await;
    assert_eq!(world.turn(placed.session, turn).await, ended);
    let events = world.core.core().store.single();
    let events = events.events_after(placed.session, 0, 100).await.unwrap();
    for kind in ["turn.started", "turn.ended"] {
        assert_eq!(
            events.iter().filter(|e| e.kind.as_str() == kind).count(),
            1,
            "{kind}"
        );
    }
}

/// Prints, waits for the file `go`, prints on; each start leaves a line in `starts`.
const LONG_COMMAND: &str = "echo started >> starts; i=0; \
    while [ $i -lt 4000 ]; do echo \"line $i\"; i=$((i+1)); done; \
    until [ -e go ]; do echo waiting >&2; sleep 0.05; done; \
    while [ $i -lt 8000 ]; do echo \"line $i\"; i=$((i+1)); done; exit 5";

// inv: INV-S2, INV-S4
#[tokio::test]
async fn pg_a_command_under_the_real_runtime_runs_on_while_its_owner_is_killed_and_a_standby_takes_over() {
    let pair = Pair::start().await;
    // One address for whichever Core it leads to now, as installations with a standby have.
    let relay = Relay::to(address_of(&pair.owner.url)).await;
    let runtime = Runtime::dialing(&format!("http://{}", relay.address), &pair.placed);
    let folder = tempfile::tempdir().unwrap();
    let body = json!({ "args": ["sh", "-c", LONG_COMMAND], "cwd": folder.path() });
    let path = format!("/v1/sessions/{}/inputs", pair.placed.session);
    let admitted = pair.ask_owner(Method::POST, &path, Some(body)).await.expect(202);
    let turn: TurnId = id(&admitted["turn"]["id"]);
    pair.world
        .eventually("some of it stored", async || {
            (stored(&pair.world, turn).await > 0).then_some(())
        })
        .await;
    pair.owner.program.kill().await;
    // Whatever the runtime reaches in between answers 503 before the upgrade.
    relay.lead_to(address_of(&pair.world.core.url));
    pair.world.core.core().owner.owned().await;
    pair.world.until_linked(&pair.placed).await;
    std::fs::write(folder.path().join("go"), "").unwrap();
    let ended = pair
        .world
        .until_turn(pair.placed.session, turn, "completed")
        .await;
    assert_eq!(ended["exit_code"], 5);
    let (bytes, end) = whole(&pair.world.core, pair.placed.session, turn).await;
    let printed: Vec<u8> = bytes
        .iter()
        .filter(|(s, _)| *s == "stdout")
        .map(|(_, b)| *b)
        .collect();
    let lines: String = (0..8000).map(|i| format!("line {i}\n")).collect();
    assert!(printed == lines.as_bytes(), "every line once, in order");
    let waited: Vec<u8> = bytes
        .iter()
        .filter(|(s, _)| *s == "stderr")
        .map(|(_, b)| *b)
        .collect();
    assert_eq!(waited, b"waiting\n".repeat(waited.len() / 8));
    assert_eq!(end["output_bytes"], bytes.len());
    let starts = std::fs::read_to_string(folder.path().join("starts")).unwrap();
    assert_eq!(starts, "started\n");
    runtime.kill().await;
}

fn address_of(url: &str) -> SocketAddr {
    url.trim_start_matches("http://").parse().unwrap()
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 251) as u8).collect()
}

/// Bytes of the Turn in the database, whoever owns it.
async fn stored(world: &World, turn: TurnId) -> u64 {
    let row = world.core.core().store.single().turn(turn).await.unwrap();
    row.unwrap().output_bytes
}

#[tokio::test]
async fn pg_a_standby_answers_a_sandbox_503_before_the_upgrade() {
    let owner = TestCore::start_postgres().await;
    let standby = owner
        .beside(CoreOptions {
            standby: true,
            ..CoreOptions::default()
        })
        .await;
    let url = format!("{}/api/v1/sandbox-link", standby.url.replacen("http", "ws", 1));
    let refused = tokio_tungstenite::connect_async(url).await.map(drop);
    let Err(Error::Http(response)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(response.status().as_u16(), 503);
    assert_eq!(response.headers()["retry-after"], "2");
}

// inv: INV-S2, INV-S3, INV-S4
#[tokio::test]
async fn pg_a_standby_goes_on_with_a_turn_whose_owner_was_stopped() {
    let pair = Pair::start().await;
    let (connection, turn) = pair.running().await;
    assert_eq!(pair.owner.program.stop().await, Some(0));
    connection.ended().await;
    pair.placed.sandbox.write(turn, Stdout, b"while nobody owned");
    pair.world.core.core().owner.owned().await;
    ends(&pair.world, &pair.placed, turn).await;
}

// inv: INV-S2, INV-S3, INV-S4
#[tokio::test]
async fn pg_a_standby_goes_on_with_a_turn_whose_owner_was_killed() {
    let pair = Pair::start().await;
    let (connection, turn) = pair.running().await;
    pair.owner.program.kill().await;
    connection.ended().await;
    pair.placed.sandbox.write(turn, Stdout, b"while nobody owned");
    pair.world.core.core().owner.owned().await;
    ends(&pair.world, &pair.placed, turn).await;
}

// inv: INV-S2
#[tokio::test]
async fn pg_a_standby_starts_no_turn_again_whose_start_the_killed_owner_never_heard_of() {
    let pair = Pair::start().await;
    let connection = pair.placed.sandbox.connect(&pair.owner.url).await;
    pair.placed.sandbox.lose_put_answers(true);
    let turn = pair.submit().await;
    pair.placed.sandbox.started(0).await;
    connection.ended().await;
    pair.owner.program.kill().await;
    pair.placed.sandbox.lose_put_answers(false);
    pair.world.core.core().owner.owned().await;
    ends(&pair.world, &pair.placed, turn).await;
}

// inv: INV-S2
#[tokio::test]
async fn pg_a_standby_sends_a_turn_that_the_killed_owner_sent_and_the_sandbox_never_started() {
    let pair = Pair::start().await;
    let connection = pair.placed.sandbox.connect(&pair.owner.url).await;
    pair.placed.sandbox.hold_puts(true);
    let turn = pair.submit().await;
    pair.world
        .eventually("a Turn recorded as sent", async || {
            let row = pair.world.core.core().store.single().turn(turn).await.unwrap();
            (row?.dispatch == Dispatch::Sent).then_some(())
        })
        .await;
    pair.owner.program.kill().await;
    connection.ended().await;
    pair.placed.sandbox.hold_puts(false);
    assert_eq!(pair.placed.sandbox.starts(), []);
    pair.world.core.core().owner.owned().await;
    let _connection = pair.placed.sandbox.connect(&pair.world.core.url).await;
    assert_eq!(pair.placed.sandbox.started(0).await, turn);
    ends(&pair.world, &pair.placed, turn).await;
}

// inv: INV-C1, INV-S2, INV-S3, INV-S4
#[tokio::test]
async fn pg_an_owner_frozen_past_its_lease_stores_nothing_more_when_it_moves_again() {
    let pair = Pair::start().await;
    let (connection, turn) = pair.running().await;
    pair.owner.program.freeze();
    // Output and a request are under way to the frozen owner.
    pair.placed.sandbox.write(turn, Stdout, &bytes(300_000));
    let path = format!("/v1/sessions/{}/inputs", pair.placed.session);
    let late = pair.ask_owner(Method::POST, &path, Some(json!({ "args": ["late"] })));
    let taken = async {
        pair.world.core.core().owner.owned().await;
        let second = pair.placed.sandbox.connect(&pair.world.core.url).await;
        pair.world.until_linked(&pair.placed).await;
        pair.owner.program.thaw();
        second
    };
    let (late, second) = tokio::join!(late, taken);
    assert_eq!((late.status.as_u16(), late.code()), (503, "core_standby"));
    connection.ended().await;
    let cancel = format!("/v1/sessions/{}/turns/{turn}/cancel", pair.placed.session);
    let refused = pair.ask_owner(Method::POST, &cancel, Some(json!({}))).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (503, "core_standby"));
    drop(second);
    ends(&pair.world, &pair.placed, turn).await;
}

// inv: INV-C1, INV-S2, INV-S3, INV-S4, INV-S5
#[tokio::test]
async fn pg_an_owner_that_does_not_know_yet_that_another_took_over_stores_nothing_more() {
    let former = World::start_postgres().await;
    let placed = former.place().await;
    let connection = placed.sandbox.connect(&former.core.url).await;
    let turn = former.submit(placed.session, "write").await;
    placed.sandbox.started(0).await;
    placed.sandbox.write(turn, Stdout, b"under the former owner");
    placed.sandbox.acknowledged(turn, 22).await;
    // For its clock the lease has expired.
    let mut owner = former
        .core
        .beside(CoreOptions {
            standby: true,
            clock_offset_millis: 20_000,
            ..CoreOptions::default()
        })
        .await;
    owner.core().owner.owned().await;
    // The former owner still has the link, and follows.
    placed.sandbox.write(turn, Stdout, &bytes(100_000));
    connection.ended().await;
    assert_eq!(
        stored(&former, turn).await,
        22,
        "nothing of it is stored by the former owner"
    );
    assert!(placed.sandbox.acks(turn).iter().all(|ack| ack.offset <= 22));
    let World { core, node } = former;
    owner.project_key = core.project_key.clone();
    let world = World { core: owner, node };
    ends(&world, &placed, turn).await;
}
