//! `cargo xtask bench`: each figure beside its baseline, measured in the same run and in turn, so that whatever else
//! the machine does weighs on both. Prints a table and one JSON document.
#![allow(clippy::print_stdout, reason = "the figures are the program's result")]

mod codec;
mod cold_start;
mod exec;
mod figure;
mod files;
mod output;
mod tools;
mod turns;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use oac_tests::story::Story;
use serde_json::json;

use crate::figure::Figure;

/// Measures oac against what it is built on.
#[derive(Parser)]
struct Arguments {
    /// One of the benchmarks; all of them without a name
    name: Option<String>,
    /// Rounds of each measurement
    #[arg(long, default_value_t = 15)]
    rounds: usize,
}

const NAMES: [&str; 6] = ["codec", "cold-start", "exec", "files", "output", "turns"];

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
    if let Some(name) = &arguments.name
        && !NAMES.contains(&name.as_str())
    {
        bail!(
            "there is no benchmark {name} yet: choose one of {}",
            NAMES.join(", ")
        );
    }
    let wanted = |name: &str| arguments.name.as_deref().is_none_or(|n| n == name);
    let rounds = arguments.rounds;
    let mut figures = Vec::new();
    if wanted("codec") {
        figures.extend(codec::measure(rounds)?);
    }
    if NAMES.into_iter().any(|name| name != "codec" && wanted(name)) {
        let story = Story::begin(None).await;
        let node = story.add_node("bench", turns::SESSIONS).await;
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
    println!("{}", figure::HEADING);
    for figure in &figures {
        figure.print();
    }
    println!(
        "{}",
        json!({ "figures": figures.iter().map(Figure::json).collect::<Vec<_>>() })
    );
    Ok(figures.iter().all(Figure::is_held))
}
