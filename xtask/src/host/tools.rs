//! Pinned cargo tools, installed once into the cache and used from PATH when the right version is there already.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process;

/// A cargo tool. `version` is the oldest that is taken from PATH and the one that is installed.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) why: &'static str,
    /// Further arguments of `cargo install`.
    pub(crate) install: &'static [&'static str],
}

pub(crate) const NEXTEST: Tool = Tool {
    name: "cargo-nextest",
    version: "0.9.143",
    why: "it runs the tests, each in a process of its own, and reports them one by one",
    install: &["--no-default-features", "--features", "default-no-update"],
};

pub(crate) const DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
    why: "it checks licences, sources and advisories of the dependencies",
    install: &[],
};

/// The program's path.
pub(crate) fn ensure_tool(tool: &Tool) -> Result<PathBuf> {
    let wanted = parse(tool.version).with_context(|| format!("{} has no version", tool.name))?;
    if let Some(path) = process::which(tool.name)
        && version_of(&path, tool).is_some_and(|found| fits(found, wanted))
    {
        return Ok(path);
    }
    let home = super::cache()?
        .join("tools")
        .join(format!("{}-{}", tool.name, tool.version));
    let path = home.join("bin").join(tool.name);
    if version_of(&path, tool).is_some_and(|found| fits(found, wanted)) {
        return Ok(path);
    }
    println!(
        "    installing {} {} into {}: {}",
        tool.name,
        tool.version,
        home.display(),
        tool.why
    );
    let mut cargo = process::cargo();
    // Outside the checkout and with a target directory of its own, so that this workspace's settings do not apply.
    cargo
        .current_dir(super::cache()?)
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS");
    cargo
        .args([
            "install",
            "--locked",
            "--quiet",
            tool.name,
            "--version",
            tool.version,
            "--root",
        ])
        .arg(&home)
        .args(tool.install);
    process::run(&mut cargo).with_context(|| {
        format!(
            "cannot install {}: check the network and cargo's registry settings",
            tool.name
        )
    })?;
    Ok(path)
}

fn version_of(path: &std::path::Path, tool: &Tool) -> Option<(u32, u32, u32)> {
    if !path.is_file() {
        return None;
    }
    // `cargo-deny --version` prints "cargo-deny 0.20.2", and nextest wants its subcommand's name first.
    let subcommand = tool.name.strip_prefix("cargo-")?;
    let with_name = || process::capture(Command::new(path).args([subcommand, "--version"]));
    let text = process::capture(Command::new(path).arg("--version"))
        .or_else(|_| with_name())
        .ok()?;
    text.split_whitespace().find_map(parse)
}

fn parse(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text.split('.').map(str::parse);
    match (parts.next()?, parts.next()?, parts.next()?, parts.next()) {
        (Ok(major), Ok(minor), Ok(patch), None) => Some((major, minor, patch)),
        _ => None,
    }
}

/// At least the wanted one and of the same compatible series, as cargo counts them.
fn fits(found: (u32, u32, u32), wanted: (u32, u32, u32)) -> bool {
    let series = |version: (u32, u32, u32)| {
        if version.0 == 0 {
            (0, version.1)
        } else {
            (version.0, 0)
        }
    };
    found >= wanted && series(found) == series(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_tool_of_the_same_series_is_taken_from_path_and_nothing_else() {
        assert!(fits((0, 20, 2), (0, 20, 2)));
        assert!(fits((0, 20, 9), (0, 20, 2)));
        assert!(!fits((0, 20, 1), (0, 20, 2)));
        assert!(!fits((0, 21, 0), (0, 20, 2)));
        assert!(fits((1, 4, 0), (1, 2, 3)));
        assert!(!fits((2, 0, 0), (1, 2, 3)));
    }

    #[test]
    fn only_three_plain_numbers_are_a_version() {
        assert_eq!(parse("0.9.143"), Some((0, 9, 143)));
        assert_eq!(parse("0.9"), None);
        assert_eq!(parse("1.2.3.4"), None);
        assert_eq!(parse("(60fa45f63"), None);
    }
}
