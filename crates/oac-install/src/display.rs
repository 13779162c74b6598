//! What a run shows: its phases and each file's way, redrawn for a person at a terminal, in plain lines for a log
//! (installer.md section 9).

use std::io::{IsTerminal, Write};

use oac_model::Digest;
use oac_release::{
    layout::{For, Role},
    manifest::Artifact,
    progress::{Event, Lines, Progress, Redrawn},
};

use crate::report::{Report, printable};

/// In order; a phase's number is its place, from 1 on.
pub(crate) const PHASES: [&str; 8] = [
    "Reading the specification",
    "Checking the host",
    "Preparing the account",
    "Downloading and verifying files",
    "Checking the Runtime",
    "Registering the node",
    "Starting the service",
    "Waiting for readiness",
];

pub(crate) struct Display {
    out: Box<dyn Write>,
    progress: Box<dyn Progress>,
    colours: bool,
    phase: u8,
}

/// Every writer of one stream writes whole lines, or redraws the last one.
struct Out;

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::io::stdout().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stdout().flush()
    }
}

impl Display {
    /// On standard output. `plain` is what `--no-color` asks for.
    pub(crate) fn of_this_process(plain: bool, terminal_is_dumb: bool) -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let progress: Box<dyn Progress> = if is_terminal && !terminal_is_dumb {
            Box::new(Redrawn::new(Out))
        } else {
            Box::new(Lines::new(Out))
        };
        Self {
            out: Box::new(Out),
            progress,
            colours: is_terminal && !plain && !terminal_is_dumb,
            phase: 0,
        }
    }

    /// A phase begins; one that was shown is not shown again.
    pub(crate) fn phase(&mut self, number: u8) {
        let Some(name) = PHASES.get(usize::from(number).wrapping_sub(1)) else {
            return;
        };
        if number <= self.phase {
            return;
        }
        self.phase = number;
        let (on, off) = if self.colours {
            ("\u{1b}[1m", "\u{1b}[0m")
        } else {
            ("", "")
        };
        self.line(&format!("{on}[{number}/{}] {name}{off}", PHASES.len()));
    }

    /// A line of this program's own.
    pub(crate) fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{text}").and_then(|()| self.out.flush());
    }

    /// What a child printed.
    pub(crate) fn relay(&mut self, bytes: &[u8]) {
        let text = printable(&String::from_utf8_lossy(bytes));
        let _ = write!(self.out, "{text}").and_then(|()| self.out.flush());
    }

    /// What a child told, but its result.
    pub(crate) fn told(&mut self, report: &Report) {
        match report {
            Report::Phase { number } => self.phase(*number),
            Report::Present { name, size } => {
                let artifact = shown(name, *size);
                self.progress.tell(Event::Present { artifact: &artifact });
            }
            Report::Begun { name, size, from } => {
                let artifact = shown(name, *size);
                self.progress.tell(Event::Begun {
                    artifact: &artifact,
                    from: *from,
                });
            }
            Report::Restarted {} => self.progress.tell(Event::Restarted),
            Report::Arrived { total } => self.progress.tell(Event::Arrived { total: *total }),
            Report::Finished {} => self.progress.tell(Event::Finished),
            Report::Result { .. } => {}
        }
    }
}

/// As much of a file as is shown of it.
fn shown(name: &str, size: u64) -> Artifact {
    Artifact {
        key: String::new(),
        filename: name.to_owned(),
        role: Role::Runtime,
        provider: For::Both,
        size_bytes: size,
        sha256: Digest::from_bytes([0; 32]),
        unpacked: None,
    }
}
