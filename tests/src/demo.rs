//! `cargo xtask demo`: the product's main job, step by step, each with its time (overview.md, "The demo, precisely").
#![allow(clippy::print_stdout, reason = "a demo is there to be read")]

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use oac_model::InstallationId;
use oac_testkit::{
    engine::Engine,
    installation::{Installation, Node},
    program,
    runtime_image::RuntimeImage,
    wait,
};

/// Shows oac's main job on this machine.
#[derive(Parser)]
struct Arguments {
    /// Leave Core, the node and a Session running
    #[arg(long)]
    keep: bool,
}

const PATIENCE: Duration = Duration::from_secs(120);

/// What was made and must go again.
#[derive(Default)]
struct Made {
    installation: Option<Installation>,
    engine: Option<Engine>,
    id: Option<InstallationId>,
    node: Option<Node>,
    image: Option<RuntimeImage>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut made = Made::default();
    let started = Instant::now();
    let folder = match tempfile::Builder::new().prefix("oac-demo-").tempdir() {
        Ok(folder) => folder,
        Err(error) => {
            eprintln!("error: cannot make a folder for the demo: {error}");
            return ExitCode::FAILURE;
        }
    };
    let played = tokio::select! {
        played = play(&mut made, folder.path(), arguments.keep) => played,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted; cleaning up")),
    };
    if played.is_ok() && arguments.keep {
        explain_kept(&made, folder.path());
        // What runs on must not end with this program.
        std::mem::forget(made);
        let _ = folder.keep();
        return ExitCode::SUCCESS;
    }
    let cleaned = clean(made).await;
    for error in [played.as_ref().err(), cleaned.as_ref().err()]
        .into_iter()
        .flatten()
    {
        eprintln!("error: {error:#}");
    }
    if played.is_err() || cleaned.is_err() {
        return ExitCode::FAILURE;
    }
    println!(
        "\nDone in {:.1} s. Nothing is left behind; installed packages stay.",
        started.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}

/// Runs one step and prints it with its time.
async fn step<T>(title: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let started = Instant::now();
    let result = work.await;
    let mark = if result.is_ok() { "ok" } else { "failed" };
    println!("[{:>7.3} s] {title}: {mark}", started.elapsed().as_secs_f64());
    result
}

async fn play(made: &mut Made, folder: &Path, keep: bool) -> Result<()> {
    let image = RuntimeImage::of_tests();
    made.image = Some(image.clone());
    let engine = step("connect to the Docker Engine", async {
        Ok(Engine::of_tests().await)
    })
    .await?;
    made.engine = Some(engine.clone());
    let gateway = engine.bridge_gateway().await?;

    let tie = if keep {
        program::Tie::Free
    } else {
        program::Tie::Bound
    };
    let installation = step("start Core on SQLite", async {
        Ok(Installation::start(&program::built_programs(), folder, gateway, None, tie).await?)
    })
    .await?;
    let installation = made.installation.insert(installation);
    let url = installation.url.clone();
    println!("             Core serves at {url}");
    let port: u16 = url
        .rsplit(':')
        .next()
        .and_then(|p| p.parse().ok())
        .context("Core's address has no port")?;

    step("check that containers reach Core", async {
        let reached = engine.reaches(&image.tag, gateway, port).await?;
        ensure!(
            reached,
            "containers cannot reach {url}: allow TCP port {port} to {gateway} from the engine's bridge in this host's firewall"
        );
        Ok(())
    })
    .await?;

    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get()).min(2) as u32;
    let id = step("save the deployment (Docker)", async {
        installation.deploy(cpus, 1024, &image.selection()).await?;
        Ok(installation.installation_id().await?)
    })
    .await?;
    made.id = Some(id);

    let node = step("make this machine a node", async {
        engine.create_node_network(id).await?;
        Ok(installation
            .add_node(&engine, "demo", 1, oac_release::SECCOMP_PROFILE)
            .await?)
    })
    .await?;
    made.node = Some(node);

    let config = step("create a Project with an API key", async {
        let (_, key) = installation.project("demo").await?;
        Ok(installation.write_cli_config(&key)?)
    })
    .await?;
    let oac = Oac {
        program: installation.program("oac"),
        config,
    };

    let session = step(
        "oac session create",
        oac.line(&["session", "create", "--name", "demo"]),
    )
    .await?;
    println!("             Session {session}");
    let script = "for word in one two three; do echo \"$word\"; sleep 0.3; done";
    step(
        "oac session exec: a command that streams",
        oac.stream(&session, script),
    )
    .await?;
    step("oac session exec: write a file", async {
        oac.exec(&session, "echo \"written in a sandbox\" > /workspace/note.txt")
            .await
            .map(|_| ())
    })
    .await?;
    step("oac session exec: read it back", async {
        let text = oac.exec(&session, "cat /workspace/note.txt").await?;
        ensure!(
            text.trim() == "written in a sandbox",
            "the file holds something else: {text:?}"
        );
        println!("             {}", text.trim());
        Ok(())
    })
    .await?;
    if keep {
        println!("             Session {session} stays, with its container");
        return Ok(());
    }
    step("oac session archive", oac.line(&["session", "archive", &session])).await?;
    step("wait until its container and volumes are gone", async {
        wait::until("container and volumes are gone", PATIENCE, async || {
            let left = engine.leftovers(id).await.ok()?;
            (left.containers.is_empty() && left.volumes.is_empty()).then_some(())
        })
        .await?;
        Ok(())
    })
    .await
}

/// The command line, as a person uses it.
struct Oac {
    program: std::path::PathBuf,
    config: std::path::PathBuf,
}

impl Oac {
    fn command(&self) -> std::process::Command {
        let mut command = std::process::Command::new(&self.program);
        command.arg("--config").arg(&self.config).stdin(Stdio::null());
        command
    }

    async fn line(&self, arguments: &[&str]) -> Result<String> {
        let output = self
            .command()
            .args(arguments)
            .output()
            .context("cannot run oac")?;
        ensure!(
            output.status.success(),
            "oac failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    async fn exec(&self, session: &str, script: &str) -> Result<String> {
        self.line(&["session", "exec", session, "--", "bash", "-c", script])
            .await
    }

    /// Prints each line when it arrives, which shows that output streams.
    async fn stream(&self, session: &str, script: &str) -> Result<()> {
        let mut child = self
            .command()
            .args(["session", "exec", session, "--", "bash", "-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run oac")?;
        let (started, mut arrivals) = (Instant::now(), Vec::new());
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).lines() {
                let line = line.context("the output broke off")?;
                arrivals.push(started.elapsed());
                println!(
                    "             {line}   (after {:.3} s)",
                    started.elapsed().as_secs_f64()
                );
            }
        }
        let status = child.wait().context("cannot wait for oac")?;
        ensure!(status.success(), "the command ended with {status}");
        match arrivals[..] {
            [first, _, last] if last > first => Ok(()),
            _ => bail!("expected three lines one after another, got {}", arrivals.len()),
        }
    }
}

fn explain_kept(made: &Made, folder: &Path) {
    let Some(installation) = &made.installation else {
        return;
    };
    let oac = installation.program("oac");
    let config = folder.join("oac.toml");
    let pid = |pid: Option<u32>| pid.map_or_else(|| "?".to_owned(), |p| p.to_string());
    let id = made.id.map(|id| id.to_string()).unwrap_or_default();
    println!(
        "\nKept running. Core: {} (process {})",
        installation.url,
        pid(installation.core_pid())
    );
    println!(
        "Try:   {} --config {} session list",
        oac.display(),
        config.display()
    );
    // Complete whatever the Sessions are doing: the lines need no archive, and wait until nothing is created any more.
    let node = pid(made.node.as_ref().and_then(Node::pid));
    let core = pid(installation.core_pid());
    let label = format!("--filter label=io.oac.installation={id}");
    println!("Stop:  kill {node} {core}");
    println!("       timeout 30 tail --pid={node} -f /dev/null; timeout 30 tail --pid={core} -f /dev/null");
    println!("       docker ps -aq {label} | xargs -r docker rm -f");
    println!("       docker volume ls -q {label} | xargs -r docker volume rm");
    println!("       docker network rm oac-node-{id}");
    if let Some(image) = made.image.as_ref().filter(|image| image.loaded) {
        println!("       docker image rm {}", image.tag);
    }
    println!("       rm -rf {}", folder.display());
}

/// Takes back what was made, in the opposite order; what fails does not stop the rest.
async fn clean(made: Made) -> Result<()> {
    let started = Instant::now();
    let mut problems: Vec<String> = Vec::new();
    if let Some(mut node) = made.node {
        node.stop().await;
    }
    if let Some(mut installation) = made.installation {
        installation.stop_core().await;
    }
    if let Some(engine) = &made.engine {
        if let Some(id) = made.id
            && let Err(error) = engine.clear(id).await
        {
            problems.push(error.to_string());
        }
        if let Some(image) = made.image.filter(|image| image.loaded)
            && let Err(error) = engine.remove_image(&image.tag).await
        {
            problems.push(error.to_string());
        }
    }
    println!("[{:>7.3} s] clean up", started.elapsed().as_secs_f64());
    ensure!(problems.is_empty(), "left behind: {}", problems.join("; "));
    Ok(())
}
