//! Output of a command, from its process to a reader over HTTP.
//!
//! Core stores 16 MiB of a Turn, so what is stored is measured in Turns of that size, and a long output, most of which is
//! counted and dropped, by itself.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use oac_tests::story::Story;

use crate::{
    figure::{Figure, Work},
    tools::{Running, end, read_docker, read_output},
};

const STORED: u64 = 16 << 20;
const LONG: u64 = 256 << 20;

pub(crate) async fn measure(story: &Story, rounds: usize) -> Result<[Figure; 2]> {
    let Running { session, container } = Running::new(story).await?;
    let make = format!(
        "head -c {STORED} /dev/urandom > /workspace/output; head -c {LONG} /dev/zero > /workspace/long"
    );
    let made = story.submit(&session, &make).await;
    story.turn_end(&session, &made).await;
    let mut stored = (Vec::new(), Vec::new());
    let mut long = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        // 256 MiB of stored output in all; a quarter as many long ones.
        for (file, size, kept, into) in [
            ("output", STORED, STORED, Some(&mut stored)),
            (
                "long",
                LONG,
                STORED,
                Some(&mut long).filter(|_| round == 0 || round % 4 == 1),
            ),
        ] {
            let Some((ours, baseline)) = into else { continue };
            let started = Instant::now();
            let docker = ["exec", &container, "cat", &format!("/workspace/{file}")];
            let bytes = read_docker(story, &docker).await?;
            let plain = started.elapsed();
            ensure!(bytes == size, "docker exec gave {bytes} bytes");
            let started = Instant::now();
            let turn = story
                .submit(&session, &format!("exec cat /workspace/{file}"))
                .await;
            let read = read_output(story, &session, &turn).await?;
            let own = started.elapsed();
            ensure!(read.bytes == kept, "the stream gave {} bytes", read.bytes);
            let written = read.end["output_bytes"].as_u64().context("no output_bytes")?;
            ensure!(written == size, "Core counted {written} bytes");
            if round > 0 || rounds == 0 {
                ours.push(own);
                baseline.push(plain);
            }
        }
    }
    end(story, &[session]).await;
    let figure = |what, (ours, baseline), size| Figure {
        name: "output",
        what,
        ours,
        baseline,
        work: Work::Bytes(size),
        budget: None,
        beside: Vec::new(),
    };
    Ok([
        figure("16 MiB, stored and read / docker exec cat", stored, STORED),
        figure("256 MiB, 16 MiB of it stored / docker exec cat", long, LONG),
    ])
}
