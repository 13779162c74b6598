//! `oac-wire-check`: what a receiver of the node protocol makes of frames, one JSON line in, one line out.
//!
//! The judging is the library's; this program only moves lines. It holds one line at a time, so a file of any length
//! goes through it, and it answers each line before it reads the next.

use std::{
    borrow::Cow,
    fmt,
    io::{self, BufRead, ErrorKind, Read as _, Write},
    process::ExitCode,
};

use oac_wire::{Direction, Verdict, judge, limits};
use serde::{Deserialize, Deserializer, de};

const HELP: &str = "\
Says what a receiver of the node protocol makes of frames.

Usage: oac-wire-check [--notes] < LINES

Each input line is a JSON object:
  {\"direction\": \"node->core\" | \"core->node\", \"frame\": \"<the frame's text>\"}
Further members are ignored, so the corpora in crates/oac-wire/corpus can be read as they are.

For each line one line is printed:
  accept
  reject frame <reason>      the receiver closes the connection, and the frame has no effect
  reject request <reason>    the receiver answers `invalid`, and the connection stays
A reason names the member and the rule and never holds a value of the frame.

A response whose result is out of bounds is accepted, because it closes nothing; Core reads its operation as
unconfirmed. With --notes that is said, with the rule, on standard error.

A line that is no such object gets a line on standard error and no verdict.
Exit status: 0, or 2 when there was such a line, or 1 when reading or writing failed.
";

/// No frame is larger, and no character of one takes more than six bytes in a JSON string; the rest is for `direction`
/// and members beside it.
const LINE_BYTES: u64 = limits::REQUEST_FRAME_BYTES as u64 * 6 + 64 * 1024;

fn main() -> ExitCode {
    let mut notes = false;
    for argument in std::env::args_os().skip(1) {
        match argument.to_str() {
            Some("--help" | "-h") => {
                let printed = io::stdout().write_all(HELP.as_bytes());
                return if printed.is_ok() {
                    ExitCode::SUCCESS
                } else {
                    ExitCode::FAILURE
                };
            }
            Some("--notes") => notes = true,
            _ => {
                eprintln!("oac-wire-check: unknown argument; --help shows the usage");
                return ExitCode::from(2);
            }
        }
    }
    match run(&mut io::stdin().lock(), &mut io::stdout().lock(), notes) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(2),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("oac-wire-check: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How many lines were no input.
fn run(input: &mut impl BufRead, output: &mut impl Write, notes: bool) -> io::Result<u64> {
    let mut malformed = 0;
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        line.shrink_to(1 << 20);
        if input.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let cut = line.len() as u64 == LINE_BYTES && line.last() != Some(&b'\n');
        if cut {
            skip_line(input)?;
            writeln!(
                output,
                "reject frame the line is longer than any frame that fits the limit makes it"
            )?;
            output.flush()?;
            continue;
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        let verdict = match serde_json::from_slice::<Line<'_>>(text) {
            Ok(line) => judge(line.direction.0, &line.frame.0),
            Err(error) => {
                malformed += 1;
                eprintln!("line {number}: not an input line: {}", reason(&error));
                continue;
            }
        };
        match verdict {
            Verdict::Accept => writeln!(output, "accept")?,
            Verdict::Unconfirmed(said) => {
                writeln!(output, "accept")?;
                if notes {
                    eprintln!("line {number}: Core reads the operation as unconfirmed: {said}");
                }
            }
            Verdict::Frame(said) => writeln!(output, "reject frame {said}")?,
            Verdict::Request(said) => writeln!(output, "reject request {said}")?,
        }
        output.flush()?;
    }
    Ok(malformed)
}

/// Reads to the end of the line, keeping nothing.
fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let chunk = input.fill_buf()?;
        let end = chunk.iter().position(|b| *b == b'\n');
        let taken = end.map_or(chunk.len(), |at| at + 1);
        input.consume(taken);
        if end.is_some() || taken == 0 {
            return Ok(());
        }
    }
}

/// The kind of mistake and its column. The reader's own words may quote the line, which may hold credentials.
fn reason(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        serde_json::error::Category::Data => {
            "expected {\"direction\": \"node->core\" or \"core->node\", \"frame\": \"<text>\"}"
        }
        _ => "not valid JSON",
    };
    format!("{what}, at column {}", error.column())
}

#[derive(Deserialize)]
struct Line<'a> {
    direction: Way,
    #[serde(borrow)]
    frame: Text<'a>,
}

struct Way(Direction);

impl<'de> Deserialize<'de> for Way {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(d)?;
        let way = Direction::from_text(&text).map(Self);
        way.ok_or_else(|| de::Error::custom("expected a direction"))
    }
}

/// The bytes of a string. A line can spell half a character, which no text holds but a hostile frame may: such a frame
/// is judged, and is not UTF-8.
struct Text<'a>(Cow<'a, [u8]>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> de::Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_bytes<E: de::Error>(self, bytes: &'de [u8]) -> Result<Text<'de>, E> {
                Ok(Text(bytes.into()))
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Text<'de>, E> {
                Ok(Text(bytes.to_vec().into()))
            }
        }
        d.deserialize_bytes(TextVisitor)
    }
}
