//! What a child tells root, line by line, over the result pipe: where it is, what of a file has arrived, and at last its
//! result. Root believes the form of nothing that comes, and shows no control character of it.

use std::{io::Write, sync::Mutex};

use oac_release::{
    manifest::Artifact,
    progress::{Event, Progress},
};
use serde::{Deserialize, Serialize};

/// A line; the result is one.
pub(crate) const LINE_BYTES: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Report {
    Phase {
        number: u8,
    },
    Present {
        name: String,
        size: u64,
    },
    Begun {
        name: String,
        size: u64,
        from: u64,
    },
    Restarted {},
    Arrived {
        total: u64,
    },
    Finished {},
    /// JSON of what the child was asked for, or of the hint it ends with.
    Result {
        ok: bool,
        document: String,
    },
}

/// The child's end.
pub(crate) struct Reporter<W>(Mutex<W>);

impl<W: Write> Reporter<W> {
    pub(crate) fn new(out: W) -> Self {
        Self(Mutex::new(out))
    }

    pub(crate) fn send(&self, report: &Report) {
        let mut line = serde_json::to_vec(report).unwrap_or_default();
        line.push(b'\n');
        // Where nobody reads any more the parent is gone, and this process ends with it.
        if let Ok(mut out) = self.0.lock() {
            let _ = out.write_all(&line).and_then(|()| out.flush());
        }
    }

    pub(crate) fn phase(&self, number: u8) {
        self.send(&Report::Phase { number });
    }
}

/// Between two reports of one file's growth, in bytes: a line for each megabyte says enough.
const GROWTH_BYTES: u64 = 1024 * 1024;

/// A download's events as reports.
pub(crate) struct Relay<'a, W> {
    reporter: &'a Reporter<W>,
    told: u64,
}

impl<'a, W: Write> Relay<'a, W> {
    pub(crate) fn new(reporter: &'a Reporter<W>) -> Self {
        Self { reporter, told: 0 }
    }
}

impl<W: Write> Progress for Relay<'_, W> {
    fn tell(&mut self, event: Event<'_>) {
        let named = |artifact: &Artifact| (artifact.filename.clone(), artifact.size_bytes);
        let report = match event {
            Event::Present { artifact } => {
                let (name, size) = named(artifact);
                Report::Present { name, size }
            }
            Event::Begun { artifact, from } => {
                self.told = from;
                let (name, size) = named(artifact);
                Report::Begun { name, size, from }
            }
            Event::Restarted => {
                self.told = 0;
                Report::Restarted {}
            }
            Event::Arrived { total } => {
                if total < self.told + GROWTH_BYTES {
                    return;
                }
                self.told = total;
                Report::Arrived { total }
            }
            Event::Finished => Report::Finished {},
        };
        self.reporter.send(&report);
    }
}

/// A line from a child; `None` for what is none. Every string in it is made printable.
pub(crate) fn read(line: &[u8]) -> Option<Report> {
    let report: Report = (line.len() <= LINE_BYTES)
        .then(|| serde_json::from_slice(line).ok())
        .flatten()?;
    Some(match report {
        Report::Present { name, size } => Report::Present {
            name: printable(&name),
            size,
        },
        Report::Begun { name, size, from } => Report::Begun {
            name: printable(&name),
            size,
            from,
        },
        other => other,
    })
}

/// With C0 (but tab and newline), DEL and C1 replaced by `?`.
pub(crate) fn printable(text: &str) -> String {
    let shown = |c: char| {
        if c.is_control() && c != '\t' && c != '\n' {
            '?'
        } else {
            c
        }
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_prints_has_no_control_character_but_tab_and_newline() {
        let all: String = (0..=0x9fu8).map(char::from).collect();
        let shown = printable(&all);
        let controls: Vec<char> = shown.chars().filter(|c| c.is_control()).collect();
        assert_eq!(controls, ['\t', '\n']);
        assert_eq!(shown.chars().count(), all.chars().count());
        let line = br#"{"present":{"name":"a\u001b[2Jb\r","size":1}}"#;
        let name = "a?[2Jb?".to_owned();
        assert_eq!(read(line), Some(Report::Present { name, size: 1 }));
    }

    #[test]
    fn a_line_of_another_form_is_none() {
        for bad in [
            &b""[..],
            b"{",
            b"[]",
            br#"{"phase":{}}"#,
            br#"{"phase":{"number":1,"more":2}}"#,
            br#"{"more":{}}"#,
        ] {
            assert_eq!(read(bad), None, "{}", String::from_utf8_lossy(bad));
        }
        let long = format!(
            r#"{{"present":{{"name":"{}","size":1}}}}"#,
            "a".repeat(LINE_BYTES)
        );
        assert_eq!(read(long.as_bytes()), None);
    }
}
