//! The node program when nothing is asked of it.

use std::time::Duration;

use anyhow::{Context as _, Result};
use oac_testkit::installation::Node;

use crate::{
    bare,
    gauge::{Budget, Gauge, Unit},
    process::Process,
};

/// Whole rounds of heartbeats.
const IDLE: Duration = Duration::from_secs(60);
/// After the node connected, until its start has ended.
const SETTLE: Duration = Duration::from_secs(15);

pub(crate) async fn measure(node: &Node) -> Result<Vec<Gauge>> {
    let server = bare::Server::start().await?;
    let _beating = bare::beating(server.address, 1).await?;
    let (bare, ours) = (
        server.process()?,
        node.pid().map(Process).context("the node ended")?,
    );
    tokio::time::sleep(SETTLE).await;
    // At the same time, so that whatever else the machine does weighs on both.
    let (idle, bare_idle) = tokio::try_join!(ours.load_over(IDLE), bare.load_over(IDLE))?;
    let mebibytes = |process: Process| anyhow::Ok(process.resident()? as f64 / f64::from(1 << 20));
    let gauge = |what: &str, unit, ours, baseline, most| Gauge {
        name: "agent",
        what: what.to_owned(),
        unit,
        ours,
        baseline: Some(baseline),
        budget: Budget::AtMost(most),
    };
    Ok(vec![
        gauge(
            "resident memory of an idle oac-node",
            Unit::Mebibytes,
            mebibytes(ours)?,
            mebibytes(bare)?,
            12.0,
        ),
        gauge(
            "processor time of an idle oac-node",
            Unit::Percent,
            idle * 100.0,
            bare_idle * 100.0,
            0.1,
        ),
    ])
}
