//! A whole deployment given back, beside an application that archives the same Sessions one after the other.
//!
//! The nodes are this process's own, with a provider that answers at once: what is measured is Core.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use oac_testkit::{
    core::{CoreOptions, TestCore},
    wait,
};
use reqwest::Method;
use serde_json::json;

use crate::{
    calls::enroll,
    figure::{Figure, Work},
    swarm::Swarm,
};

const SESSIONS: usize = 1000;
const NODES: usize = 20;
/// Sessions are made by so many at once; how long that takes is not measured.
const MAKERS: usize = 16;
const WAIT: Duration = Duration::from_secs(300);
/// Making the Sessions of a round takes longer than ending them.
const ROUNDS: usize = 3;

pub(crate) async fn measure(rounds: usize) -> Result<Figure> {
    let (mut ours, mut baseline) = (Vec::new(), Vec::new());
    for _ in 0..rounds.min(ROUNDS) {
        ours.push(Field::begin().await?.reset().await?);
        baseline.push(Field::begin().await?.archive_each().await?);
    }
    Ok(Figure {
        name: "reset",
        what: "1,000 Sessions reset by force / archived each",
        ours,
        baseline,
        work: Work::Things(SESSIONS as u64),
        budget: None,
        beside: Vec::new(),
    })
}

/// A Core with nodes and running sandboxes.
struct Field {
    core: TestCore,
    sessions: Vec<String>,
    _nodes: Swarm,
}

impl Field {
    async fn begin() -> Result<Self> {
        let core = TestCore::with(CoreOptions::default()).await;
        core.deploy(1, 512).await;
        let mut members = Vec::new();
        for _ in 0..NODES {
            members.push(enroll(&core).await?);
        }
        let mut nodes = Swarm::of(core.url.trim_start_matches("http://").parse()?);
        let connected = nodes.watch();
        nodes.start(&members);
        connected.all(NODES, WAIT).await?;
        let made = (0..SESSIONS).map(async |_| {
            let answer = core
                .application(Method::POST, "/v1/sessions", Some(&json!({})))
                .await;
            ensure!(answer.status == 201, "no Session: {}", answer.body);
            Ok(answer.body["id"].as_str().unwrap_or_default().to_owned())
        });
        let sessions = stream::iter(made).buffer_unordered(MAKERS).try_collect().await?;
        let field = Self {
            core,
            sessions,
            _nodes: nodes,
        };
        let read = field.core.core().store.single();
        wait::until("every sandbox runs", WAIT, async || {
            let nodes = read.nodes_with_counts().await.ok()?;
            let running: u64 = nodes.iter().map(|(_, counts)| counts.running).sum();
            (running == SESSIONS as u64).then_some(())
        })
        .await
        .map_err(anyhow::Error::msg)?;
        Ok(field)
    }

    async fn reset(self) -> Result<Duration> {
        let path = "/core/v1/sandbox/deployment/reset";
        let started = Instant::now();
        let force = json!({ "expected_generation": 1, "clear": "force" });
        let answer = self.core.operator(Method::POST, path, Some(&force)).await;
        ensure!(answer.status == 200, "no reset: {}", answer.body);
        let read = self.core.core().store.single();
        wait::until("the deployment is reset", WAIT, async || {
            read.deployment()
                .await
                .is_ok_and(|row| row.provider.is_none())
                .then_some(())
        })
        .await
        .map_err(anyhow::Error::msg)?;
        Ok(started.elapsed())
    }

    async fn archive_each(self) -> Result<Duration> {
        let started = Instant::now();
        for session in &self.sessions {
            let path = format!("/v1/sessions/{session}");
            let answer = self.core.application(Method::DELETE, &path, None).await;
            ensure!(answer.status == 202, "not archived: {}", answer.body);
        }
        let read = self.core.core().store.single();
        wait::until("everything is released", WAIT, async || {
            let left = read.resource_counts().await.ok()?;
            (left.allocations + left.pending == 0).then_some(())
        })
        .await
        .map_err(anyhow::Error::msg)?;
        Ok(started.elapsed())
    }
}
