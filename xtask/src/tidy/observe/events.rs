//! The guide lists every event that a program's log names, and none else.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::Result;

use super::{GUIDE, differing};
use crate::workspace::read;

/// How a line of the log is given a name that stays.
const FIELD: &str = "event = \"";

pub(super) fn check(root: &Path, files: &[PathBuf], guide: &str) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let mut sources = Vec::new();
    let source = |file: &&PathBuf| {
        file.starts_with("crates")
            && file.components().any(|part| part.as_os_str() == "src")
            && file.extension().is_some_and(|extension| extension == "rs")
    };
    for file in files.iter().filter(source) {
        sources.push((file, read(&root.join(file))?));
    }
    let mut named = BTreeSet::new();
    for (file, text) in &sources {
        for name in names(text) {
            if !is_name(name) {
                problems.push(format!("{}: `{name}` is no name of an event", file.display()));
            }
            named.insert(name);
        }
    }
    problems.extend(differing(GUIDE, "the event", &listed(guide), "the code", &named));
    Ok(problems)
}

fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(FIELD)
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// The rows of the guide's table of events: name, program, level, what it means.
fn listed(guide: &str) -> BTreeSet<&str> {
    let mut listed = BTreeSet::new();
    for line in guide.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let ["", name, "Core" | "node", "error" | "warn" | "info", _, ""] = cells[..] {
            listed.extend(name.strip_prefix('`').and_then(|name| name.strip_suffix('`')));
        }
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_from_code_and_guide() {
        let code = "warn!(event = \"lease_lost\", \"text\");\ninfo!(event = \"Other\", x, \"text\")";
        let found: Vec<&str> = names(code).collect();
        assert_eq!(found, ["lease_lost", "Other"]);
        assert!(is_name(found[0]) && !is_name(found[1]) && !is_name(""));
        let guide = "| event | program | level | meaning |\n| `lease_lost` | Core | warn | so |\n| `x` | gauge | | y |";
        assert_eq!(listed(guide).into_iter().collect::<Vec<_>>(), ["lease_lost"]);
    }
}
