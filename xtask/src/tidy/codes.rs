//! The guide explains every code that Core refuses with, and none else.
//!
//! Codes are literals where a refusal is made: the first argument of the constructors for one status, or `Some` after
//! the status of `new`. Those of the sandbox's file operations come from one list of `oac-link`, whose own test does the
//! same.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::Result;

use crate::workspace::read;

/// The table of all codes but those of the second page.
const TABLE: &str = "docs/core-api.md";
const FILES: &str = "docs/files-and-ports.md";
const HEADING: &str = "## Codes";
const SOURCE: &str = "crates/oac-core/src";
const CONSTRUCTORS: [&str; 4] = ["bad_request(", "conflict(", "unavailable(", "new("];

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let is_source = |file: &&PathBuf| {
        file.starts_with(SOURCE) && file.extension().is_some_and(|extension| extension == "rs")
    };
    let mut made = BTreeSet::new();
    for file in files.iter().filter(is_source) {
        made.extend(refusals(&read(&root.join(file))?));
    }
    let (table, of_files) = (read(&root.join(TABLE))?, read(&root.join(FILES))?);
    Ok(problems(&made, &listed(&table), &of_files))
}

fn problems(made: &BTreeSet<String>, listed: &BTreeSet<String>, of_files: &str) -> Vec<String> {
    let is_untold = |code: &&String| !listed.contains(*code) && !of_files.contains(&format!("`{code}`"));
    let untold = made
        .iter()
        .filter(is_untold)
        .map(|code| format!("{TABLE} lacks the code `{code}`: say what it means and what to do"));
    let gone = listed
        .difference(made)
        .map(|code| format!("{TABLE} explains `{code}`, which Core never answers"));
    untold.chain(gone).collect()
}

/// The codes of the refusals that a file makes.
fn refusals(text: &str) -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    for constructor in CONSTRUCTORS {
        for rest in text.split(constructor).skip(1) {
            let mut rest = rest.trim_start();
            if let Some(after) = rest.strip_prefix("StatusCode::") {
                let after = after.trim_start_matches(|c: char| c.is_ascii_uppercase() || c == '_');
                rest = after.trim_start_matches(',').trim_start();
                rest = rest.strip_prefix("Some(").unwrap_or_default();
            } else if constructor == "new(" {
                continue;
            }
            let literal = rest.strip_prefix('"').and_then(|rest| rest.split('"').next());
            codes.extend(literal.filter(|code| is_code(code)).map(str::to_owned));
        }
    }
    codes
}

fn is_code(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// The first cells of the table.
fn listed(page: &str) -> BTreeSet<String> {
    let lines = page.lines().skip_while(|line| *line != HEADING).skip(1);
    lines
        .take_while(|line| !line.starts_with('#'))
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(codes: &[&str]) -> BTreeSet<String> {
        codes.iter().map(|code| (*code).to_owned()).collect()
    }

    #[test]
    fn codes_are_read_where_refusals_are_made_and_nowhere_else() {
        let code = r#"
            ApiError::conflict("session_archived", "words");
            Self::new(StatusCode::NOT_FOUND, Some("not_found_error"), "words");
            Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                Some("turn_queue_full"), "words");
            Self::unavailable(
                "core_standby",
                "words",
            );
            ApiError::new(StatusCode::BAD_GATEWAY, None, "words").with_param("never_this");
            let map = BTreeMap::new(); Name::new("nor_this"); bad_request(code, "words");
        "#;
        assert_eq!(
            refusals(code),
            set(&[
                "core_standby",
                "not_found_error",
                "session_archived",
                "turn_queue_full"
            ])
        );
    }

    #[test]
    fn the_guide_explains_every_code_of_core() {
        let root = crate::workspace::root();
        let files = crate::workspace::files(root).expect("files");
        assert_eq!(check(root, &files).expect("readable"), [""; 0]);
    }

    #[test]
    fn what_only_code_or_only_guide_has_is_a_problem() {
        let page = "| `elsewhere` | 1 |\n## Codes\n\n| code | status |\n| `told` | 400 |\n| `gone` | 400 |\n## Next\n| `other` |\n";
        assert_eq!(listed(page), set(&["gone", "told"]));
        let found = problems(
            &set(&["told", "untold", "of_files"]),
            &listed(page),
            "a `of_files` b",
        );
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].contains("`untold`") && found[1].contains("`gone`"),
            "{found:?}"
        );
    }
}
