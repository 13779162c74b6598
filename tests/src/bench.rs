//! `cargo xtask bench`: each figure beside its baseline, measured in the same run and in turn, so that whatever else
//! the machine does weighs on both. Prints a table and one JSON document.
#![allow(clippy::print_stdout, reason = "the figures are the program's result")]

use std::{
    process::{ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use oac_tests::story::Story;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

/// Measures oac against what it is built on.
#[derive(Parser)]
struct Arguments {
    /// `cold-start`, `command` or `decode`; all of them without a name
    name: Option<String>,
    /// Rounds of each measurement
    #[arg(long, default_value_t = 15)]
    rounds: usize,
}

const NAMES: [&str; 3] = ["cold-start", "command", "decode"];

/// One figure: medians of both sides and their ratio against its budget.
struct Figure {
    name: &'static str,
    what: &'static str,
    ours: Vec<Duration>,
    baseline: Vec<Duration>,
    budget: f64,
    /// Medians of further measurements that explain the figure, by name.
    beside: Vec<(&'static str, Duration)>,
}

fn median(samples: &[Duration]) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

impl Figure {
    fn ratio(&self) -> f64 {
        median(&self.ours).as_secs_f64() / median(&self.baseline).as_secs_f64().max(1e-9)
    }

    fn print(&self) {
        let millis = |d: Duration| d.as_secs_f64() * 1000.0;
        let held = if self.ratio() <= self.budget {
            "held"
        } else {
            "MISSED"
        };
        println!(
            "{:<11} {:<52} {:>9.1} ms {:>9.1} ms {:>7.3} {:>7.2} {held}",
            self.name,
            self.what,
            millis(median(&self.ours)),
            millis(median(&self.baseline)),
            self.ratio(),
            self.budget
        );
        for (name, duration) in &self.beside {
            println!("{:<11}   {name:<50} {:>9.1} ms", "", millis(*duration));
        }
    }

    fn json(&self) -> Value {
        let list = |samples: &[Duration]| samples.iter().map(Duration::as_secs_f64).collect::<Vec<_>>();
        json!({
            "name": self.name, "what": self.what, "ratio": self.ratio(), "budget": self.budget,
            "ours_seconds": list(&self.ours), "baseline_seconds": list(&self.baseline),
            "beside_seconds": self.beside.iter().map(|(n, d)| ((*n).to_owned(), json!(d.as_secs_f64())))
                .collect::<serde_json::Map<_, _>>(),
        })
    }
}

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
    let mut figures = Vec::new();
    if wanted("decode") {
        figures.push(decode(arguments.rounds)?);
    }
    if wanted("cold-start") || wanted("command") {
        let story = Story::begin(None).await;
        let node = story.add_node("bench", 2).await;
        if wanted("cold-start") {
            figures.extend(cold_start(&story, arguments.rounds).await?);
        }
        if wanted("command") {
            figures.push(command(&story, arguments.rounds).await?);
        }
        story.end(vec![node]).await;
    }
    println!(
        "{:<11} {:<52} {:>12} {:>12} {:>7} {:>7}",
        "name", "what (median)", "oac", "baseline", "ratio", "budget"
    );
    for figure in &figures {
        figure.print();
    }
    println!(
        "{}",
        json!({ "figures": figures.iter().map(Figure::json).collect::<Vec<_>>() })
    );
    Ok(figures.iter().all(|f| f.ratio() <= f.budget))
}

/// A request of 64 MiB decoded strictly, against the same types decoded without checks.
fn decode(rounds: usize) -> Result<Figure> {
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
        budget: 1.25,
        beside: Vec::new(),
    })
}

/// Session created to first output of its first command, against `docker run` of the same image and command: once as a
/// person types it, once with the network, limits and volumes that a sandbox must have, which the engine charges for.
async fn cold_start(story: &Story, rounds: usize) -> Result<[Figure; 2]> {
    let (mut ours, mut baseline, mut alike) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms caches of both sides and is not counted.
    for round in 0..=rounds {
        let plain = docker_run(story, &[]).await?;
        let same = docker_run(story, &docker_options(story)).await?;
        let started = Instant::now();
        let session = story.new_session().await;
        first_output(story, &session).await?;
        let own = started.elapsed();
        story
            .app("DELETE", &format!("/v1/sessions/{session}"), None)
            .await;
        story.until_empty().await;
        story.until_released().await;
        if round > 0 {
            ours.push(own);
            baseline.push(plain);
            alike.push(same);
        }
    }
    let figure = |what, baseline| Figure {
        name: "cold-start",
        what,
        ours: ours.clone(),
        baseline,
        budget: 1.15,
        beside: Vec::new(),
    };
    Ok([
        figure("Session to first output / docker run", baseline),
        figure("the same / docker run, a sandbox's options", alike),
    ])
}

/// One more command in a running Session, against `docker exec`.
async fn command(story: &Story, rounds: usize) -> Result<Figure> {
    let session = story.new_session().await;
    first_output(story, &session).await?;
    let container = story
        .containers()
        .await
        .into_iter()
        .next()
        .context("the Session has no container")?;
    let (mut ours, mut baseline) = (Vec::new(), Vec::new());
    for round in 0..=rounds * 2 {
        let exec = timed_docker(story, &["exec", &container, "bash", "-c", "echo hello"]).await?;
        let started = Instant::now();
        first_output(story, &session).await?;
        let own = started.elapsed();
        if round > 0 {
            ours.push(own);
            baseline.push(exec);
        }
    }
    story
        .app("DELETE", &format!("/v1/sessions/{session}"), None)
        .await;
    story.until_empty().await;
    Ok(Figure {
        name: "command",
        what: "one more command to first output / docker exec",
        ours,
        baseline,
        budget: 0.15,
        beside: Vec::new(),
    })
}

/// Submits the command and reads its output stream up to the first output.
async fn first_output(story: &Story, session: &str) -> Result<()> {
    let turn = story.submit(session, "echo hello").await;
    let path = format!(
        "{}/v1/sessions/{session}/turns/{turn}/output?offset=0",
        story.installation.url
    );
    let mut response = story
        .installation
        .http()
        .get(path)
        .bearer_auth(story.key.expose())
        .send()
        .await?;
    let mut text = String::new();
    while let Some(chunk) = response.chunk().await? {
        text.push_str(&String::from_utf8_lossy(&chunk));
        if text.contains("event: output") {
            return Ok(());
        }
        ensure!(
            !text.contains("event: end"),
            "the command ended without output: {text}"
        );
    }
    bail!("the output stream ended early: {text}")
}

fn docker_options(story: &Story) -> Vec<String> {
    let network = format!("oac-node-{}", story.id);
    [
        "--read-only",
        "--user",
        "1000:1000",
        "--cap-drop",
        "ALL",
        "--security-opt",
        "no-new-privileges",
        "--network",
        &network,
        "--pids-limit",
        "128",
        "--memory",
        "512m",
        "--memory-swap",
        "512m",
        "--cpus",
        "1",
        "--tmpfs",
        "/tmp:rw,nosuid,nodev,size=128m",
        "-v",
        "/home",
        "-v",
        "/environment",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// `docker run` of the Runtime image with the command, to its first output.
async fn docker_run(story: &Story, options: &[String]) -> Result<Duration> {
    let mut arguments = vec!["run".to_owned(), "--rm".to_owned()];
    arguments.extend(options.iter().cloned());
    arguments.extend(["--entrypoint", "bash", &story.image.tag, "-c", "echo hello"].map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    timed_docker(story, &arguments).await
}

/// Runs docker's own command line; the time to its first output byte.
async fn timed_docker(story: &Story, arguments: &[&str]) -> Result<Duration> {
    let started = Instant::now();
    let mut child = tokio::process::Command::new("docker")
        .args(arguments)
        .env("DOCKER_HOST", story.engine.host())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot run docker")?;
    let mut stdout = child.stdout.take().context("docker has no output")?;
    let mut first = [0; 1];
    ensure!(
        stdout.read(&mut first).await? == 1,
        "docker {arguments:?} printed nothing"
    );
    let elapsed = started.elapsed();
    child.wait().await?;
    Ok(elapsed)
}
