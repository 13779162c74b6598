//! A file of 512 MiB into a sandbox and out of it again, through Core, against `docker cp` of the same file.
//!
//! Both sides read from and write to a file of this host. What oac does beyond the copy counts as its time: hashing in
//! the sandbox, the flush of the disk before the answer, and the rename.

use std::{
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use futures_util::stream;
use oac_tests::story::Story;
use reqwest::Body;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    figure::{Figure, Work},
    tools::{Running, end, read_docker},
};

const SIZE: u64 = 512 << 20;
const PIECE: usize = 256 << 10;
/// Each round moves 2 GiB.
const ROUNDS: usize = 7;

pub(crate) async fn measure(story: &Story, rounds: usize) -> Result<[Figure; 2]> {
    let Running { session, container } = Running::new(story).await?;
    let folder = tempfile::TempDir::new()?;
    let (source, fetched) = (folder.path().join("source"), folder.path().join("fetched"));
    make(&source)?;
    let mut up = (Vec::new(), Vec::new());
    let mut down = (Vec::new(), Vec::new());
    for round in 0..=rounds.min(ROUNDS) {
        let inside = format!("{container}:/environment/workspace/plain");
        let plain_up = docker_cp(story, text(&source), &inside).await?;
        let own_up = put(story, &session, &source).await?;
        let plain_down = docker_cp(story, &inside, text(&fetched)).await?;
        ensure!(std::fs::metadata(&fetched)?.len() == SIZE, "docker cp lost bytes");
        std::fs::remove_file(&fetched)?;
        let own_down = get(story, &session, &fetched).await?;
        ensure!(
            std::fs::metadata(&fetched)?.len() == SIZE,
            "the download lost bytes"
        );
        std::fs::remove_file(&fetched)?;
        if round > 0 || rounds == 0 {
            up.0.push(own_up);
            up.1.push(plain_up);
            down.0.push(own_down);
            down.1.push(plain_down);
        }
    }
    end(story, &[session]).await;
    let figure = |what, (ours, baseline)| Figure {
        name: "files",
        what,
        ours,
        baseline,
        work: Work::Bytes(SIZE),
        budget: None,
        beside: Vec::new(),
    };
    Ok([
        figure("512 MiB into a sandbox / docker cp", up),
        figure("512 MiB out of a sandbox / docker cp", down),
    ])
}

fn make(path: &Path) -> Result<()> {
    let piece: Vec<u8> = (0..1_u32 << 20)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let mut file = std::fs::File::create(path)?;
    for _ in 0..SIZE >> 20 {
        file.write_all(&piece)?;
    }
    file.sync_all()?;
    Ok(())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

async fn docker_cp(story: &Story, from: &str, to: &str) -> Result<Duration> {
    let started = Instant::now();
    read_docker(story, &["cp", "--quiet", from, to]).await?;
    Ok(started.elapsed())
}

fn request(story: &Story, session: &str, method: reqwest::Method) -> reqwest::RequestBuilder {
    let url = format!("{}/v1/sessions/{session}/files?path=own", story.installation.url);
    let request = story.installation.http().request(method, url);
    request.bearer_auth(story.key.expose())
}

async fn put(story: &Story, session: &str, source: &Path) -> Result<Duration> {
    let started = Instant::now();
    let file = tokio::fs::File::open(source).await?;
    let pieces = stream::try_unfold(file, |mut file| async move {
        let mut piece = Vec::with_capacity(PIECE);
        (&mut file).take(PIECE as u64).read_to_end(&mut piece).await?;
        Ok::<_, std::io::Error>((!piece.is_empty()).then_some((piece, file)))
    });
    let answer = request(story, session, reqwest::Method::PUT)
        .header("Content-Length", SIZE)
        .body(Body::wrap_stream(pieces))
        .send()
        .await?;
    ensure!(
        answer.status().is_success(),
        "the upload was answered {}",
        answer.status()
    );
    Ok(started.elapsed())
}

async fn get(story: &Story, session: &str, into: &Path) -> Result<Duration> {
    let started = Instant::now();
    let mut answer = request(story, session, reqwest::Method::GET).send().await?;
    ensure!(
        answer.status().is_success(),
        "the download was answered {}",
        answer.status()
    );
    let mut file = tokio::io::BufWriter::with_capacity(PIECE, tokio::fs::File::create(into).await?);
    while let Some(piece) = answer.chunk().await? {
        file.write_all(&piece).await?;
    }
    file.flush().await?;
    Ok(started.elapsed())
}
