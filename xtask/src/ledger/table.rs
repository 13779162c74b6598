//! `docs/requirements.md`: one row per id, written by a full test run and compared by `tidy`.

use super::catalogue::{Catalogue, Entry};
use super::proof::Proof;

pub(crate) const PATH: &str = "docs/requirements.md";

const HEAD: &str = "# Requirements and their tests\n\n\
    Written by `cargo xtask test`; do not edit. A requirement (`G`: the operator guide, `P`: the node protocol) or an \
    invariant of the design (`INV`) is *proven by* the tests that are marked with its id and passed in the last full \
    run; otherwise it is *open*.\n";

pub(crate) fn render(catalogue: &Catalogue, proof: &Proof) -> String {
    let mut text = HEAD.to_owned();
    for (title, entries) in [
        ("Requirements", &catalogue.requirements),
        ("Invariants", &catalogue.invariants),
    ] {
        let proven = entries
            .iter()
            .filter(|entry| !proof.tests(&entry.id).is_empty())
            .count();
        text.push_str(&format!(
            "\n## {title}\n\n{proven} of {} are proven.\n\n",
            entries.len()
        ));
        text.push_str("| id | text | proof |\n| --- | --- | --- |\n");
        for entry in entries {
            text.push_str(&row(entry, &proof.tests(&entry.id)));
        }
    }
    text
}

fn row(entry: &Entry, tests: &[&str]) -> String {
    let proof = if tests.is_empty() {
        "open".to_owned()
    } else {
        format!(
            "proven by {}",
            tests
                .iter()
                .map(|test| format!("`{test}`"))
                .collect::<Vec<_>>()
                .join(", ")
        )
    };
    format!("| {} | {} | {proof} |\n", entry.id, cell(&entry.text))
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
        .replace('<', "&lt;")
        .replace(['\n', '\r'], " ")
}

/// What is wrong with a table: ids or texts that differ from the catalogue. Which ids are proven is not compared;
/// only a test run knows.
pub(crate) fn problems(catalogue: &Catalogue, table: &str) -> Vec<String> {
    let expected: Vec<String> = catalogue
        .requirements
        .iter()
        .chain(&catalogue.invariants)
        .map(|entry| format!("| {} | {} |", entry.id, cell(&entry.text)))
        .collect();
    let rows: Vec<&str> = table
        .lines()
        .filter(|line| {
            ["| G-", "| P-", "| INV-"]
                .iter()
                .any(|start| line.starts_with(start))
        })
        .collect();
    if rows.len() != expected.len() {
        return vec![format!(
            "{PATH} has {} rows for {} ids: write it with `cargo xtask test`",
            rows.len(),
            expected.len()
        )];
    }
    let differs = |(row, expected): &(&&str, &String)| {
        let proof = row.strip_prefix(expected.as_str()).map(str::trim);
        !proof.is_some_and(|proof| {
            proof == "open |" || (proof.starts_with("proven by `") && proof.ends_with("` |"))
        })
    };
    rows.iter()
        .zip(&expected)
        .filter(differs)
        .map(|(_, expected)| {
            let id = expected.split(' ').nth(1).unwrap_or_default();
            format!("{PATH}: the row of {id} differs from its source: write it with `cargo xtask test`")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::junit::{Outcome, Report};
    use super::*;
    use crate::marks::{Mark, Subject};

    fn catalogue() -> Catalogue {
        let entry = |id: &str, text: &str| Entry {
            id: id.into(),
            text: text.into(),
            group: "one".into(),
        };
        Catalogue {
            requirements: vec![entry("G-001", "a|b <id>"), entry("P-001", "c")],
            invariants: vec![entry("INV-C1", "d")],
            capabilities: vec!["one".into()],
            subjects: vec!["one".into()],
        }
    }

    fn proof() -> Proof {
        let mark = Mark {
            id: "P-001".into(),
            subject: Subject::Test {
                suite: "s".into(),
                name: "t".into(),
            },
            file: "a.rs".into(),
            line: 1,
        };
        let report = Report {
            tests: [(("s".to_owned(), "t".to_owned()), Outcome::Passed)].into(),
        };
        Proof::of(&[mark], &report)
    }

    #[test]
    fn every_id_has_one_row_that_says_proven_by_or_open() {
        let text = render(&catalogue(), &proof());
        assert!(text.contains("| G-001 | a\\|b &lt;id> | open |\n"), "{text}");
        assert!(text.contains("| P-001 | c | proven by `s t` |\n"), "{text}");
        assert!(text.contains("1 of 2 are proven."), "{text}");
        assert_eq!(problems(&catalogue(), &text), [""; 0]);
    }

    #[test]
    fn a_table_of_other_ids_or_texts_is_out_of_date() {
        let text = render(&catalogue(), &proof());
        let mut changed = catalogue();
        changed.requirements[1].text = "another".into();
        assert_eq!(problems(&changed, &text).len(), 1);
        changed.invariants.clear();
        assert_eq!(problems(&changed, &text).len(), 1);
        assert_eq!(
            problems(
                &catalogue(),
                &text.replace("| c | proven by `s t` |", "| c | perhaps |")
            )
            .len(),
            1
        );
    }
}
