//! Which ids are proven: a mark counts when its test ran and passed.

use std::collections::{BTreeMap, BTreeSet};

use super::junit::{Outcome, Report};
use crate::marks::{Mark, Subject};

/// Ids and the tests that prove them; an id with a failed test is not proven by its other tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Proof {
    proven: BTreeMap<String, BTreeSet<String>>,
    refuted: BTreeSet<String>,
    /// Marks whose test is not in the report: where and what.
    pub(crate) absent: Vec<String>,
}

impl Proof {
    pub(crate) fn of(marks: &[Mark], report: &Report) -> Self {
        let mut proof = Self::default();
        for mark in marks {
            let found: Vec<(&(String, String), &Outcome)> = report
                .tests
                .iter()
                .filter(|((suite, name), _)| is(&mark.subject, suite, name))
                .collect();
            if found.is_empty() {
                proof.absent.push(format!(
                    "{}:{}: {} is marked on a test that did not run",
                    mark.file.display(),
                    mark.line,
                    mark.id
                ));
            }
            for ((suite, name), outcome) in found {
                match outcome {
                    Outcome::Passed => {
                        proof
                            .proven
                            .entry(mark.id.clone())
                            .or_default()
                            .insert(format!("{suite} {name}"));
                    }
                    Outcome::Failed => {
                        proof.refuted.insert(mark.id.clone());
                    }
                    Outcome::Skipped => {}
                }
            }
        }
        proof
    }

    /// The tests that prove `id`; empty when it is open.
    pub(crate) fn tests(&self, id: &str) -> Vec<&str> {
        if self.refuted.contains(id) {
            return Vec::new();
        }
        self.proven
            .get(id)
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect()
    }
}

fn is(subject: &Subject, suite: &str, name: &str) -> bool {
    match subject {
        Subject::Test {
            suite: wanted_suite,
            name: wanted,
        } => {
            // An rstest function without a mark on a case: all its cases are the test.
            let case = || {
                name.strip_prefix(wanted.as_str())
                    .is_some_and(|rest| rest.starts_with("::case_"))
            };
            suite == wanted_suite && (name == wanted || case())
        }
        Subject::Case {
            suite: wanted_suite,
            test,
            number,
            description,
        } => {
            let rest = name
                .strip_prefix(test.as_str())
                .and_then(|rest| rest.strip_prefix("::case_"));
            suite == wanted_suite && rest.is_some_and(|rest| is_case(rest, *number, description.as_deref()))
        }
        Subject::Named { name: wanted } => name.rsplit("::").next() == Some(wanted),
    }
}

/// rstest writes `2`, `02` or `2_description`.
fn is_case(rest: &str, number: usize, description: Option<&str>) -> bool {
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, tail) = rest.split_at(digits);
    digits.parse() == Ok(number)
        && tail.strip_prefix('_') == description
        && (tail.is_empty() || tail.starts_with('_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(id: &str, subject: Subject) -> Mark {
        Mark {
            id: id.into(),
            subject,
            file: "a.rs".into(),
            line: 1,
        }
    }

    fn report(tests: &[(&str, &str, Outcome)]) -> Report {
        let key = |(suite, name, outcome): &(&str, &str, Outcome)| {
            (((*suite).to_owned(), (*name).to_owned()), *outcome)
        };
        Report {
            tests: tests.iter().map(key).collect(),
        }
    }

    fn test(suite: &str, name: &str) -> Subject {
        Subject::Test {
            suite: suite.into(),
            name: name.into(),
        }
    }

    #[test]
    fn an_id_is_proven_only_by_its_own_test_that_passed() {
        let report = report(&[
            ("oac-wire", "frames::a", Outcome::Passed),
            ("oac-wire", "frames::b", Outcome::Failed),
            ("oac-wire", "frames::c", Outcome::Skipped),
            ("oac-model", "frames::d", Outcome::Passed),
            ("oac-wire", "frames::e::longer", Outcome::Passed),
        ]);
        let marks = [
            mark("P-001", test("oac-wire", "frames::a")),
            mark("P-002", test("oac-wire", "frames::b")),
            mark("P-003", test("oac-wire", "frames::c")),
            mark("P-004", test("oac-wire", "frames::d")),
            mark("P-005", test("oac-wire", "frames::e")),
            mark("P-006", test("oac-wire", "frames::a")),
            mark("P-006", test("oac-wire", "frames::b")),
        ];
        let proof = Proof::of(&marks, &report);
        assert_eq!(proof.tests("P-001"), ["oac-wire frames::a"]);
        for open in ["P-002", "P-003", "P-004", "P-005", "P-006", "P-007"] {
            assert_eq!(proof.tests(open), [""; 0], "{open}");
        }
        assert_eq!(proof.absent.len(), 2);
    }

    #[test]
    fn cases_and_suites_are_found_under_the_names_their_runners_make() {
        let report = report(&[
            ("t", "m::table::case_1", Outcome::Passed),
            ("t", "m::table::case_2_second", Outcome::Passed),
            ("t", "m::wide::case_02", Outcome::Passed),
            ("t", "m::wide::case_12", Outcome::Passed),
            ("docker", "suite::create_twice", Outcome::Passed),
            ("fake", "create_twice", Outcome::Passed),
        ]);
        let case = |test: &str, number, description: Option<&str>| Subject::Case {
            suite: "t".into(),
            test: test.into(),
            number,
            description: description.map(str::to_owned),
        };
        let marks = [
            mark("P-001", case("m::table", 2, Some("second"))),
            mark("P-002", case("m::wide", 2, None)),
            mark("P-003", test("t", "m::table")),
            mark(
                "P-004",
                Subject::Named {
                    name: "create_twice".into(),
                },
            ),
            mark("P-005", case("m::table", 2, None)),
        ];
        let proof = Proof::of(&marks, &report);
        assert_eq!(proof.tests("P-001"), ["t m::table::case_2_second"]);
        assert_eq!(proof.tests("P-002"), ["t m::wide::case_02"]);
        assert_eq!(proof.tests("P-003").len(), 2);
        assert_eq!(
            proof.tests("P-004"),
            ["docker suite::create_twice", "fake create_twice"]
        );
        assert_eq!(proof.tests("P-005"), [""; 0]);
    }
}
