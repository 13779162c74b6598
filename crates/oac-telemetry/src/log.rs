//! How a program's log is written.
//!
//! A line that an operator may act on carries an `event` as its first field: its name stays while the words may
//! change, and the guide lists it (`cargo xtask tidy`).

use std::{
    io::IsTerminal,
    sync::atomic::{AtomicBool, Ordering},
};

use tracing_subscriber::{
    EnvFilter, Registry, fmt, fmt::MakeWriter, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// The log was begun, and is JSON.
static JSON: AtomicBool = AtomicBool::new(false);

/// Whether this program's standard error is a log of JSON lines: then its last words belong into the log too, or whoever
/// reads it finds a line that is none.
pub fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// Begins to log to standard error: as text on a terminal, else as one JSON object per line. `OAC_LOG` filters,
/// `OAC_LOG_FORMAT` (`text` or `json`) decides the form. A log that nobody reads any more ends nothing.
pub fn start() {
    let json = match std::env::var("OAC_LOG_FORMAT").as_deref() {
        Ok("json") => true,
        Ok("text") => false,
        _ => !std::io::stderr().is_terminal(),
    };
    let filter = EnvFilter::try_from_env("OAC_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // A second subscriber in one process is a test's; the first one stays.
    let _ = if json {
        let began = lines(std::io::stderr).with(filter).try_init();
        JSON.store(began.is_ok(), Ordering::Relaxed);
        began
    } else {
        // Colours are for people: in a file their codes stand in the way of every search.
        let text = fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .log_internal_errors(false);
        Registry::default().with(text).with(filter).try_init()
    };
}

/// One JSON object per line into `writer`.
fn lines<W>(
    writer: W,
) -> impl tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a> + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // An error of the log would be told on standard error, whose end is the error.
    Registry::default().with(fmt::layer().json().with_writer(writer).log_internal_errors(false))
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        sync::{Arc, Mutex},
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0
                .lock()
                .map_or(Err(std::io::ErrorKind::Other.into()), |mut all| all.write(bytes))
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Written {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    #[test]
    fn a_line_is_one_object_with_level_event_and_message_whatever_a_value_holds() {
        let written = Written::default();
        tracing::subscriber::with_default(lines(written.clone()), || {
            tracing::warn!(
                event = "lease_lost",
                why = "two\nlines \"quoted\"",
                "the lease is lost"
            );
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["fields"]["event"], "lease_lost");
        assert_eq!(line["fields"]["message"], "the lease is lost");
        assert_eq!(line["fields"]["why"], "two\nlines \"quoted\"");
        assert!(line["timestamp"].is_string() && line["target"].is_string());
    }
}
