//! The host's own programs, run by root: with an empty environment, in a process group of their own, so that what is
//! typed at the terminal ends none of them half way.

use std::{
    ffi::OsStr,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use crate::{hint::Hint, host::Host};

/// Where `tool` is, if it is installed.
pub(crate) fn find(path: &OsStr, tool: &str) -> Option<PathBuf> {
    let is_program = |path: &Path| {
        let meta = std::fs::metadata(path);
        meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path)
        .map(|folder| folder.join(tool))
        .find(|path| is_program(path))
}

pub(crate) fn run(host: &Host, tool: &str, arguments: &[&str]) -> Result<Output, Hint> {
    let missing = || Hint::ToolMissing {
        tool: tool.to_owned(),
    };
    let program = find(&host.tools, tool).ok_or_else(missing)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", &host.tools)
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::null())
        .process_group(0);
    command
        .output()
        .map_err(|error| Hint::failed(&format!("{tool} could not be started"), &error))
}

/// Runs what must succeed.
pub(crate) fn act(host: &Host, tool: &str, arguments: &[&str]) -> Result<(), Hint> {
    let output = run(host, tool, arguments)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: String = said.trim().chars().take(400).collect();
    let what = format!(
        "{tool} {} failed: {said}",
        arguments.first().copied().unwrap_or_default()
    );
    Err(Hint::Failed {
        what: crate::report::printable(&what),
    })
}

/// The first line of what `getent` finds; `None` where it finds nothing.
pub(crate) fn look_up(host: &Host, base: &str, key: &str) -> Result<Option<String>, Hint> {
    let output = run(host, "getent", &[base, key])?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().map(str::to_owned);
    Ok(line.filter(|line| output.status.success() && !line.is_empty()))
}
