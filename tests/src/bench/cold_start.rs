//! A Session from its creation to the first output of its first command.

use std::time::{Duration, Instant};

use anyhow::Result;
use oac_tests::story::Story;

use crate::{
    figure::{Figure, Work},
    tools::{end, first_output, timed_docker},
};

/// Session created to first output of its first command, against `docker run` of the same image and command: once as a
/// person types it, once with the network, limits and volumes that a sandbox must have, which the engine charges for.
pub(crate) async fn measure(story: &Story, rounds: usize) -> Result<[Figure; 2]> {
    let (mut ours, mut baseline, mut alike) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms caches of both sides and is not counted.
    for round in 0..=rounds {
        let plain = docker_run(story, &[]).await?;
        let same = docker_run(story, &docker_options(story)).await?;
        let started = Instant::now();
        let session = story.new_session().await;
        first_output(story, &session).await?;
        let own = started.elapsed();
        end(story, &[session]).await;
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
        work: Work::One,
        budget: Some(1.15),
        beside: Vec::new(),
    };
    Ok([
        figure("Session to first output / docker run", baseline),
        figure("the same / docker run, a sandbox's options", alike),
    ])
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
