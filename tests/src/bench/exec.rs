//! One more command in a running Session.

use std::time::Instant;

use anyhow::Result;
use oac_tests::story::Story;

use crate::{
    figure::{Figure, Work},
    tools::{Running, end, first_output, timed_docker},
};

/// To the first output, against `docker exec` of the same command in the same container: in pairs, each side first in
/// turn.
pub(crate) async fn measure(story: &Story, rounds: usize) -> Result<Figure> {
    let Running { session, container } = Running::new(story).await?;
    let (mut ours, mut baseline) = (Vec::new(), Vec::new());
    let exec = ["exec", &container, "bash", "-c", "echo hello"];
    let own = async || -> Result<_> {
        let started = Instant::now();
        first_output(story, &session).await?;
        Ok(started.elapsed())
    };
    for round in 0..=rounds * 2 {
        let (own, plain) = if round % 2 == 0 {
            let plain = timed_docker(story, &exec).await?;
            (own().await?, plain)
        } else {
            (own().await?, timed_docker(story, &exec).await?)
        };
        if round > 0 {
            ours.push(own);
            baseline.push(plain);
        }
    }
    end(story, &[session]).await;
    Ok(Figure {
        name: "exec",
        what: "one more command to first output / docker exec",
        ours,
        baseline,
        work: Work::One,
        budget: Some(0.15),
        beside: Vec::new(),
    })
}
