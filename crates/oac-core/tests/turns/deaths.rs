//! Core dies before and after each of its commits while a Session lives its life: commands, output, a cancel, an
//! archive. The life is the same each time; the death moves on by one commit until none is left to die at.

use std::time::Duration;

use oac_link::service::OutputStreamName::{Stderr, Stdout};
use oac_model::TurnId;
use oac_store::Side;
use oac_testkit::core::{Answer, TestCore, send};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    reader::whole,
    sandbox::{Connection, canceled, exit_code},
    world::{Placed, World, id},
};

/// More than the commits of one life.
const LIVES: u32 = 40;

struct Life {
    world: World,
    placed: Placed,
    connection: Option<Connection>,
    /// Turns seen in a terminal state, as they were seen.
    ended: Vec<Value>,
    died: bool,
}

impl Life {
    /// What is done until it is done, over the death of a Core.
    async fn until<T>(&mut self, what: &str, mut look: impl AsyncFnMut(&World, &Placed) -> Option<T>) -> T {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(found) = look(&self.world, &self.placed).await {
                return found;
            }
            if self.world.core.core().store.faults().is_dead() {
                self.revive().await;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "waited in vain for {what}"
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Another Core, and a link to it.
    async fn revive(&mut self) {
        self.died = true;
        self.world.core.restart().await;
        // Refused once the Session is archived.
        self.connection = self.placed.sandbox.try_connect(&self.world.core.url).await.ok();
        let store = &self.world.core.core().store;
        let turns = store.single().turns(self.placed.session, 0, 100).await.unwrap();
        for turn in turns {
            let acks = self.placed.sandbox.acks(turn.id);
            let acked = acks.iter().map(|ack| ack.offset).max().unwrap_or(0);
            assert!(
                acked <= turn.output_bytes,
                "INV-S5: {acked} of {}",
                turn.output_bytes
            );
        }
    }

    /// Submits under a key, so that an answer that was lost is asked for again.
    async fn submit(&mut self, key: &str) -> TurnId {
        let key = key.to_owned();
        self.until("an admission", async |world, placed| {
            let answer = keyed(&world.core, placed, &key).await;
            (answer.status == 202).then(|| id(&answer.body["turn"]["id"]))
        })
        .await
    }

    async fn until_started(&mut self, turn: TurnId) {
        self.until("a start", async |_, placed| {
            placed.sandbox.starts().contains(&turn).then_some(())
        })
        .await;
    }

    async fn until_stored(&mut self, turn: TurnId, bytes: usize) {
        self.until("stored output", async |world, _| {
            let row = world.core.core().store.single().turn(turn).await.ok()??;
            (row.output_bytes >= bytes as u64).then_some(())
        })
        .await;
    }

    async fn until_ended(&mut self, turn: TurnId, state: &str) {
        let state = state.to_owned();
        let ended = self
            .until("an end", async |world, placed| {
                let path = format!("/v1/sessions/{}/turns/{turn}", placed.session);
                let answer = world.get(&path).await;
                (answer.status == 200 && answer.body["state"] == state.as_str()).then_some(answer.body)
            })
            .await;
        self.ended.push(ended);
    }

    fn write(&self, turn: TurnId, length: usize) {
        let bytes: Vec<u8> = (0..length).map(|i| (i * 31 + length) as u8).collect();
        self.placed.sandbox.write(turn, Stdout, &bytes);
        self.placed.sandbox.write(turn, Stderr, &bytes[..length / 3]);
    }

    /// The whole life; its four Turns.
    async fn live(&mut self) -> [TurnId; 4] {
        let first = self.submit("first").await;
        self.until_started(first).await;
        self.write(first, 40_000);
        self.until_stored(first, 40_000).await;
        let second = self.submit("second").await;
        self.write(first, 5_000);
        self.placed.sandbox.exit(first, exit_code(7));
        self.until_ended(first, "completed").await;
        self.until_started(second).await;
        self.write(second, 100);
        self.until("a cancel", async |world, placed| {
            let path = format!("/v1/sessions/{}/turns/{second}/cancel", placed.session);
            (world.post(&path, &json!({})).await.status == 202).then_some(())
        })
        .await;
        self.until("the cancel's arrival", async |_, placed| {
            placed.sandbox.was_canceled(second).then_some(())
        })
        .await;
        self.placed.sandbox.exit(second, canceled());
        self.until_ended(second, "canceled").await;
        let third = self.submit("third").await;
        self.until_started(third).await;
        self.write(third, 1_000);
        let fourth = self.submit("fourth").await;
        self.until("an archive", async |world, placed| {
            let path = format!("/v1/sessions/{}", placed.session);
            (world.delete(&path).await.status == 202).then_some(())
        })
        .await;
        self.until_ended(third, "canceled").await;
        self.until_ended(fourth, "canceled").await;
        [first, second, third, fourth]
    }

    async fn check(&mut self, turns: [TurnId; 4]) {
        let (world, placed) = (&self.world, &self.placed);
        let [first, second, third, _] = turns;
        assert_eq!(placed.sandbox.starts(), [first, second, third], "INV-S1, INV-S2");
        let path = format!("/v1/sessions/{}/turns", placed.session);
        let shown = world.get(&path).await.expect(200)["data"].clone();
        assert_eq!(
            json!(self.ended),
            shown,
            "INV-S3, INV-S9: the four, as they ended"
        );
        for turn in turns {
            let (bytes, end) = whole(&world.core, placed.session, turn).await;
            let written = placed.sandbox.written(turn);
            assert_eq!(bytes.len() as u64, end["output_bytes"], "INV-S4");
            assert!(written.starts_with(&bytes), "INV-S4");
            if turn == first || turn == second {
                assert_eq!(bytes.len(), written.len(), "all of a Turn that ended");
            }
        }
        let session = world.session(placed.session).await;
        assert_eq!(session["state"], "archived");
        assert_eq!(session["turns"], json!({ "queued": 0, "running": 0 }), "INV-S19");
        let store = &world.core.core().store;
        let events = store.single().events_after(placed.session, 0, 100).await.unwrap();
        assert!(events.iter().map(|e| e.sequence).eq(1..=events.len() as i64));
        let count = |kind: &str| events.iter().filter(|e| e.kind.as_str() == kind).count();
        let told = [
            "session.created",
            "turn.queued",
            "turn.started",
            "turn.ended",
            "session.archived",
        ];
        assert_eq!(told.map(count), [1, 4, 3, 4, 1], "each fact once");
    }
}

async fn keyed(core: &TestCore, placed: &Placed, key: &str) -> Answer {
    let path = format!("/v1/sessions/{}/inputs", placed.session);
    let request = core.request(Method::POST, &path);
    let request = request.bearer_auth(core.project_key.expose());
    send(
        request
            .header("idempotency-key", key)
            .json(&json!({ "args": ["work"] })),
    )
    .await
}

async fn die_at_each_commit(core: TestCore) {
    let mut world = World::on(core, LIVES).await;
    let mut waiting = Vec::new();
    for _ in 0..LIVES {
        waiting.push(world.place().await);
    }
    let mut deaths = 0;
    for side in [Side::Before, Side::After] {
        for n in 1.. {
            let placed = waiting.pop().expect("more commits than lives");
            let connection = placed.sandbox.connect(&world.core.url).await;
            world.until_linked(&placed).await;
            world.core.core().store.faults().die_at(n, side);
            let mut life = Life {
                world,
                placed,
                connection: Some(connection),
                ended: Vec::new(),
                died: false,
            };
            let turns = life.live().await;
            let faults = life.world.core.core().store.faults().clone();
            faults.spare();
            if faults.is_dead() {
                life.revive().await;
            }
            life.check(turns).await;
            let died = life.died;
            world = life.world;
            if !died {
                break;
            }
            deaths += 1;
        }
    }
    assert!(deaths >= 16, "only {deaths} commits to die at");
}

// inv: INV-S1, INV-S2, INV-S3, INV-S4, INV-S5, INV-S9, INV-S19
#[tokio::test]
async fn whatever_commit_a_core_dies_at_nothing_is_lost_or_repeated() {
    die_at_each_commit(TestCore::start().await).await;
}

// inv: INV-S1, INV-S2, INV-S3, INV-S4, INV-S5, INV-S9, INV-S19
#[tokio::test]
async fn pg_whatever_commit_a_core_dies_at_nothing_is_lost_or_repeated() {
    die_at_each_commit(TestCore::start_postgres().await).await;
}

/// The sandbox becomes ready, and its driver looks for work, between the look of an admission at the sandbox and its
/// commit.
#[tokio::test]
async fn an_input_stored_while_its_sandbox_becomes_ready_runs_at_once() {
    let world = World::start().await;
    let placed = world.place().await;
    // Its first link writes; the second one only reads, and so is not held up.
    let connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    connection.cut().await;
    world
        .eventually("the link's end", async || {
            (!world.core.core().links.is_linked(placed.allocation)).then_some(())
        })
        .await;
    let hold = world.core.core().store.faults().hold_next(Side::Before);
    let submitting = world.input(placed.session, "work");
    tokio::pin!(submitting);
    tokio::select! {
        () = hold.reached() => {}
        answer = &mut submitting => panic!("{answer:?}"),
    }
    let _connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    // By then the driver has looked, and waits.
    for _ in 0..20 {
        world.session(placed.session).await;
    }
    drop(hold);
    submitting.await.expect(202);
    tokio::time::timeout(Duration::from_secs(30), placed.sandbox.started(0))
        .await
        .expect("the driver is woken, long before its timer");
}

/// The driver finds a Turn by itself, runs it and forgets it, between the commit of its admission and its handing over.
// inv: INV-S2
#[tokio::test]
async fn a_turn_handed_over_after_its_end_is_not_asked_for_again() {
    let world = World::start().await;
    let placed = world.place().await;
    let _connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    let submitting = world.input(placed.session, "first");
    let hold = world.core.core().store.faults().hold_next(Side::After);
    tokio::pin!(submitting);
    let first = tokio::select! {
        turn = async {
            hold.reached().await;
            let path = format!("/v1/sessions/{}/turns", placed.session);
            let turns = world.get(&path).await.expect(200);
            let turn = id(&turns["data"][0]["id"]);
            // Has the driver look.
            world.cancel(placed.session, turn).await;
            placed.sandbox.canceled(turn).await;
            placed.sandbox.exit(turn, canceled());
            placed.sandbox.finally_acknowledged(turn).await;
            turn
        } => turn,
        answer = &mut submitting => panic!("{answer:?}"),
    };
    drop(hold);
    submitting.await.expect(202);
    let second = world.submit(placed.session, "second").await;
    assert_eq!(placed.sandbox.started(1).await, second);
    placed.sandbox.exit(second, exit_code(0));
    world.until_turn(placed.session, second, "completed").await;
    assert_eq!(placed.sandbox.puts(), [first, second]);
}
