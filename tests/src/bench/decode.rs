//! Decoding a large frame of the node protocol.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::figure::{Figure, Work};

/// A request of 64 MiB decoded strictly, against the same types decoded without checks.
pub(crate) fn measure(rounds: usize) -> Result<Figure> {
    /// The same large member, typed alike; the rest is skipped.
    #[derive(serde::Deserialize)]
    struct Unchecked {
        command: oac_wire::shapes::Command,
    }
    let id = |digit: &str| format!("{0}{0}-{0}-4{1}-8{1}-{0}{0}{0}", digit.repeat(4), digit.repeat(3));
    let stdin = oac_wire::B64(vec![0x5a; 48 << 20]).encode();
    let reference = json!({ "tenant_id": id("2"), "environment_id": id("3"), "allocation_id": id("4") });
    let frame = format!(
        r#"{{"version":1,"type":"request","id":"{}","sequence":1,"connection_id":"{}","owner_epoch":1,"deployment_generation":1,"operation":"command","timeout_ms":1000,"reference":{reference},"command":{{"args":["cat"],"directory":"","stdin":"{stdin}"}}}}"#,
        id("7"),
        id("8"),
    );
    let (mut ours, mut baseline) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let started = Instant::now();
        let decoded: Unchecked = serde_json::from_slice(frame.as_bytes())?;
        let plain = started.elapsed();
        ensure!(decoded.command.args.len() == 1, "the baseline decoded nothing");
        drop(decoded);
        let started = Instant::now();
        let decoded = oac_wire::CoreFrame::decode(frame.as_bytes())?;
        let own = started.elapsed();
        ensure!(
            matches!(&decoded, oac_wire::CoreFrame::Request(r) if r.body.is_ok()),
            "not a valid request"
        );
        drop(decoded);
        if round > 0 {
            ours.push(own);
            baseline.push(plain);
        }
    }
    // At least 0.8 of the speed is at most 1.25 of the time.
    let what = "64 MiB request, strictly / unchecked";
    Ok(Figure {
        name: "decode",
        what,
        ours,
        baseline,
        work: Work::One,
        budget: Some(1.25),
        beside: Vec::new(),
    })
}
