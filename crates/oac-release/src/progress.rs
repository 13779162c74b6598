//! What is seen of a download: lines for a log, a line that is redrawn for a person (installer.md section 9).

use std::{
    io::Write,
    time::{Duration, Instant},
};

use crate::manifest::Artifact;

/// What happens to a file, in order.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// It is here already, and right.
    Present { artifact: &'a Artifact },
    /// Its transfer begins; `from` bytes of it are here.
    Begun { artifact: &'a Artifact, from: u64 },
    /// The server could not continue it: it comes from its beginning.
    Restarted,
    /// So many bytes of it are here.
    Arrived { total: u64 },
    /// It is verified and has its name.
    Finished,
}

/// Told what happens.
pub trait Progress {
    fn tell(&mut self, event: Event<'_>);
}

/// For whoever does not look.
#[derive(Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn tell(&mut self, _: Event<'_>) {}
}

const MIB: u64 = 1024 * 1024;
/// From this size on a log says each tenth.
const TENTHS_BYTES: u64 = 50 * MIB;
/// Between two drawings.
const REDRAW: Duration = Duration::from_millis(250);

struct Current {
    name: String,
    size: u64,
    from: u64,
    total: u64,
}

/// Plain lines: start and end of each file, and each tenth of a large one. No carriage return, no escape.
pub struct Lines<W> {
    out: W,
    current: Option<Current>,
    tenth: u64,
}

impl<W: Write> Lines<W> {
    pub fn new(out: W) -> Self {
        Self {
            out,
            current: None,
            tenth: 0,
        }
    }

    fn line(&mut self, text: &str) {
        // A log that cannot be written holds up no download.
        let _ = writeln!(self.out, "{text}");
    }
}

impl<W: Write> Progress for Lines<W> {
    fn tell(&mut self, event: Event<'_>) {
        match event {
            Event::Present { artifact } => self.line(&present(artifact)),
            Event::Begun { artifact, from } => {
                self.line(&begun(artifact, from));
                self.tenth = tenth(from, artifact.size_bytes);
                self.current = Some(current(artifact, from));
            }
            Event::Restarted => {
                self.tenth = 0;
                if let Some(text) = self.current.as_ref().map(restarted) {
                    self.line(&text);
                }
            }
            Event::Arrived { total } => {
                let Some(current) = &self.current else { return };
                let reached = tenth(total, current.size);
                if current.size >= TENTHS_BYTES && reached > self.tenth && reached < 10 {
                    self.tenth = reached;
                    let text = format!(
                        "{}: {} % of {} MiB",
                        current.name,
                        reached * 10,
                        mib(current.size)
                    );
                    self.line(&text);
                }
            }
            Event::Finished => {
                if let Some(current) = self.current.take() {
                    self.line(&finished(&current));
                }
            }
        }
    }
}

/// One line per file, redrawn at most four times a second.
pub struct Redrawn<W> {
    out: W,
    current: Option<Current>,
    begun: Instant,
    drawn: Option<Instant>,
}

impl<W: Write> Redrawn<W> {
    pub fn new(out: W) -> Self {
        Self {
            out,
            current: None,
            begun: Instant::now(),
            drawn: None,
        }
    }

    fn draw(&mut self, text: &str, ends: bool) {
        let end = if ends { "\n" } else { "" };
        let _ = write!(self.out, "\r{text}\u{1b}[K{end}");
        let _ = self.out.flush();
    }
}

impl<W: Write> Progress for Redrawn<W> {
    fn tell(&mut self, event: Event<'_>) {
        match event {
            Event::Present { artifact } => self.draw(&present(artifact), true),
            Event::Begun { artifact, from } => {
                if from > 0 {
                    self.draw(&begun(artifact, from), true);
                }
                self.current = Some(current(artifact, from));
                (self.begun, self.drawn) = (Instant::now(), None);
            }
            Event::Restarted => {
                self.begun = Instant::now();
                if let Some(current) = &mut self.current {
                    (current.from, current.total) = (0, 0);
                    let text = restarted(current);
                    self.draw(&text, true);
                }
            }
            Event::Arrived { total } => {
                let Some(current) = &mut self.current else { return };
                current.total = total;
                if self.drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAW) {
                    self.drawn = Some(Instant::now());
                    let text = state(current, self.begun.elapsed());
                    self.draw(&text, false);
                }
            }
            Event::Finished => {
                if let Some(current) = self.current.take() {
                    self.draw(&finished(&current), true);
                }
            }
        }
    }
}

fn current(artifact: &Artifact, from: u64) -> Current {
    Current {
        name: artifact.filename.clone(),
        size: artifact.size_bytes,
        from,
        total: from,
    }
}

fn present(artifact: &Artifact) -> String {
    format!("{} already verified", artifact.filename)
}

fn begun(artifact: &Artifact, from: u64) -> String {
    let (name, size) = (&artifact.filename, mib(artifact.size_bytes));
    match from {
        0 => format!("Downloading {name}, {size} MiB"),
        from => format!("Resuming {name} at {} of {size} MiB", mib(from)),
    }
}

fn restarted(current: &Current) -> String {
    format!("{}: the server cannot resume it, starting over", current.name)
}

fn finished(current: &Current) -> String {
    format!("{} verified, {} MiB", current.name, mib(current.size))
}

/// Name, done and total, percent, rate, time left.
fn state(current: &Current, elapsed: Duration) -> String {
    let Current {
        name,
        size,
        from,
        total,
    } = current;
    let percent = total.saturating_mul(100) / size.max(&1);
    let (done, all) = (mib(*total), mib(*size));
    let rate = (total - from) as f64 / elapsed.as_secs_f64().max(0.001);
    let left = if rate >= 1.0 {
        let seconds = (size.saturating_sub(*total) as f64 / rate) as u64;
        format!("{}:{:02} left", seconds / 60, seconds % 60)
    } else {
        "waiting".to_owned()
    };
    let rate = rate / MIB as f64;
    format!("{name}  {done}/{all} MiB  {percent} %  {rate:.1} MiB/s  {left}")
}

fn tenth(done: u64, size: u64) -> u64 {
    done.saturating_mul(10) / size.max(1)
}

/// With one digit below a hundred, so that a small file is not 0.
fn mib(bytes: u64) -> String {
    let mib = bytes as f64 / MIB as f64;
    if mib < 100.0 {
        format!("{mib:.1}")
    } else {
        format!("{mib:.0}")
    }
}
