//! The Core program as owner in the place of a [`TestCore`], on the same database: one that can be stopped, killed and
//! frozen, which a Core in the test's own process cannot.

use std::{
    io::Write as _,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    core::TestCore,
    program::{Program, Tie, tied},
};

/// How long it may take to own the installation.
const START: Duration = Duration::from_secs(60);

/// A Core program that owns the installation of a [`TestCore`].
pub struct CoreProgram {
    pub program: Program,
    /// `http://127.0.0.1:port`.
    pub url: String,
    _folder: tempfile::TempDir,
}

impl CoreProgram {
    /// Stops `core`, whose keys, nodes and Sessions stay, and starts the program `exe` in its place. It tells nodes and
    /// sandboxes the public address of `core`.
    ///
    /// # Panics
    /// When it does not own the installation in time.
    pub async fn in_place_of(core: &mut TestCore, exe: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap_or_else(|e| panic!("no temporary folder: {e}"));
        let (config, url) =
            configure(folder.path(), core).unwrap_or_else(|e| panic!("no configuration: {e}"));
        core.stop().await;
        let mut command = tied(exe, Tie::Bound);
        command.arg("run").arg("--config").arg(config);
        let mut program = Program::start("oac-core", command, &folder.path().join("core.log"))
            .unwrap_or_else(|e| panic!("{e}"));
        let ready = async || {
            let answer = reqwest::get(format!("{url}/readyz")).await.ok()?;
            answer.status().is_success().then_some(())
        };
        program
            .until("the program owns", START, ready)
            .await
            .unwrap_or_else(|e| panic!("{e}"));
        Self {
            program,
            url,
            _folder: folder,
        }
    }
}

fn configure(folder: &Path, beside: &TestCore) -> std::io::Result<(PathBuf, String)> {
    let loopback = Ipv4Addr::LOCALHOST.into();
    let address = SocketAddr::new(loopback, crate::port::unused(loopback)?);
    let mut text = format!("listen = [\"{address}\"]\nmetrics_listen = \"\"\n");
    if let Some(public_url) = &beside.public_url {
        text += &format!("public_url = \"{public_url}\"\n");
    }
    text += &format!("[database]\nurl = \"{}\"\n", beside.database_url());
    if let Some(password) = beside.database_password() {
        let file = folder.join("password");
        let mut options = std::fs::OpenOptions::new();
        let mut created = options.write(true).create_new(true).mode(0o600).open(&file)?;
        created.write_all(password.expose().as_bytes())?;
        text += &format!("password_file = \"{}\"\n", file.display());
    }
    let path = folder.join("config.toml");
    std::fs::write(&path, text)?;
    Ok((path, format!("http://{address}")))
}
