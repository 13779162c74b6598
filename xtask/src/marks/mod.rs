//! Marks: comment lines that say which requirement or invariant a test proves.
//!
//! ```text
//! // req: P-031, P-032
//! // inv: INV-C9
//! #[test]
//! fn late_ready_report_never_moves_the_pin() {}
//! ```
//!
//! A mark belongs to the next test item or data case:
//!
//! - a function with a test attribute, also inside a macro (`proptest!`);
//! - one `#[case]` of an rstest function, when the mark stands directly above that attribute;
//! - a function without a test attribute, or a name in a macro call: a case of a suite, known by its name alone, that
//!   other files instantiate as tests of that name;
//! - inside a test's body it belongs to that test.
//!
//! A mark that belongs to nothing, a malformed one and an unknown id are errors: a requirement must not look proven
//! because of a typing mistake.

pub(crate) mod lexer;
mod rust;
mod script;
mod tree;

use std::path::PathBuf;

use anyhow::Result;

/// What a mark belongs to, in the words of the test report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// One test: the report's suite (nextest's binary id, or the file of a script) and its full name there.
    Test { suite: String, name: String },
    /// One data case of an rstest function: number from 1 and, if it has one, its description.
    Case {
        suite: String,
        test: String,
        number: usize,
        description: Option<String>,
    },
    /// Tests of this name, whoever instantiates them.
    Named { name: String },
}

/// One id on one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) id: String,
    pub(crate) subject: Subject,
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
}

/// A test that its own source switches off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ignored {
    pub(crate) suite: String,
    pub(crate) name: String,
    /// Empty when the source gives none.
    pub(crate) why: String,
}

/// Everything the sources say.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub(crate) marks: Vec<Mark>,
    pub(crate) ignored: Vec<Ignored>,
    /// One line each: where, what is wrong, what to do.
    pub(crate) problems: Vec<String>,
}

/// Reads the marks of all packages, of the console's and of the host scripts' tests.
pub(crate) fn read(metadata: &crate::workspace::Metadata) -> Result<Sources> {
    let mut sources = Sources::default();
    let seen = tree::read(metadata, &mut sources)?;
    let root = crate::workspace::root();
    for file in crate::workspace::files(root)? {
        let path = root.join(&file);
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("rs") if !seen.contains(&path) => {
                let text = crate::workspace::read(&path)?;
                if rust::has_marks(&text) {
                    sources.problems.push(format!(
                        "{}: marks in a file that no target includes: add its `mod` line or remove it",
                        file.display()
                    ));
                }
            }
            Some("ts" | "tsx" | "sh") => script::read(&file, &crate::workspace::read(&path)?, &mut sources),
            _ => {}
        }
    }
    Ok(sources)
}

/// The ids of a comment's text if it is a mark; `Err` says what is wrong with it.
fn ids(comment: &str) -> Option<Result<Vec<String>, String>> {
    let text = comment.trim_start_matches(['/', '!', '#']).trim();
    let (kind, list) = text.split_once(':')?;
    if !matches!(kind, "req" | "inv") {
        return None;
    }
    if comment.starts_with(['/', '!']) {
        return Some(Err("a mark is an ordinary comment: write `//`, not `///`".into()));
    }
    let ids: Vec<String> = list.split(',').map(|id| id.trim().to_owned()).collect();
    let fits = |id: &String| match kind {
        "req" => is_id(id, &["G-", "P-"], 3..=3),
        _ => id
            .strip_prefix("INV-")
            .and_then(|rest| rest.get(1..))
            .is_some_and(|rest| is_id(rest, &[""], 1..=3)),
    };
    match ids.iter().find(|id| !fits(id)) {
        Some(wrong) => Some(Err(format!(
            "`{wrong}` is no id: write `{kind}:` and ids separated by commas"
        ))),
        None => Some(Ok(ids)),
    }
}

fn is_id(text: &str, prefixes: &[&str], digits: std::ops::RangeInclusive<usize>) -> bool {
    prefixes
        .iter()
        .filter_map(|prefix| text.strip_prefix(prefix))
        .any(|rest| digits.contains(&rest.len()) && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_a_list_of_well_formed_ids_and_other_comments_are_none() {
        assert_eq!(
            ids(" req: P-031, G-002"),
            Some(Ok(vec!["P-031".into(), "G-002".into()]))
        );
        assert_eq!(ids(" inv: INV-C9"), Some(Ok(vec!["INV-C9".into()])));
        assert_eq!(ids(" a request: P-031"), None);
        assert_eq!(ids(" why this is so"), None);
    }

    #[test]
    fn malformed_marks_are_refused() {
        for wrong in [
            " req: P-31",
            " req: P-031 P-032",
            " req:",
            " inv: C9",
            " inv: INV-C",
            " req: INV-C9",
            "/ req: P-031",
            " req: P-031 (half)",
        ] {
            assert!(matches!(ids(wrong), Some(Err(_))), "{wrong}");
        }
    }
}
