//! A Session's life under a seed: commands, output, cancels, links cut, answers lost, Core stopped; the invariants are
//! checked at each step and at the end. A failure names its seed; `OAC_SEED` runs one again.

use oac_link::service::OutputStreamName::{Stderr, Stdout};
use oac_model::TurnId;
use serde_json::Value;

use crate::{
    reader::whole,
    sandbox::{Connection, canceled, exit_code},
    world::{Placed, World},
};

const STEPS: usize = 40;
const SEEDS: u64 = 6;

/// A small generator whose sequence is part of the test.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

struct Life {
    world: World,
    placed: Placed,
    connection: Option<Connection>,
    random: Random,
    turns: Vec<TurnId>,
    /// Turns seen in a terminal state, as they were seen.
    ended: Vec<Value>,
}

impl Life {
    async fn step(&mut self) {
        match self.random.below(12) {
            0 | 1 => {
                let turn = self.world.submit(self.placed.session, "work").await;
                self.turns.push(turn);
            }
            2..=5 => {
                if let Some(turn) = self.placed.sandbox.running() {
                    let length = self.random.below(90_000);
                    let bytes: Vec<u8> = (0..length).map(|i| (i * 31 + length) as u8).collect();
                    let stream = if self.random.below(3) == 0 { Stderr } else { Stdout };
                    self.placed.sandbox.write(turn, stream, &bytes);
                }
            }
            6 | 7 => self.finish_running(),
            8 => {
                if let Some(connection) = self.connection.take() {
                    connection.cut().await;
                }
            }
            9 => self.link().await,
            10 => {
                let count = self.turns.len() as u64;
                if count > 0 {
                    let turn = self.turns[self.random.below(count) as usize];
                    self.world.cancel(self.placed.session, turn).await;
                }
            }
            _ => {
                let lose = self.random.below(2) == 0;
                self.placed.sandbox.lose_put_answers(lose);
                if self.random.below(4) == 0 {
                    self.connection = None;
                    self.world.core.restart().await;
                }
            }
        }
        self.check().await;
    }

    async fn link(&mut self) {
        // A newer link replaces the earlier one, alive or not.
        let connection = self.placed.sandbox.connect(&self.world.core.url).await;
        self.connection = Some(connection);
    }

    fn finish_running(&mut self) {
        if let Some(turn) = self.placed.sandbox.running() {
            let exit = if self.placed.sandbox.was_canceled(turn) {
                canceled()
            } else {
                exit_code(0)
            };
            self.placed.sandbox.exit(turn, exit);
        }
    }

    /// What must hold at every moment.
    async fn check(&mut self) {
        let path = format!("/v1/sessions/{}/turns", self.placed.session);
        let turns = self.world.get(&path).await.expect(200)["data"]
            .as_array()
            .unwrap()
            .clone();
        let state = |turn: &Value| turn["state"].as_str().unwrap().to_owned();
        assert!(turns.iter().filter(|t| state(t) == "running").count() <= 1);
        let sequences: Vec<_> = turns.iter().map(|t| t["sequence"].as_i64().unwrap()).collect();
        assert!(sequences.is_sorted());
        for ended in &self.ended {
            assert!(turns.contains(ended), "a terminal Turn never changes");
        }
        let terminal = |t: &&Value| !matches!(state(t).as_str(), "queued" | "waiting" | "running");
        self.ended = turns.iter().filter(terminal).cloned().collect();
        let starts = self.placed.sandbox.starts();
        let order: Vec<_> = starts
            .iter()
            .map(|id| self.turns.iter().position(|t| t == id).unwrap())
            .collect();
        assert!(order.is_sorted_by(|a, b| a < b), "started once each, in order");
    }

    /// Lets everything come to its end.
    async fn settle(&mut self) {
        self.placed.sandbox.lose_put_answers(false);
        self.link().await;
        loop {
            self.finish_running();
            let session = self.world.session(self.placed.session).await;
            if session["state"] == "idle" && self.placed.sandbox.running().is_none() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

async fn live(seed: u64) {
    let world = World::start().await;
    let placed = world.place().await;
    let mut life = Life {
        world,
        placed,
        connection: None,
        random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
        turns: Vec::new(),
        ended: Vec::new(),
    };
    for _ in 0..STEPS {
        life.step().await;
    }
    life.settle().await;
    life.check().await;
    assert_eq!(life.ended.len(), life.turns.len());
    for turn in &life.turns {
        let (bytes, end) = whole(&life.world.core, life.placed.session, turn).await;
        let written = life.placed.sandbox.written(*turn);
        assert!(bytes == written, "Turn {turn} has exactly what its process wrote");
        assert_eq!(end["output_bytes"], written.len());
    }
}

// inv: INV-S1, INV-S2, INV-S3, INV-S4, INV-S5
#[tokio::test]
async fn whatever_breaks_turns_run_once_in_order_and_their_output_is_whole() {
    let seeds = match std::env::var("OAC_SEED").ok().and_then(|text| text.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 1..SEEDS + 1,
    };
    for seed in seeds {
        eprintln!("seed {seed}");
        live(seed).await;
    }
}
