//! Test reports in JUnit's form, as nextest and the console's runner write them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    Skipped,
}

/// Outcomes by suite and test name.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) tests: BTreeMap<(String, String), Outcome>,
}

impl Report {
    pub(crate) fn parse(xml: &str) -> Result<Self> {
        let mut report = Self::default();
        let mut reader = Reader::from_str(xml);
        let mut suite = String::new();
        let mut case: Option<(String, Outcome)> = None;
        loop {
            let event = reader.read_event().context("the test report is not readable")?;
            let (start, closed) = match &event {
                Event::Start(start) => (Some(start), false),
                Event::Empty(start) => (Some(start), true),
                Event::End(end) => {
                    if end.local_name().as_ref() == "testcase" {
                        report.end(&suite, &mut case);
                    }
                    (None, false)
                }
                Event::Eof => return Ok(report),
                _ => (None, false),
            };
            let Some(start) = start else { continue };
            match start.local_name().as_ref() {
                "testsuite" => suite = name(start)?,
                "testcase" => {
                    case = Some((name(start)?, Outcome::Passed));
                    if closed {
                        report.end(&suite, &mut case);
                    }
                }
                "failure" | "error" => report.set(&mut case, Outcome::Failed),
                "skipped" => report.set(&mut case, Outcome::Skipped),
                _ => {}
            }
        }
    }

    fn set(&self, case: &mut Option<(String, Outcome)>, outcome: Outcome) {
        if let Some((_, known)) = case {
            *known = outcome;
        }
    }

    /// A test that is reported twice has passed only if it passed both times.
    fn end(&mut self, suite: &str, case: &mut Option<(String, Outcome)>) {
        if let Some((name, outcome)) = case.take() {
            let known = self.tests.entry((suite.to_owned(), name)).or_insert(outcome);
            if *known != Outcome::Failed {
                *known = outcome;
            }
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.tests.extend(other.tests);
    }

    pub(crate) fn count(&self, outcome: Outcome) -> usize {
        self.tests.values().filter(|found| **found == outcome).count()
    }
}

fn name(element: &BytesStart<'_>) -> Result<String> {
    for attribute in element.attributes() {
        let attribute = attribute.context("the test report is not readable")?;
        if attribute.key.local_name().as_ref() == "name" {
            return Ok(quick_xml::escape::unescape(&attribute.value)
                .context("the test report is not readable")?
                .into_owned());
        }
    }
    bail!("the test report names no test")
}

#[cfg(test)]
mod tests {
    use super::*;

    const XML: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="4" failures="1">
  <testsuite name="oac-wire" tests="3">
    <testcase name="frames::tests::a" classname="oac-wire" time="0.1"/>
    <testcase name="strict::tests::rejects_&lt;null&gt;" classname="oac-wire" time="0.1">
    </testcase>
    <testcase name="frames::tests::b" classname="oac-wire" time="0.1">
      <failure type="test failure">thread &apos;b&apos; panicked</failure>
      <system-out>out</system-out>
    </testcase>
  </testsuite>
  <testsuite name="oac-wire::corpus" tests="1">
    <testcase name="frames::tests::a"><skipped/></testcase>
  </testsuite>
</testsuites>"#;

    #[test]
    fn each_test_has_the_outcome_that_its_own_element_tells() {
        let report = Report::parse(XML).expect("readable");
        let key = |suite: &str, name: &str| (suite.to_owned(), name.to_owned());
        let expected = BTreeMap::from([
            (key("oac-wire", "frames::tests::a"), Outcome::Passed),
            (key("oac-wire", "strict::tests::rejects_<null>"), Outcome::Passed),
            (key("oac-wire", "frames::tests::b"), Outcome::Failed),
            (key("oac-wire::corpus", "frames::tests::a"), Outcome::Skipped),
        ]);
        assert_eq!(report.tests, expected);
    }

    #[test]
    fn a_broken_report_is_an_error_and_not_an_empty_one() {
        assert!(Report::parse("<testsuites><testsuite name=\"a\"><testcase></testsuite>").is_err());
        assert!(Report::parse("<testsuite><testcase time=\"1\"/></testsuite>").is_err());
    }
}
