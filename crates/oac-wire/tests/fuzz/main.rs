//! Fuzzing of the frame decoder.
//!
//! For frames made from the corpora at random: nothing panics; the decoder and a slow reference written from the tables
//! agree; what is accepted is written again as a frame that decodes to the same. A short run of a fixed seed is part of
//! the tests; `cargo xtask fuzz` is the long one. A frame that fails is made smaller and kept as a file, and
//! `cargo xtask fuzz --replay FILE` runs it again.
//!
//! Frames whose verdict is worded as none before join the pool they are made from, which leads the run through the
//! rules without instrumented code.

#![allow(clippy::print_stdout, reason = "a run says its seed and what it met")]

mod mutate;
mod random;
mod reference;
mod seeds;

use std::{
    collections::HashSet,
    fs,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
};

use oac_wire::{CoreFrame, Direction, NodeFrame, Verdict, judge};
use random::Random;
use reference::{
    Outcome,
    json::{self, Json},
};

/// Frames of the short run.
const SHORT: u64 = 5_000;
/// Frames of each seed of the long run.
const LONG: u64 = 100_000;
/// Seeds of the pool beyond the corpora.
const POOL: usize = 4_000;

struct Seed {
    direction: Direction,
    text: Vec<u8>,
    json: Option<Json>,
    /// Its verdict is that the connection closes.
    refused: bool,
}

fn corpus() -> Vec<(Direction, String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let mut rows = Vec::new();
    for path in paths {
        for line in fs::read_to_string(path).unwrap().lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let text = |name: &str| row[name].as_str().unwrap().to_owned();
            let direction = Direction::from_text(&text("direction")).unwrap();
            rows.push((direction, text("frame"), text("expect")));
        }
    }
    rows
}

fn outcome(verdict: &Verdict) -> Outcome {
    match verdict {
        Verdict::Accept => Outcome::Accept,
        Verdict::Unconfirmed(_) => Outcome::Unconfirmed,
        Verdict::Frame(_) => Outcome::Frame,
        Verdict::Request(_) => Outcome::Request,
    }
}

/// What is wrong with how the codec treats this frame, and what it said of it.
fn examine(direction: Direction, text: &[u8]) -> (Option<String>, String) {
    let run = AssertUnwindSafe(|| {
        let verdict = judge(direction, text);
        (verdict.clone(), returns(direction, text, &verdict))
    });
    let Ok((verdict, returned)) = panic::catch_unwind(run) else {
        return (Some("it panics".to_owned()), "panic".to_owned());
    };
    let said = format!("{verdict:?}");
    let expected = reference::judge(direction, text);
    if outcome(&verdict) != expected {
        return (
            Some(format!("the reference says {expected:?}, the codec {verdict:?}")),
            said,
        );
    }
    (returned.err(), said)
}

/// What is accepted can be written, is accepted by the reference, and is the same frame.
fn returns(direction: Direction, text: &[u8], verdict: &Verdict) -> Result<(), String> {
    if *verdict != Verdict::Accept {
        return Ok(());
    }
    let encoded = match direction {
        Direction::NodeToCore => {
            let frame = NodeFrame::decode(text).map_err(|e| e.to_string())?;
            let encoded = frame.encode().map_err(|e| format!("it cannot be written: {e}"))?;
            let again =
                NodeFrame::decode(encoded.as_bytes()).map_err(|e| format!("written, it is refused: {e}"))?;
            if again != frame {
                return Err(format!("written, it is another frame: {encoded}"));
            }
            encoded
        }
        Direction::CoreToNode => {
            let frame = CoreFrame::decode(text).map_err(|e| e.to_string())?;
            let encoded = frame.encode().map_err(|e| format!("it cannot be written: {e}"))?;
            let again =
                CoreFrame::decode(encoded.as_bytes()).map_err(|e| format!("written, it is refused: {e}"))?;
            if again != frame {
                return Err(format!("written, it is another frame: {encoded}"));
            }
            encoded
        }
    };
    match reference::judge(direction, encoded.as_bytes()) {
        Outcome::Accept => Ok(()),
        other => Err(format!("written, the reference says {other:?}: {encoded}")),
    }
}

/// Takes out pieces, larger ones first, as long as the frame still fails.
fn shrink(direction: Direction, text: &[u8]) -> Vec<u8> {
    let mut text = text.to_vec();
    let mut piece = text.len() / 2;
    let mut tries = 0;
    while piece > 0 && tries < 3_000 {
        let mut at = 0;
        while at + piece <= text.len() && tries < 3_000 {
            let mut shorter = text.clone();
            shorter.drain(at..at + piece);
            tries += 1;
            if examine(direction, &shorter).0.is_some() {
                text = shorter;
            } else {
                at += piece;
            }
        }
        piece /= 2;
    }
    text
}

fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::NodeToCore => "node->core",
        Direction::CoreToNode => "core->node",
    }
}

/// Keeps a failing frame: its direction on the first line, then its bytes.
fn keep(direction: Direction, text: &[u8], seed: u64, number: u64) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("wire-{seed}-{number}.frame"));
    let mut content = format!("{}\n", word(direction)).into_bytes();
    content.extend_from_slice(text);
    fs::write(&path, content).unwrap();
    path
}

fn run(seed: u64, frames: u64) {
    let mut random = Random::new(seed);
    let mut seeds: Vec<Seed> = corpus()
        .into_iter()
        .filter(|(_, frame, _)| frame.len() < 20_000)
        .map(|(direction, frame, expect)| Seed {
            direction,
            refused: expect == "frame",
            json: json::parse(frame.as_bytes()),
            text: frame.into_bytes(),
        })
        .collect();
    let rows = seeds.len();
    let mut heard = HashSet::new();
    let mut number = 0;
    let mut counts = [0u64; 4];
    while number < frames {
        number += 1;
        // A frame that is refused already hides the next mistake, so it is rarely the one to start from.
        let mut from = random.pick(&seeds);
        while from.refused && !random.one_in(40) {
            from = random.pick(&seeds);
        }
        let with = random.pick(&seeds).json.as_ref();
        let mut direction = from.direction;
        let text = match (&from.json, with) {
            (Some(json), with) => mutate::mutate(&mut random, json, with.unwrap_or(json)),
            (None, _) => {
                let mut text = from.text.clone();
                mutate::bytes(&mut random, &mut text);
                text
            }
        };
        if random.one_in(40) {
            direction = match direction {
                Direction::NodeToCore => Direction::CoreToNode,
                Direction::CoreToNode => Direction::NodeToCore,
            };
        }
        let (wrong, said) = examine(direction, &text);
        if wrong.is_some() {
            let small = shrink(direction, &text);
            let (wrong, _) = examine(direction, &small);
            let path = keep(direction, &small, seed, number);
            panic!(
                "{} (seed {seed}, frame {number}): {}\nrun it again: cargo xtask fuzz --replay {}",
                word(direction),
                wrong.unwrap_or_default(),
                path.display()
            );
        }
        let expected = reference::judge(direction, &text);
        counts[expected as usize] += 1;
        let masked: String = said
            .chars()
            .map(|c| if c.is_ascii_digit() { '#' } else { c })
            .collect();
        if text.len() < 20_000 && seeds.len() < rows + POOL && heard.insert(masked) {
            seeds.push(Seed {
                direction,
                json: json::parse(&text),
                refused: expected == Outcome::Frame,
                text,
            });
        }
    }
    let [accept, unconfirmed, request, frame] = counts;
    println!(
        "seed {seed}: {number} frames, {accept} accepted, {unconfirmed} unconfirmed, {request} invalid, {frame} refused; \
         {} different verdicts",
        heard.len()
    );
    assert!(
        counts.iter().all(|count| *count > number / 200),
        "the frames have become too alike to prove anything: {counts:?}"
    );
}

/// The reference recurses as deep as a frame nests.
fn with_deep_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new()
        .stack_size(256 << 20)
        .spawn(work)
        .unwrap();
    if let Err(cause) = thread.join() {
        panic::resume_unwind(cause);
    }
}

#[test]
fn the_reference_agrees_with_every_row_of_the_corpora() {
    with_deep_stack(|| {
        for (direction, frame, expect) in corpus() {
            let expected = match expect.as_str() {
                "accept" => Outcome::Accept,
                "unconfirmed" => Outcome::Unconfirmed,
                "request" => Outcome::Request,
                _ => Outcome::Frame,
            };
            let shown: String = frame.chars().take(2_000).collect();
            assert_eq!(reference::judge(direction, frame.as_bytes()), expected, "{shown}");
        }
    });
}

// inv: INV-P1, INV-P2
#[test]
fn the_decoder_agrees_with_the_reference_on_frames_made_at_random() {
    with_deep_stack(|| {
        if let Some(path) = std::env::var_os("OAC_FUZZ_REPLAY") {
            let content = fs::read(&path).unwrap();
            let cut = content.iter().position(|b| *b == b'\n').unwrap();
            let direction = std::str::from_utf8(&content[..cut])
                .ok()
                .and_then(Direction::from_text)
                .unwrap();
            let (wrong, said) = examine(direction, &content[cut + 1..]);
            println!("{said}");
            assert_eq!(wrong, None);
            return;
        }
        seeds::each(SHORT, LONG, run);
    });
}
