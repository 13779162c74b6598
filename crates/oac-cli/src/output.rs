//! What a command prints: tables and lines for people, JSON for programs.

use std::{
    io::{self, ErrorKind, Write},
    sync::OnceLock,
};

use serde_json::Value;

/// One line about what is wrong and what to do, on standard error.
pub fn complain(line: &str) {
    let _ = writeln!(anstream::stderr(), "oac: {line}");
}

/// One line beside a result, on standard error, so that standard output holds the result alone.
pub fn note(line: &str) {
    let _ = writeln!(anstream::stderr(), "{line}");
}

/// An error and its causes on one line.
pub fn complain_of(error: &dyn std::error::Error) {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line.push_str(&format!(" ({text})"));
        }
        cause = error.source();
    }
    complain(&line);
}

/// Why something printed was lost, once that happened.
static LOST: OnceLock<String> = OnceLock::new();

/// Notes how a write to standard output or error went. A reader that went away wants no more, and loses nothing.
pub fn written(result: io::Result<()>) {
    if let Err(error) = result
        && error.kind() != ErrorKind::BrokenPipe
    {
        LOST.get_or_init(|| error.to_string());
    }
}

/// Why not everything that was printed arrived, if so.
pub fn lost() -> Option<&'static str> {
    LOST.get().map(String::as_str)
}

/// A line on standard output. A reader that went away ends nothing.
pub fn line(text: &str) {
    let mut stdout = anstream::stdout();
    written(writeln!(stdout, "{text}").and_then(|()| stdout.flush()));
}

/// One JSON document, or one of a stream, on a line of its own.
pub fn json(value: &Value) {
    line(&value.to_string());
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

/// The text at `path` (dotted) in `value`; `-` for null, nothing or an empty text.
pub fn cell(value: &Value, path: &str) -> String {
    let found = path.split('.').try_fold(value, |v, key| v.get(key));
    match found {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) if text.is_empty() => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::cell;

    #[test]
    fn a_cell_without_text_shows_a_dash() {
        let session =
            json!({ "name": null, "sandbox": { "diagnostic": "", "state": "running" }, "turns": 0 });
        for path in ["name", "sandbox.diagnostic", "sandbox.absent", "absent.state"] {
            assert_eq!(cell(&session, path), "-", "{path}");
        }
        assert_eq!(cell(&session, "sandbox.state"), "running");
        assert_eq!(cell(&session, "turns"), "0");
    }
}
