//! The program, its configuration, and what it said.

use std::{
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::{io::AsyncWriteExt, process::Command};

/// `oac` with a configuration of its own.
pub struct Oac {
    pub folder: tempfile::TempDir,
    pub config: PathBuf,
}

/// How a run ended.
#[derive(Debug)]
pub struct Said {
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Oac {
    /// With the file's text as given.
    pub fn with(text: &str) -> Self {
        let oac = Self::unconfigured();
        write(&oac.config, text);
        oac
    }

    /// With one context for `url` and both keys.
    pub fn of(url: &str) -> Self {
        Self::with(&format!(
            "url = \"{url}\"\ncore_key = \"oac_core_0\"\nproject_key = \"oac_key_0\"\n"
        ))
    }

    /// Without a file.
    pub fn unconfigured() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.toml");
        Self { folder, config }
    }

    /// A run to be completed; nothing on standard input, nothing of this process's environment but PATH.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oac"));
        command
            .env_clear()
            .env("HOME", self.folder.path())
            .arg("--config")
            .arg(&self.config)
            .args(arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    pub async fn run(&self, arguments: &[&str]) -> Said {
        said(self.command(arguments).output().await.unwrap())
    }

    /// With `input` on standard input.
    pub async fn run_with(&self, input: &[u8], arguments: &[&str]) -> Said {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A program that refuses early reads no more.
        let _ = stdin.write_all(input).await;
        drop(stdin);
        said(child.wait_with_output().await.unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

pub fn said(output: std::process::Output) -> Said {
    Said {
        status: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Said {
    /// The exit status, standard output, and that nothing was said beside it.
    #[track_caller]
    pub fn expect(self, status: i32) -> Self {
        assert_eq!(self.status, Some(status), "{self:?}");
        self
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    pub fn lines(&self) -> Vec<serde_json::Value> {
        self.out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// A file of mode 0600.
pub fn write(path: &Path, text: &str) {
    use std::io::Write;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
}
