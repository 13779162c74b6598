//! What a command prints: tables and lines for people, JSON for programs.

pub mod status;
pub mod streams;

use std::{
    io::{self, ErrorKind, Write},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::{Value, json};

use crate::Failure;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Text,
    /// For programs: one document, or one per line for streams.
    Json,
}

/// One line about what is wrong and what to do, on standard error.
pub fn complain(line: &str) {
    let _ = writeln!(anstream::stderr(), "oac: {line}");
}

/// One line beside a result, on standard error, so that standard output holds the result alone.
pub fn note(line: &str) {
    let _ = writeln!(anstream::stderr(), "{line}");
}

/// A command's failure on standard error: one line for people, one document for programs.
pub fn failed(form: Form, failure: &Failure) {
    match form {
        Form::Text => complain_of(failure),
        Form::Json => {
            let mut error = json!({ "code": failure.code(), "message": with_cause(failure) });
            if let Failure::Refused { status, .. } = failure {
                error["status"] = json!(status);
            }
            note(&json!({ "error": error }).to_string());
        }
    }
}

/// An error and its cause on one line of standard error.
pub fn complain_of(error: &dyn std::error::Error) {
    complain(&with_cause(error));
}

/// An error and what lies at its bottom, as one line's text. What is between says which library told which.
pub fn with_cause(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let bottom = std::iter::successors(error.source(), |error| error.source()).last();
    if let Some(text) = bottom.map(ToString::to_string)
        && !line.contains(&text)
    {
        line.push_str(&format!(" ({text})"));
    }
    printable(&line)
}

/// `text` on one line: whatever would move the cursor or change the terminal is escaped.
pub fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

/// Why something printed was lost, once that happened.
static LOST: OnceLock<String> = OnceLock::new();

/// Whether nobody reads standard output any more.
static GONE: AtomicBool = AtomicBool::new(false);

/// Whether the reader of standard output went away, as far as writing to it has shown.
pub fn reader_is_gone() -> bool {
    GONE.load(Ordering::Relaxed)
}

/// Notes how a write to standard output or error went. A reader that went away wants no more, and loses nothing.
pub fn written(result: io::Result<()>) {
    if let Err(error) = result
        && error.kind() != ErrorKind::BrokenPipe
    {
        LOST.get_or_init(|| error.to_string());
    }
}

/// Whether something that was printed did not arrive although somebody reads.
pub fn is_lost() -> bool {
    LOST.get().is_some()
}

/// Says why something that was printed did not arrive, if so.
pub fn complain_of_loss() -> bool {
    if let Some(why) = LOST.get() {
        complain(&format!(
            "what was printed could not all be written ({why}): make room where it goes to"
        ));
    }
    is_lost()
}

/// A line on standard output. A reader that went away ends nothing.
pub fn line(text: &str) {
    let mut stdout = anstream::stdout();
    let result = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
    if matches!(&result, Err(e) if e.kind() == ErrorKind::BrokenPipe) {
        GONE.store(true, Ordering::Relaxed);
    }
    written(result);
}

/// One JSON document, or one of a stream, on a line of its own.
pub fn json(value: &Value) {
    line(&value.to_string());
}

/// A whole list as one document: `{"data": […]}`.
pub fn documents(items: impl Iterator<Item = Value>) -> Result<(), Failure> {
    json(&json!({ "data": items.collect::<Vec<_>>() }));
    Ok(())
}

/// Rows under a header, columns padded to their widest cell.
pub fn table(header: &[&str], rows: &[Vec<String>]) {
    let width = |column: usize| {
        rows.iter()
            .map(|r| r[column].chars().count())
            .chain([header[column].len()])
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let print = |cells: &[String]| {
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        line(padded.join("  ").trim_end());
    };
    print(&header.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>());
    for row in rows {
        print(row);
    }
}

/// A table's cell: `-` for nothing, the rest on one line.
pub fn cell(text: &str) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        printable(text)
    }
}

/// A cell that may be absent.
pub fn optional(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| cell(&v.to_string()))
}

/// Labels and what they say, one a line.
pub fn facts(facts: &[(&str, String)]) {
    let width = facts.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    for (label, text) in facts {
        line(&format!("{label:<width$}  {text}"));
    }
}

/// The member at `path` (dotted) of a document, as a cell.
pub fn member(value: &Value, path: &str) -> String {
    let found = path.split('.').try_fold(value, |v, key| v.get(key));
    match found {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => cell(text),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cell_without_text_shows_a_dash() {
        let session =
            json!({ "name": null, "sandbox": { "diagnostic": "", "state": "running" }, "turns": 0 });
        for path in ["name", "sandbox.diagnostic", "sandbox.absent", "absent.state"] {
            assert_eq!(member(&session, path), "-", "{path}");
        }
        assert_eq!(member(&session, "sandbox.state"), "running");
        assert_eq!(member(&session, "turns"), "0");
    }

    #[test]
    fn what_a_stranger_wrote_cannot_move_the_cursor() {
        assert_eq!(printable("a\nb\u{1b}[2Jc\u{9b}é"), "a\\nb\\u{1b}[2Jc\\u{9b}é");
    }
}
