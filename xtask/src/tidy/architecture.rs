//! `ARCHITECTURE.md` names, for each invariant it shows, tests that are marked with it.

use std::path::Path;

use anyhow::Result;

use crate::marks::{Mark, Subject};
use crate::workspace::read;

const FILE: &str = "ARCHITECTURE.md";

pub(super) fn check(root: &Path, marks: &[Mark]) -> Result<Vec<String>> {
    Ok(problems(&read(&root.join(FILE))?, marks))
}

fn problems(text: &str, marks: &[Mark]) -> Vec<String> {
    let rows = text
        .lines()
        .zip(1..)
        .filter(|(line, _)| line.starts_with("| INV-"));
    rows.flat_map(|(line, number)| row(line, number, marks)).collect()
}

fn row(line: &str, number: usize, marks: &[Mark]) -> Vec<String> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let (ids, tests) = match cells[..] {
        ["", ids, _, tests, ""] => (ids, tests),
        _ => return vec![format!("{FILE}:{number}: write a row of id, rule and tests")],
    };
    let ids: Vec<&str> = ids.split(", ").collect();
    let tests: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
    let marked = |id: &str, test: &str| {
        marks
            .iter()
            .any(|mark| mark.id == id && name(&mark.subject) == test)
    };
    let unguarded = ids
        .iter()
        .filter(|id| !tests.iter().any(|test| marked(id, test)))
        .map(|id| format!("{FILE}:{number}: none of the tests named for {id} is marked with it"));
    let idle = tests
        .iter()
        .filter(|test| !ids.iter().any(|id| marked(id, test)))
        .map(|test| format!("{FILE}:{number}: `{test}` is marked with none of the ids of its row"));
    unguarded.chain(idle).collect()
}

/// The test's own name, without its modules.
fn name(subject: &Subject) -> &str {
    let name = match subject {
        Subject::Test { name, .. } | Subject::Named { name } => name,
        Subject::Case { test, .. } => test,
    };
    name.rsplit("::").next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(id: &str, name: &str) -> Mark {
        Mark {
            id: id.to_owned(),
            subject: Subject::Test {
                suite: "crate".to_owned(),
                name: format!("module::{name}"),
            },
            file: "a.rs".into(),
            line: 1,
        }
    }

    #[test]
    fn every_row_names_tests_that_are_marked_with_its_ids() {
        let marks = [mark("INV-C1", "first"), mark("INV-C2", "second")];
        let said = |row: &str| problems(&format!("# A\n\n| id | rule |\n{row}\n"), &marks);
        assert_eq!(said("| INV-C1, INV-C2 | rule | `first`, `second` |"), [""; 0]);
        for wrong in [
            "| INV-C1 | rule | tests in a crate |",
            "| INV-C1, INV-C2 | rule | `first` |",
            "| INV-C1 | rule | `first`, `second` |",
            "| INV-C1 | rule | `gone` |",
            "| INV-C1 | rule |",
        ] {
            assert!(!said(wrong).is_empty(), "{wrong}");
            assert!(said(wrong)[0].starts_with("ARCHITECTURE.md:4: "));
        }
    }
}
