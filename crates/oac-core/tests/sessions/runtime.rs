//! The real runtime program, as the sandbox of a placed Session. Its ports are this test's own, whose network it shares.

use std::{path::PathBuf, process::Stdio};

use oac_testkit::program::{Tie, built_programs, tied};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Child;

use crate::world::{Placed, World};

pub struct Runtime {
    _home: TempDir,
    child: Child,
}

impl Runtime {
    /// A Session whose sandbox is the program, linked.
    pub async fn place(world: &World) -> (Placed, Self) {
        let placed = world.place().await;
        let runtime = Self::start(world, &placed);
        world.until_linked(&placed).await;
        (placed, runtime)
    }

    pub fn start(world: &World, placed: &Placed) -> Self {
        Self::dialing(&world.core.url, placed)
    }

    /// The program, given this address of Core.
    pub fn dialing(base: &str, placed: &Placed) -> Self {
        let home = TempDir::new().unwrap();
        let hello = placed.sandbox.hello();
        let bootstrap = json!({
            "version": 1,
            "link_url": format!("{}/api/v1/sandbox-link", base.replacen("http", "ws", 1)),
            "credential": hello.credential.expose(),
            "resource": hello.resource,
        });
        let path = home.path().join("bootstrap.json");
        std::fs::write(&path, bootstrap.to_string()).unwrap();
        let child = tied(&program(), Tie::Bound)
            .arg("--bootstrap-file")
            .arg(&path)
            .env_clear()
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { _home: home, child }
    }

    pub fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

pub fn program() -> PathBuf {
    let program = built_programs().join("oac-runtime");
    assert!(
        program.is_file(),
        "{} is missing: build it with `cargo build -p oac-runtime`",
        program.display()
    );
    program
}
