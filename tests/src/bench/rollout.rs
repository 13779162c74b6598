//! A new configuration on many nodes at once: how long until each serves it, and what that costs Core.
//!
//! The nodes have prepared it the moment they hear of it, so that the time is that of the protocol: of the beat that brings
//! the target, and of the one that reports it ready.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::{
    connect::{Field, made_up_release},
    gauge::{Budget, Gauge, Unit},
    process::{load_average, open_many_files},
    swarm::Swarm,
};

pub(crate) const NODES: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(300);
/// What connecting began has ended by then.
const SETTLE: Duration = Duration::from_secs(12);
/// Whole rounds of heartbeats.
const IDLE: Duration = Duration::from_secs(30);

pub(crate) async fn measure() -> Result<Vec<Gauge>> {
    open_many_files()?;
    let field = Field::with(NODES).await?;
    let mut swarm = Swarm::managing(field.address);
    let coming = swarm.watch();
    swarm.start(&field.members);
    coming.all(NODES, PATIENCE).await?;
    tokio::time::sleep(SETTLE).await;
    let core = field.core()?;
    let idle = core.load_over(IDLE).await?;

    let moving = swarm.watch_moves();
    let (before, began) = (core.processor_time()?, Instant::now());
    field.installation.deploy(1, 1024, &made_up_release()).await?;
    let saved = began.elapsed();
    let moved = moving.all(NODES, PATIENCE).await?;
    let (took, spent) = (began.elapsed(), core.processor_time()?.saturating_sub(before));
    println!("rolled out with load average {}", load_average());
    let middle = moved.get(moved.len() / 2).copied().unwrap_or_default();
    let gauge = |what: String, unit, ours, baseline| Gauge {
        name: "rollout",
        what,
        unit,
        ours,
        baseline,
        budget: Budget::None,
    };
    let each = |seconds: f64| seconds * 1000.0 / NODES as f64;
    Ok(vec![
        gauge(
            "saving it".to_owned(),
            Unit::Millis,
            saved.as_secs_f64() * 1000.0,
            None,
        ),
        gauge(
            format!("{NODES} nodes serve it: half of them"),
            Unit::Seconds,
            middle,
            None,
        ),
        gauge(
            format!("{NODES} nodes serve it: the last"),
            Unit::Seconds,
            took.as_secs_f64(),
            None,
        ),
        // Beside it, what the same nodes cost in as much time without.
        gauge(
            "Core's processor time for each node".to_owned(),
            Unit::Millis,
            each(spent.as_secs_f64()),
            Some(each(idle * took.as_secs_f64())),
        ),
    ])
}
