//! The test runner: what it will run, and the run.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::host::services::Services;
use crate::steps::Skipped;
use crate::workspace::Metadata;
use crate::{marks, process};

/// Tests that need a service are named for it: the function or a module around it begins so.
const NEEDS_SERVICE: &str = "test(/(^|::)(docker_|pg_|host_|e2e)/)";

pub(super) struct Runner<'a> {
    pub(super) program: &'a Path,
    pub(super) quick: bool,
}

/// What nextest will do with every test of the workspace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) selected: usize,
    /// Switched off in their source: (suite, name).
    pub(super) ignored: Vec<(String, String)>,
    /// Left out by the filter.
    pub(super) filtered: Vec<(String, String)>,
}

impl Runner<'_> {
    fn command(&self, services: &Services, action: &str) -> Command {
        let mut command = process::cargo();
        // cargo finds nextest through PATH, and nextest calls cargo: give it the very one that was checked.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folder = self.program.parent().unwrap_or(Path::new("."));
        let joined =
            std::env::join_paths(std::iter::once(folder.to_path_buf()).chain(std::env::split_paths(&path)));
        command.env("PATH", joined.unwrap_or(path));
        command.args(["nextest", action, "--workspace", "--profile", "ci"]);
        if self.quick {
            command.args(["-E", &format!("not ({NEEDS_SERVICE})")]);
        }
        services.tell(&mut command);
        command
    }

    /// Builds the tests and lists them.
    pub(super) fn list(&self, services: &Services) -> Result<Listed> {
        let output = process::output_of(self.command(services, "list").args([
            "--message-format",
            "json",
            "--cargo-quiet",
        ]))?;
        listed(&output)
    }

    pub(super) fn run(&self, services: &Services) -> Result<()> {
        process::run(self.command(services, "run").args([
            "--no-fail-fast",
            "--cargo-quiet",
            "--show-progress",
            "none",
        ]))
    }
}

fn listed(json: &str) -> Result<Listed> {
    let value: Value = serde_json::from_str(json).context("the test runner's list is not readable")?;
    let mut listed = Listed::default();
    let suites = value["rust-suites"]
        .as_object()
        .context("the test runner's list has no suites")?;
    for (suite, content) in suites {
        for (name, test) in content["testcases"].as_object().into_iter().flatten() {
            let key = (suite.clone(), name.clone());
            if test["filter-match"]["status"] == "matches" {
                listed.selected += 1;
            } else if test["ignored"] == true {
                listed.ignored.push(key);
            } else {
                listed.filtered.push(key);
            }
        }
    }
    Ok(listed)
}

/// Each ignored test with the reason its source gives; filtered ones counted per suite.
pub(super) fn skipped(listed: &Listed, metadata: &Metadata) -> Vec<Skipped> {
    let sources = marks::read(metadata).unwrap_or_default();
    let why = |suite: &str, name: &str| {
        let found = sources
            .ignored
            .iter()
            .find(|ignored| ignored.suite == suite && ignored.name == name);
        match found.map(|ignored| ignored.why.as_str()) {
            Some(why) if !why.is_empty() => why.to_owned(),
            _ => "its source gives no reason".to_owned(),
        }
    };
    let ignored = listed.ignored.iter().map(|(suite, name)| Skipped {
        what: format!("{suite} {name}"),
        why: why(suite, name),
    });
    let filtered = listed.filtered.iter().map(|(suite, name)| Skipped {
        what: format!("{suite} {name}"),
        why: "it needs a service and this is --quick".to_owned(),
    });
    ignored.chain(filtered).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    fn settings() -> toml::Table {
        let text =
            workspace::read(&workspace::root().join(".config/nextest.toml")).expect("nextest settings");
        toml::from_str(&text).expect("readable")
    }

    #[test]
    fn every_test_is_selected_ignored_or_filtered() {
        let json = r#"{"rust-suites": {
            "oac-a": {"testcases": {
                "one": {"ignored": false, "filter-match": {"status": "matches"}},
                "two": {"ignored": true, "filter-match": {"status": "mismatch", "reason": "ignored"}}}},
            "oac-b::docker_x": {"testcases": {
                "three": {"ignored": false, "filter-match": {"status": "mismatch", "reason": "expression"}}}}}}"#;
        let expected = Listed {
            selected: 1,
            ignored: vec![("oac-a".into(), "two".into())],
            filtered: vec![("oac-b::docker_x".into(), "three".into())],
        };
        assert_eq!(listed(json).expect("readable"), expected);
        assert!(listed("{}").is_err());
    }

    #[test]
    fn no_test_is_repeated_until_it_passes() {
        let settings = settings();
        for profile in ["default", "ci"] {
            let retries = settings
                .get("profile")
                .and_then(|all| all.get(profile))
                .and_then(|one| one.get("retries"));
            assert_eq!(retries, Some(&toml::Value::Integer(0)), "{profile}");
        }
    }
}
