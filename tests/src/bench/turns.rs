//! Short commands one after the other: in one Session, and in many at once.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::future::{join_all, try_join_all};
use oac_tests::story::Story;

use crate::{
    figure::{Figure, Work},
    tools::{Running, end, read_docker, read_output},
};

/// At once.
pub(crate) const SESSIONS: u32 = 50;
/// Turns of the one Session in one sample, submitted so many ahead.
const OF_ONE: usize = 100;
const AHEAD: usize = 16;
/// Turns of each of many Sessions in one sample.
const OF_EACH: usize = 4;

pub(crate) async fn measure(story: &Story, rounds: usize) -> Result<[Figure; 2]> {
    let rounds = rounds.div_ceil(5).max(3);
    let first = Running::new(story).await?;
    let (mut ours, mut baseline) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let plain = executed(story, std::slice::from_ref(&first), OF_ONE / 5).await? * 5;
        let own = ran(story, &first.session, OF_ONE).await?;
        if round > 0 {
            ours.push(own);
            baseline.push(plain);
        }
    }
    let one = Figure {
        name: "turns",
        what: "one Session / docker exec true",
        ours,
        baseline,
        work: Work::Things(OF_ONE as u64),
        budget: None,
        beside: Vec::new(),
    };
    let mut running = vec![first];
    // A few at a time: the engine is not what is measured.
    while running.len() < SESSIONS as usize {
        let more = (SESSIONS as usize - running.len()).min(5);
        running.extend(try_join_all((0..more).map(|_| Running::new(story))).await?);
    }
    let (mut ours, mut baseline) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let plain = executed(story, &running, 1).await? * OF_EACH as u32;
        let started = Instant::now();
        try_join_all(running.iter().map(|r| ran(story, &r.session, OF_EACH))).await?;
        if round > 0 {
            ours.push(started.elapsed());
            baseline.push(plain);
        }
    }
    let many = Figure {
        name: "turns",
        what: "50 Sessions at once / as many docker exec true",
        ours,
        baseline,
        work: Work::Things(u64::from(SESSIONS) * OF_EACH as u64),
        budget: None,
        beside: Vec::new(),
    };
    let sessions: Vec<_> = running.into_iter().map(|r| r.session).collect();
    end(story, &sessions).await;
    Ok([one, many])
}

/// So many Turns of one Session, to the end of the last.
async fn ran(story: &Story, session: &str, turns: usize) -> Result<Duration> {
    let started = Instant::now();
    let mut submitted = Vec::new();
    for n in 0..turns {
        if let Some(waited_for) = n.checked_sub(AHEAD) {
            let turn: &String = &submitted[waited_for];
            read_output(story, session, turn).await?;
        }
        let body = serde_json::json!({ "args": ["true"] });
        let answer = story
            .app("POST", &format!("/v1/sessions/{session}/inputs"), Some(&body))
            .await;
        submitted.push(answer["turn"]["id"].as_str().unwrap_or_default().to_owned());
    }
    if let Some(last) = submitted.last() {
        let end = read_output(story, session, last).await?.end;
        ensure!(end["exit_code"] == 0, "the last Turn ended so: {end}");
    }
    Ok(started.elapsed())
}

/// So many `docker exec true` in each container, in all of them at once.
async fn executed(story: &Story, running: &[Running], times: usize) -> Result<Duration> {
    let started = Instant::now();
    let all = running.iter().map(async |r| -> Result<()> {
        for _ in 0..times {
            read_docker(story, &["exec", &r.container, "true"]).await?;
        }
        Ok(())
    });
    join_all(all).await.into_iter().collect::<Result<()>>()?;
    Ok(started.elapsed())
}
