//! Asking a person: lines, answers and secrets. Without a terminal, lines of standard input stand for the answers.

use std::io::{IsTerminal, Read, Write};

use rustix::termios::{self, LocalModes, OptionalActions, SpecialCodeIndex, Termios};

use crate::Failure;

/// Longest answer, in bytes.
const ANSWER_BYTES: usize = 4096;

fn failed(source: std::io::Error) -> Failure {
    Failure::File {
        path: "standard input".into(),
        source,
    }
}

/// Whether a person can be asked.
pub fn is_interactive() -> bool {
    std::io::stdin().is_terminal()
}

/// One line of standard input, trimmed.
pub fn ask(prompt: &str) -> Result<String, Failure> {
    say(prompt);
    let mut line = Vec::new();
    for_each_byte(|byte| match byte {
        b'\n' => Some(Ok(())),
        byte => push(&mut line, byte),
    })?;
    text(line)
}

/// Like [`ask`]; a terminal shows nothing of what is typed, and is left as it was, also by Ctrl-C.
pub fn ask_secret(prompt: &str) -> Result<String, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return ask(prompt);
    }
    let silent = Silent::begin().map_err(failed)?;
    say(prompt);
    let mut line = Vec::new();
    let read = for_each_byte(|byte| match byte {
        b'\n' | b'\r' => Some(Ok(())),
        // Ctrl-C, and Ctrl-D on an empty line.
        3 => Some(Err(Failure::Unfinished(
            "stopped; nothing was written".to_owned(),
        ))),
        4 if line.is_empty() => Some(Err(Failure::Unfinished(
            "stopped; nothing was written".to_owned(),
        ))),
        // Backspace, and Ctrl-U for the whole line.
        8 | 127 => {
            line.pop();
            None
        }
        21 => {
            line.clear();
            None
        }
        byte => push(&mut line, byte),
    });
    drop(silent);
    let _ = writeln!(std::io::stderr());
    read?;
    text(line)
}

/// Whether a person says yes; anything else is no.
pub fn confirm(question: &str) -> Result<bool, Failure> {
    let answer = ask(&format!("{question} [y/N] "))?;
    Ok(matches!(answer.to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn say(prompt: &str) {
    if is_interactive() {
        let mut stderr = std::io::stderr();
        let _ = write!(stderr, "{prompt}").and_then(|()| stderr.flush());
    }
}

fn push(line: &mut Vec<u8>, byte: u8) -> Option<Result<(), Failure>> {
    if line.len() == ANSWER_BYTES {
        return Some(Err(Failure::Usage("the answer is too long".to_owned())));
    }
    line.push(byte);
    None
}

/// Bytes one by one, none read beyond the end of the line. The end of the input ends the line.
fn for_each_byte(mut take: impl FnMut(u8) -> Option<Result<(), Failure>>) -> Result<(), Failure> {
    let mut stdin = std::io::stdin().lock();
    let mut byte = [0];
    loop {
        match stdin.read(&mut byte) {
            Ok(0) => return Ok(()),
            Ok(_) => {
                if let Some(done) = take(byte[0]) {
                    return done;
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(failed(e)),
        }
    }
}

fn text(line: Vec<u8>) -> Result<String, Failure> {
    String::from_utf8(line)
        .map(|line| line.trim().to_owned())
        .map_err(|_| Failure::Usage("the answer is not UTF-8".to_owned()))
}

/// The terminal without echo. Ctrl-C arrives as a byte, so that it cannot end the program before the echo is back.
struct Silent(Termios);

impl Silent {
    fn begin() -> std::io::Result<Self> {
        let stdin = std::io::stdin();
        let saved = termios::tcgetattr(&stdin)?;
        let mut silent = saved.clone();
        silent
            .local_modes
            .remove(LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG);
        silent.special_codes[SpecialCodeIndex::VMIN] = 1;
        silent.special_codes[SpecialCodeIndex::VTIME] = 0;
        termios::tcsetattr(&stdin, OptionalActions::Flush, &silent)?;
        Ok(Self(saved))
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.0);
    }
}
