//! A file of 1 GiB from Core over loopback, verified, against `curl` piped into `sha256sum`.
//!
//! oac keeps the file under its name, synced, which the baseline does not: it goes to memory that is a file system,
//! where there is one, so that the disk is not what is measured. With the disk it is compared with a `curl` that writes
//! and a `sha256sum` that reads.

use std::{
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use oac_dial::Surroundings;
use oac_model::{Digest, ImageDigest, SourceCommit};
use oac_records::Directory;
use oac_release::{
    fetch::Remote,
    layout::{self, Row},
    manifest::{Artifact, Image, Manifest},
    metadata::{ARTIFACTS, MANIFEST, Metadata, SUMS},
    payload,
    progress::Silent,
};
use oac_testkit::{
    installation::Installation,
    program::{Tie, built_programs},
};
use reqwest::{Url, header::HeaderValue};
use tokio::process::Command;

use crate::figure::{Figure, Work};

const SIZE: usize = 1 << 30;
/// Each round moves 4 GiB.
const ROUNDS: usize = 7;
/// At least 0.95 of the baseline's speed.
const BUDGET: f64 = 1.0 / 0.95;
const MEMORY: &str = "/dev/shm";

pub(crate) async fn measure(rounds: usize) -> Result<[Figure; 2]> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::Builder::new().prefix("oac-bench-").tempdir()?;
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let installation = Installation::start(&built_programs(), folder.path(), local, None, Tie::Bound).await?;
    let metadata = keep(&installation.release_dir())?;
    let file = metadata
        .manifest()
        .file(&layout::NODE)
        .context("no file")?
        .clone();
    let url = format!(
        "{}/api/v1/sandbox-node/install/releases/{}/{ARTIFACTS}/{}",
        installation.url,
        metadata.source_commit(),
        file.filename
    );
    until_hashed(&installation, &url).await?;
    let memory = tempfile::Builder::new()
        .prefix("oac-bench-")
        .tempdir_in(if Path::new(MEMORY).is_dir() {
            Path::new(MEMORY)
        } else {
            folder.path()
        })?;
    let (mut piped, mut stored) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
    for round in 0..=rounds.min(ROUNDS) {
        let plain = curl(
            &url,
            &file,
            "curl -sS --noproxy '*' \"$0\" | sha256sum",
            folder.path(),
        )
        .await?;
        let own = fetch(&installation.url, &metadata, &file, memory.path()).await?;
        let script = "curl -sS --noproxy '*' -o plain \"$0\" && sync plain && sha256sum < plain && rm plain";
        let plain_stored = curl(&url, &file, script, folder.path()).await?;
        let own_stored = fetch(&installation.url, &metadata, &file, folder.path()).await?;
        if round > 0 || rounds == 0 {
            piped.0.push(own);
            piped.1.push(plain);
            stored.0.push(own_stored);
            stored.1.push(plain_stored);
        }
    }
    let figure = |what, (ours, baseline), budget| Figure {
        name: "download",
        what,
        ours,
        baseline,
        work: Work::Bytes(SIZE as u64),
        budget,
        beside: Vec::new(),
    };
    Ok([
        figure("1 GiB, verified / curl | sha256sum", piped, Some(BUDGET)),
        figure("1 GiB, verified, on disk / curl, sync, sha256sum", stored, None),
    ])
}

/// Writes a release with one large file to where Core looks for releases.
fn keep(release_dir: &Path) -> Result<Metadata> {
    let commit = SourceCommit::from_bytes([1; 20]);
    let large: Vec<u8> = (0..SIZE as u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let image = Image {
        config_digest: ImageDigest::of("config"),
        manifest_digest: ImageDigest::of("manifest"),
    };
    let folder = release_dir.join(commit.to_string());
    std::fs::create_dir_all(folder.join(ARTIFACTS))?;
    let mut artifacts = Vec::new();
    for (row, bytes) in [
        (layout::NODE, large.as_slice()),
        (layout::INSTALLER, b"an installer"),
    ] {
        let artifact = artifact(&row, commit, bytes);
        std::fs::write(folder.join(ARTIFACTS).join(&artifact.filename), bytes)?;
        artifacts.push(artifact);
    }
    let metadata = Metadata::of(Manifest::of(commit, image, artifacts)?);
    std::fs::write(folder.join(MANIFEST), metadata.manifest_bytes())?;
    std::fs::write(folder.join(SUMS), metadata.sums_bytes())?;
    Ok(metadata)
}

fn artifact(row: &Row, commit: SourceCommit, bytes: &[u8]) -> Artifact {
    Artifact {
        key: row.key.to_owned(),
        filename: row.filename(commit),
        role: row.role,
        provider: row.provider,
        size_bytes: bytes.len() as u64,
        sha256: Digest::of(bytes),
        unpacked: None,
    }
}

/// Until Core has hashed the file, which then costs it nothing more; what may be kept for ever says so.
async fn until_hashed(installation: &Installation, url: &str) -> Result<()> {
    let started = Instant::now();
    loop {
        let answer = installation.http().head(url).send().await?;
        let cached = answer.headers().get("cache-control");
        if cached.is_some_and(|value| value.as_bytes().ends_with(b"immutable")) {
            return Ok(());
        }
        ensure!(
            started.elapsed() < Duration::from_secs(120),
            "Core answers {}",
            answer.status()
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn curl(url: &str, file: &Artifact, script: &str, folder: &Path) -> Result<Duration> {
    let started = Instant::now();
    let output = Command::new("sh")
        .args(["-c", script, url])
        .current_dir(folder)
        .stderr(Stdio::inherit())
        .output()
        .await?;
    let elapsed = started.elapsed();
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        said.starts_with(&file.sha256.to_string()),
        "curl brought other bytes: {said}"
    );
    Ok(elapsed)
}

/// As a node fetches it, to a root of its own in `folder`.
async fn fetch(origin: &str, metadata: &Metadata, file: &Artifact, folder: &Path) -> Result<Duration> {
    let root = folder.join("root");
    let (origin, commit, file) = (origin.parse::<Url>()?, metadata.source_commit(), file.clone());
    let fetched = tokio::task::spawn_blocking(move || {
        std::fs::create_dir(&root)?;
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o700))?;
        let directory = Directory::open(&root)?;
        let started = Instant::now();
        let program = HeaderValue::from_static("oac-bench/1");
        let mut remote = Remote::new(&origin, Surroundings::default(), program)?;
        payload::fetch(&directory, &mut remote, commit, &[&file], &mut Silent)?;
        let elapsed = started.elapsed();
        std::fs::remove_dir_all(&root)?;
        Ok::<_, anyhow::Error>(elapsed)
    });
    fetched.await?
}
