//! Decoding frames of the node protocol: strictly, against the same types decoded without checks.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use oac_model::{ConnectionId, OwnerEpoch, Reference, RequestId};
use oac_wire::{B64, CoreFrame, shapes::Command};
use serde::Deserialize;
use serde_json::json;

use crate::figure::{Figure, Work};

/// The frame's members in the types of the codec, and none of its rules: unknown and repeated members, nulls, forms of
/// text and bounds pass as a derive lets them.
#[derive(Deserialize)]
struct Unchecked {
    #[serde(rename = "version")]
    _version: i64,
    #[serde(rename = "type")]
    _type: String,
    #[serde(rename = "id")]
    _id: RequestId,
    #[serde(rename = "sequence")]
    _sequence: i64,
    #[serde(rename = "connection_id")]
    _connection_id: ConnectionId,
    #[serde(rename = "owner_epoch")]
    _owner_epoch: OwnerEpoch,
    #[serde(rename = "deployment_generation")]
    _deployment_generation: i64,
    #[serde(rename = "operation")]
    _operation: String,
    #[serde(rename = "timeout_ms")]
    _timeout_ms: i64,
    #[serde(rename = "reference")]
    _reference: Reference,
    command: Command,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

pub(crate) fn measure(rounds: usize) -> Result<[Figure; 3]> {
    Ok([
        size("1 KiB request, strictly / unchecked", KIB, 20_000, None, rounds)?,
        size("1 MiB request, strictly / unchecked", MIB, 50, None, rounds)?,
        // At least 0.8 of the speed is at most 1.25 of the time.
        size(
            "64 MiB request, strictly / unchecked",
            64 * MIB,
            1,
            Some(1.25),
            rounds,
        )?,
    ])
}

/// `times` decodes of a frame of about `bytes` make one sample.
fn size(what: &'static str, bytes: usize, times: u32, budget: Option<f64>, rounds: usize) -> Result<Figure> {
    let frame = frame(bytes);
    let (mut ours, mut baseline) = (Vec::new(), Vec::new());
    // The first round warms caches of both sides and is not counted.
    for round in 0..=rounds {
        let plain = repeated(times, || {
            let decoded: Unchecked = serde_json::from_slice(frame.as_bytes())?;
            ensure!(decoded.command.args.len() == 1, "the baseline decoded nothing");
            Ok(())
        })?;
        let own = repeated(times, || {
            let decoded = CoreFrame::decode(frame.as_bytes())?;
            let valid = matches!(&decoded, CoreFrame::Request(r) if r.body.is_ok());
            ensure!(valid, "not a valid request");
            Ok(())
        })?;
        if round > 0 {
            ours.push(own);
            baseline.push(plain);
        }
    }
    Ok(Figure {
        name: "codec",
        what,
        ours,
        baseline,
        work: Work::Bytes(frame.len() as u64 * u64::from(times)),
        budget,
        beside: Vec::new(),
    })
}

fn repeated(times: u32, mut decode: impl FnMut() -> Result<()>) -> Result<Duration> {
    let started = Instant::now();
    for _ in 0..times {
        decode()?;
    }
    Ok(started.elapsed())
}

/// A command whose standard input fills the frame up to `bytes`.
fn frame(bytes: usize) -> String {
    let id = |digit: &str| format!("{0}{0}-{0}-4{1}-8{1}-{0}{0}{0}", digit.repeat(4), digit.repeat(3));
    let reference = json!({ "tenant_id": id("2"), "environment_id": id("3"), "allocation_id": id("4") });
    let with = |stdin: &str| {
        format!(
            r#"{{"version":1,"type":"request","id":"{}","sequence":1,"connection_id":"{}","owner_epoch":1,"deployment_generation":1,"operation":"command","timeout_ms":1000,"reference":{reference},"command":{{"args":["cat"],"directory":"","stdin":"{stdin}"}}}}"#,
            id("7"),
            id("8"),
        )
    };
    let room = bytes - with("").len();
    with(&B64(vec![0x5a; room / 4 * 3]).encode())
}
