//! `oac login`.

use std::{
    io::{BufRead, IsTerminal, Write},
    path::Path,
};

use clap::Args;
use oac_model::Secret;
use rustix::termios::{self, LocalModes, OptionalActions};

use crate::{
    Failure,
    config::{self, Config},
    output,
};

#[derive(Debug, Args)]
pub(super) struct Login {}

impl Login {
    /// Asks for the address and the keys; without a terminal they are read as three lines of standard input.
    pub(super) fn run(self, path: &Path) -> Result<(), Failure> {
        let url = ask("Core's address (such as https://oac.example.org): ", false)?;
        if !config::is_origin(&url) {
            return Err(Failure::Usage(
                "the address must be http://host or https://host, without a path".to_owned(),
            ));
        }
        let core_key = key("Core key, for operators (empty for none): ", "oac_core_")?;
        let project_key = key("Project API key, for applications (empty for none): ", "oac_key_")?;
        if core_key.is_none() && project_key.is_none() {
            return Err(Failure::Usage(
                "enter at least one key; nothing was written".to_owned(),
            ));
        }
        Config {
            url,
            core_key,
            project_key,
        }
        .save(path)?;
        output::line(&format!("Wrote {}", path.display()));
        Ok(())
    }
}

fn key(prompt: &str, prefix: &str) -> Result<Option<Secret>, Failure> {
    let text = ask(prompt, true)?;
    if text.is_empty() {
        return Ok(None);
    }
    if !text.starts_with(prefix) {
        return Err(Failure::Usage(format!(
            "such a key begins with {prefix}; nothing was written"
        )));
    }
    Ok(Some(Secret::new(text)))
}

/// One line of standard input; `hidden` turns the terminal's echo off while it is typed.
fn ask(prompt: &str, hidden: bool) -> Result<String, Failure> {
    let stdin = std::io::stdin();
    let terminal = stdin.is_terminal();
    let failed = |source| Failure::File {
        path: "standard input".into(),
        source,
    };
    if terminal {
        let mut stderr = std::io::stderr();
        let _ = write!(stderr, "{prompt}").and_then(|()| stderr.flush());
    }
    let saved = (terminal && hidden)
        .then(|| termios::tcgetattr(&stdin))
        .transpose()
        .map_err(|e| failed(e.into()))?;
    if let Some(saved) = &saved {
        let mut quiet = saved.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        termios::tcsetattr(&stdin, OptionalActions::Flush, &quiet).map_err(|e| failed(e.into()))?;
    }
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    if let Some(saved) = &saved {
        let _ = termios::tcsetattr(&stdin, OptionalActions::Flush, saved);
        let _ = writeln!(std::io::stderr());
    }
    read.map_err(failed)?;
    Ok(line.trim().to_owned())
}
