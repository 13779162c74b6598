//! The Core program: what it is told, how it is started, and until when to wait for it.

use std::{
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use oac_model::Secret;

use crate::program::{Program, ProgramError, Tie, tied};

/// How long Core may take to serve.
const START: Duration = Duration::from_secs(60);

/// What a Core is told.
#[derive(Debug)]
pub struct CoreSettings<'a> {
    pub listen: SocketAddr,
    /// What nodes and sandboxes are told.
    pub public_url: Option<&'a str>,
    pub database_url: &'a str,
    pub database_password: Option<&'a Secret>,
}

impl CoreSettings<'_> {
    /// Writes `{name}.toml` to `folder`, and the password beside it.
    pub fn write(&self, folder: &Path, name: &str) -> std::io::Result<PathBuf> {
        let mut text = format!("listen = [\"{}\"]\nmetrics_listen = \"\"\n", self.listen);
        // Not this machine's.
        text += &format!("release_dir = \"{}\"\n", release_dir(folder).display());
        if let Some(public_url) = self.public_url {
            text += &format!("public_url = \"{public_url}\"\n");
        }
        text += &format!("\n[database]\nurl = \"{}\"\n", self.database_url);
        if let Some(password) = self.database_password {
            let file = folder.join(format!("{name}.password"));
            write_private(&file, password.expose())?;
            text += &format!("password_file = \"{}\"\n", file.display());
        }
        let config = folder.join(format!("{name}.toml"));
        write_private(&config, &text)?;
        Ok(config)
    }
}

/// Where a Core whose files are in `folder` looks for releases; nothing is there at first.
pub(crate) fn release_dir(folder: &Path) -> PathBuf {
    folder.join("releases")
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())
}

/// Starts the program `exe` with a configuration. It may come to own the installation, or stand by.
pub fn start(exe: &Path, config: &Path, log: &Path, tie: Tie) -> Result<Program, ProgramError> {
    let mut command = tied(exe, tie);
    command.arg("run").arg("--config").arg(config);
    Program::start("oac-core", command, log)
}

/// Waits until the Core at `url` answers `route` with success: `readyz` for an owner, `healthz` for any.
pub async fn until_answered(program: &mut Program, url: &str, route: &str) -> Result<(), ProgramError> {
    let route = format!("{url}/{route}");
    let answered = async || {
        let answer = reqwest::get(&route).await.ok()?;
        answer.status().is_success().then_some(())
    };
    program.until("Core serves", START, answered).await
}
