//! `cargo xtask bench`: each figure beside its baseline, measured in the same run and in turn, so that whatever else
//! the machine does weighs on both. Prints a table and one JSON document.
#![allow(clippy::print_stdout, reason = "the figures are the program's result")]

mod agent;
mod bare;
mod calls;
mod codec;
mod cold_start;
mod connect;
mod download;
mod exec;
mod figure;
mod files;
mod gauge;
mod ground;
mod output;
mod placement;
mod process;
mod reset;
mod restart;
mod rollout;
mod swarm;
mod tools;
mod turns;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use oac_tests::story::Story;
use serde_json::json;

use crate::{figure::Figure, gauge::Gauge};

/// Measures oac against what it is built on.
#[derive(Parser)]
struct Arguments {
    /// One of the benchmarks; all of them without a name
    name: Option<String>,
    /// Rounds of each measurement
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Nodes of `connect`
    #[arg(long, default_value_t = connect::NODES)]
    nodes: usize,
    /// Be the other side of a baseline
    #[arg(long, hide = true)]
    bare_server: bool,
}

/// Those without a node that runs sandboxes.
const ALONE: [&str; 8] = [
    "calls",
    "codec",
    "connect",
    "download",
    "placement",
    "reset",
    "restart",
    "rollout",
];
/// Those on one installation with a node.
const ON_A_NODE: [&str; 6] = ["agent", "cold-start", "exec", "files", "output", "turns"];

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("error: a budget was missed: the table above says which");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every budget was held.
async fn run(arguments: &Arguments) -> Result<bool> {
    if arguments.bare_server {
        bare::serve().await?;
    }
    let names = [&ALONE[..], &ON_A_NODE].concat();
    if let Some(name) = &arguments.name
        && !names.contains(&name.as_str())
    {
        bail!(
            "there is no benchmark {name} yet: choose one of {}",
            names.join(", ")
        );
    }
    let wanted = |name: &str| arguments.name.as_deref().is_none_or(|n| n == name);
    let rounds = arguments.rounds;
    let (mut figures, mut gauges) = (Vec::new(), Vec::new());
    if wanted("codec") {
        figures.extend(codec::measure(rounds)?);
    }
    if wanted("calls") {
        figures.extend(calls::measure(rounds).await?);
    }
    if wanted("connect") {
        gauges.extend(connect::measure(arguments.nodes).await?);
    }
    if wanted("download") {
        figures.extend(download::measure(rounds).await?);
    }
    if wanted("placement") {
        let (more, rates) = placement::measure(rounds).await?;
        figures.extend(more);
        gauges.extend(rates);
    }
    if wanted("reset") {
        figures.push(reset::measure(rounds).await?);
    }
    if wanted("restart") {
        gauges.extend(restart::measure().await?);
    }
    if wanted("rollout") {
        gauges.extend(rollout::measure().await?);
    }
    if ON_A_NODE.into_iter().any(wanted) {
        let story = Story::begin(None).await;
        let node = story.add_node("bench", turns::SESSIONS).await;
        if wanted("agent") {
            gauges.extend(agent::measure(&node).await?);
        }
        if wanted("cold-start") {
            figures.extend(cold_start::measure(&story, rounds).await?);
        }
        if wanted("exec") {
            figures.push(exec::measure(&story, rounds).await?);
        }
        if wanted("output") {
            figures.extend(output::measure(&story, rounds).await?);
        }
        if wanted("files") {
            figures.extend(files::measure(&story, rounds).await?);
        }
        if wanted("turns") {
            figures.extend(turns::measure(&story, rounds).await?);
        }
        story.end(vec![node]).await;
    }
    if !figures.is_empty() {
        println!("{}", figure::HEADING);
    }
    figures.iter().for_each(Figure::print);
    if !gauges.is_empty() {
        println!("{}", gauge::HEADING);
    }
    gauges.iter().for_each(Gauge::print);
    println!(
        "{}",
        json!({
            "figures": figures.iter().map(Figure::json).collect::<Vec<_>>(),
            "gauges": gauges.iter().map(Gauge::json).collect::<Vec<_>>(),
        })
    );
    Ok(figures.iter().all(Figure::is_held) && gauges.iter().all(Gauge::is_held))
}
