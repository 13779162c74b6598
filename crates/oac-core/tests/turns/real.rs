//! The table of sessions.md section 8, row by row, over the real runtime program: what Core and a sandbox that link again
//! make of what each of them knows.

use std::{path::PathBuf, process::Stdio, time::Duration};

use oac_model::{TurnId, TurnState};
use oac_store::{Dispatch, Side};
use oac_testkit::program::{Tie, built_programs, tied};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Child;

use crate::{
    reader::whole,
    world::{Placed, World, id},
};

/// The program, and a home that outlives it.
struct Runtime {
    home: TempDir,
    child: Option<Child>,
}

impl Runtime {
    fn new(world: &World, placed: &Placed) -> Self {
        let home = TempDir::new().unwrap();
        let hello = placed.sandbox.hello();
        let bootstrap = json!({
            "version": 1,
            "link_url": format!("{}/api/v1/sandbox-link", world.core.url.replacen("http", "ws", 1)),
            "credential": hello.credential.expose(),
            "resource": hello.resource,
        });
        std::fs::write(home.path().join("bootstrap.json"), bootstrap.to_string()).unwrap();
        Self { home, child: None }
    }

    fn start(&mut self) {
        let program = built_programs().join("oac-runtime");
        assert!(
            program.is_file(),
            "{} is missing: build it with `cargo build -p oac-runtime`",
            program.display()
        );
        let child = tied(&program, Tie::Bound)
            .arg("--bootstrap-file")
            .arg(self.path("bootstrap.json"))
            .env_clear()
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.child = Some(child);
    }

    async fn kill(&mut self) {
        self.child.take().unwrap().kill().await.unwrap();
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().unwrap().id().unwrap();
        send(signal, &pid.to_string());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// What the command wrote there, line by line.
    fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn send(signal: &str, target: &str) {
    let sent = std::process::Command::new("kill")
        .args([signal, "--", target])
        .status();
    assert!(sent.is_ok());
}

impl Drop for Runtime {
    /// The program, and the Turn it ran, which in a container would end with it.
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.start_kill();
        }
        let noted = self.lines(".latest-turn");
        let mark: Value = noted
            .get(1)
            .and_then(|mark| serde_json::from_str(mark).ok())
            .unwrap_or_default();
        let since = |pid: i64| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.rsplit(')')
                .next()?
                .split_whitespace()
                .nth(19)?
                .parse::<u64>()
                .ok()
        };
        if let Some(pid) = mark["pid"].as_i64()
            && since(pid).is_some()
            && since(pid) == mark["started"].as_u64()
        {
            send("-KILL", &format!("-{pid}"));
        }
    }
}

struct Field {
    world: World,
    placed: Placed,
    runtime: Runtime,
}

impl Field {
    async fn new() -> Self {
        let world = World::start().await;
        let placed = world.place().await;
        let runtime = Runtime::new(&world, &placed);
        Self {
            world,
            placed,
            runtime,
        }
    }

    async fn linked() -> Self {
        let mut field = Self::new().await;
        field.runtime.start();
        field.world.until_linked(&field.placed).await;
        field
    }

    /// A shell script in the home.
    async fn submit(&self, script: &str) -> TurnId {
        let path = format!("/v1/sessions/{}/inputs", self.placed.session);
        let body = json!({ "args": ["/bin/sh", "-c", script], "cwd": self.runtime.home.path() });
        let answer = self.world.post(&path, &body).await.expect(202);
        id(&answer["turn"]["id"])
    }

    async fn ended(&self, turn: TurnId, state: &str) -> Value {
        self.world.until_turn(self.placed.session, turn, state).await
    }

    async fn output(&self, turn: TurnId) -> Vec<u8> {
        let (bytes, _) = whole(&self.world.core, self.placed.session, turn).await;
        bytes.into_iter().map(|(_, b)| b).collect()
    }

    async fn until_lines(&self, name: &str, count: usize) {
        self.world
            .eventually("the command's file", async || {
                (self.runtime.lines(name).len() >= count).then_some(())
            })
            .await;
    }

    async fn until_row(&self, turn: TurnId, what: &str, holds: impl Fn(&oac_store::TurnRow) -> bool) {
        let store = self.world.core.core().store.clone();
        self.world
            .eventually(what, async || {
                let row = store.single().turn(turn).await.unwrap().unwrap();
                holds(&row).then_some(())
            })
            .await;
    }

    async fn until_confirmed(&self, turn: TurnId) {
        self.until_row(turn, "a confirmed Turn", |row| {
            row.dispatch == Dispatch::Confirmed
        })
        .await;
    }

    /// The sandbox holds no record of the Turn any more.
    async fn until_forgotten(&self, turn: TurnId) {
        let record = self.runtime.path("turns").join(turn.to_string());
        let ended = self.runtime.path("turns/ended");
        self.world
            .eventually("the final acknowledgement", async || {
                let listed = std::fs::read_to_string(&ended).unwrap_or_default();
                (!record.exists() && listed.contains(&turn.to_string())).then_some(())
            })
            .await;
    }

    /// A further Turn runs as if nothing had been.
    async fn goes_on(&self) {
        let next = self.submit("echo on").await;
        self.ended(next, "completed").await;
        assert_eq!(self.output(next).await, b"on\n");
    }
}

// inv: INV-S2
#[tokio::test]
async fn a_turn_never_sent_is_dispatched_when_it_is_next() {
    let mut field = Field::new().await;
    let first = field.submit("echo first >> ran; echo 1").await;
    let second = field.submit("echo second >> ran; echo 2").await;
    field.runtime.start();
    for (turn, output) in [(first, b"1\n"), (second, b"2\n")] {
        field.ended(turn, "completed").await;
        assert_eq!(field.output(turn).await, output);
        field.until_forgotten(turn).await;
    }
    assert_eq!(field.runtime.lines("ran"), ["first", "second"]);
}

// inv: INV-S2
#[tokio::test]
async fn a_turn_that_was_sent_and_never_arrived_is_put_again() {
    let mut field = Field::linked().await;
    // Linked, and deaf.
    field.runtime.signal("-STOP");
    let turn = field.submit("echo ran >> ran").await;
    field
        .until_row(turn, "a sent Turn", |row| row.dispatch == Dispatch::Sent)
        .await;
    field.runtime.kill().await;
    assert!(!field.runtime.path("turns").join(turn.to_string()).exists());
    field.runtime.start();
    field.ended(turn, "completed").await;
    assert_eq!(field.runtime.lines("ran"), ["ran"]);
    field.goes_on().await;
}

// inv: INV-S2, INV-S4
#[tokio::test]
async fn a_turn_that_arrived_unheard_and_runs_is_followed() {
    let mut field = Field::linked().await;
    // Admitted and sent; and then nothing is stored any more.
    let faults = field.world.core.core().store.faults().clone();
    faults.die_at_write(2, "UPDATE turns", Side::Before);
    let turn = field
        .submit("echo ran >> ran; echo one; while [ ! -e go ]; do sleep 0.01; done; echo two")
        .await;
    field.until_lines("ran", 1).await;
    field
        .world
        .eventually("Core's death", async || {
            field.world.core.core().store.faults().is_dead().then_some(())
        })
        .await;
    field.world.core.restart().await;
    let row = field
        .world
        .core
        .core()
        .store
        .single()
        .turn(turn)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(row.dispatch, Dispatch::Sent);
    field.until_confirmed(turn).await;
    std::fs::write(field.runtime.path("go"), "").unwrap();
    field.ended(turn, "completed").await;
    assert_eq!(field.output(turn).await, b"one\ntwo\n");
    assert_eq!(field.runtime.lines("ran"), ["ran"]);
    field.goes_on().await;
}

// inv: INV-S4, INV-S5
#[tokio::test]
async fn a_running_turn_is_followed_from_the_stored_offset_over_restarts_of_core() {
    let mut field = Field::linked().await;
    let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo line $i; done; echo done > end";
    let turn = field.submit(script).await;
    for _ in 0..3 {
        let before = field
            .world
            .core
            .core()
            .store
            .single()
            .turn(turn)
            .await
            .unwrap()
            .unwrap();
        field
            .until_row(turn, "more output", |row| {
                row.output_bytes > before.output_bytes || row.state.is_terminal()
            })
            .await;
        field.world.core.restart().await;
    }
    field.ended(turn, "completed").await;
    let expected: String = (1..=20_000).map(|i| format!("line {i}\n")).collect();
    assert!(field.output(turn).await == expected.as_bytes());
    field.until_forgotten(turn).await;
    field.goes_on().await;
}

// inv: INV-S4
#[tokio::test]
async fn a_turn_that_ended_unseen_is_read_to_its_end_and_settled() {
    let mut field = Field::linked().await;
    let turn = field
        .submit("echo seen; echo up > up; while [ ! -e go ]; do sleep 0.01; done; echo unseen; echo > gone; exit 7")
        .await;
    field
        .until_row(turn, "stored output", |row| {
            row.output_bytes == 5 && row.dispatch == Dispatch::Confirmed
        })
        .await;
    field.world.core.stop().await;
    std::fs::write(field.runtime.path("go"), "").unwrap();
    field.until_lines("gone", 1).await;
    field.world.core.start_again().await;
    field.world.core.core().owner.owned().await;
    let ended = field.ended(turn, "completed").await;
    assert_eq!(ended["exit_code"], 7);
    assert_eq!(field.output(turn).await, b"seen\nunseen\n");
    field.until_forgotten(turn).await;
    field.goes_on().await;
}

/// A Turn with stored output whose runtime was killed.
async fn killed_with_output() -> (Field, TurnId) {
    let mut field = Field::linked().await;
    let turn = field.submit("echo stored; echo up > up; exec sleep 1000").await;
    field
        .until_row(turn, "stored output", |row| {
            row.output_bytes == 7 && row.dispatch == Dispatch::Confirmed
        })
        .await;
    field.runtime.kill().await;
    (field, turn)
}

// inv: INV-S2, INV-S3
#[tokio::test]
async fn a_confirmed_turn_without_a_record_is_interrupted() {
    let (mut field, turn) = killed_with_output().await;
    let mark = std::fs::read(field.runtime.path(".latest-turn")).unwrap();
    std::fs::remove_dir_all(field.runtime.path("turns")).unwrap();
    std::fs::remove_file(field.runtime.path(".latest-turn")).unwrap();
    field.runtime.start();
    let ended = field.ended(turn, "interrupted").await;
    assert_eq!(ended["reason"], "runtime_lost");
    assert_eq!(field.output(turn).await, b"stored\n");
    field.goes_on().await;
    // For the process that nobody could find any more.
    std::fs::write(field.runtime.path(".latest-turn"), mark).unwrap();
}

// inv: INV-S4
#[tokio::test]
async fn stored_bytes_stay_when_the_log_is_shorter() {
    let (mut field, turn) = killed_with_output().await;
    let log = field
        .runtime
        .path("turns")
        .join(turn.to_string())
        .join("output-00000000000000000000");
    std::fs::OpenOptions::new()
        .write(true)
        .open(log)
        .unwrap()
        .set_len(0)
        .unwrap();
    field.runtime.start();
    field.ended(turn, "interrupted").await;
    assert_eq!(field.output(turn).await, b"stored\n");
    field.until_forgotten(turn).await;
    field.goes_on().await;
}

// inv: INV-S2
#[tokio::test]
async fn a_restarted_runtime_ends_the_turn_and_its_process() {
    let (mut field, turn) = killed_with_output().await;
    field.runtime.start();
    let ended = field.ended(turn, "interrupted").await;
    assert_eq!(ended["reason"], "runtime_restarted");
    assert_eq!(field.output(turn).await, b"stored\n");
    field.until_forgotten(turn).await;
    field.goes_on().await;
}

// inv: INV-S3
#[tokio::test]
async fn a_turn_that_core_has_settled_is_canceled_and_forgotten() {
    let mut field = Field::linked().await;
    let turn = field
        .submit("trap 'echo told > told; exit' TERM; echo up > up; while :; do sleep 0.01; done")
        .await;
    field.until_lines("up", 1).await;
    field.until_confirmed(turn).await;
    let tx = field.world.core.core().begin().await.unwrap();
    tx.lock_session(field.placed.session).await.unwrap();
    let mut row = tx.turn(turn).await.unwrap().unwrap();
    row.state = TurnState::Interrupted;
    row.ended_at = Some(tx.now());
    assert!(tx.save_turn(&row).await.unwrap());
    tx.commit().await.unwrap();
    field.world.core.restart().await;
    field.until_lines("told", 1).await;
    field.until_forgotten(turn).await;
    assert_eq!(
        field.world.turn(field.placed.session, turn).await["state"],
        "interrupted"
    );
    field.goes_on().await;
}

#[tokio::test]
async fn a_turn_that_core_never_had_is_forgotten() {
    let mut field = Field::new().await;
    let stranger = TurnId::random();
    let record = field.runtime.path("turns").join(stranger.to_string());
    std::fs::create_dir_all(&record).unwrap();
    let turn = json!({
        "format": 1, "turn_id": stranger, "digest": oac_model::Digest::of(b"another"),
        "instance_id": stranger, "boot_id": stranger,
    });
    std::fs::write(record.join("turn.json"), turn.to_string()).unwrap();
    field.runtime.start();
    field.until_forgotten(stranger).await;
    field.goes_on().await;
}

/// Counted from the process's start, by the runtime, whatever becomes of Core and the link meanwhile.
#[tokio::test]
async fn a_limit_counts_over_a_restart_of_core() {
    let mut field = Field::linked().await;
    let path = format!("/v1/sessions/{}/inputs", field.placed.session);
    let body = json!({ "args": ["/bin/sleep", "1000"], "cwd": "/", "timeout_seconds": 3 });
    let started = tokio::time::Instant::now();
    let turn: TurnId = id(&field.world.post(&path, &body).await.expect(202)["turn"]["id"]);
    field.until_confirmed(turn).await;
    field.world.core.restart().await;
    let ended = field.ended(turn, "timed_out").await;
    assert_eq!(ended["signal"], 9);
    assert!(started.elapsed() >= Duration::from_secs(3));
    field.goes_on().await;
}

#[tokio::test]
async fn a_cancel_while_the_link_is_down_is_delivered_when_it_is_up() {
    let mut field = Field::linked().await;
    let turn = field
        .submit("trap 'echo bye; exit 3' TERM; echo up > up; while :; do sleep 0.01; done")
        .await;
    field.until_lines("up", 1).await;
    // No driver hears of it: the Core that stored it dies.
    field.until_confirmed(turn).await;
    field.world.core.core().store.faults().die_at(1, Side::After);
    let path = format!("/v1/sessions/{}/turns/{turn}/cancel", field.placed.session);
    field
        .world
        .eventually("the cancel, stored", async || {
            let _ = field.world.post(&path, &json!({})).await;
            field.world.core.core().store.faults().is_dead().then_some(())
        })
        .await;
    field.world.core.restart().await;
    let row = field
        .world
        .core
        .core()
        .store
        .single()
        .turn(turn)
        .await
        .unwrap()
        .unwrap();
    if row.cancel_requested_at.is_none() {
        // Another commit was the last one.
        field.world.cancel(field.placed.session, turn).await;
    }
    let ended = field.ended(turn, "canceled").await;
    assert_eq!(ended["exit_code"], 3);
    assert!(field.output(turn).await.ends_with(b"bye\n"));
    field.goes_on().await;
}
