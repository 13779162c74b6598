//! One line about what is being waited for, on a terminal only; it goes when there is something to print.

use std::{
    cell::RefCell,
    io::{IsTerminal, Write},
};

/// The line.
pub struct StatusLine {
    enabled: bool,
    shown: RefCell<String>,
}

impl StatusLine {
    /// A line on standard error, if that is a terminal and `wanted`.
    pub fn new(wanted: bool) -> Self {
        Self {
            enabled: wanted && std::io::stderr().is_terminal(),
            shown: RefCell::default(),
        }
    }

    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Replaces what the line says.
    pub fn show(&self, text: &str) {
        let mut shown = self.shown.borrow_mut();
        if !self.enabled || *shown == text {
            return;
        }
        let width = rustix::termios::tcgetwinsize(std::io::stderr())
            .ok()
            .map(|size| usize::from(size.ws_col))
            // A terminal that nobody told its size says 0.
            .filter(|width| *width > 0)
            .unwrap_or(80);
        // A line that wraps could not be taken back.
        let fitting: String = text.chars().take(width.saturating_sub(1)).collect();
        let mut stderr = std::io::stderr().lock();
        let _ = write!(stderr, "\r\u{1b}[K{fitting}").and_then(|()| stderr.flush());
        text.clone_into(&mut shown);
    }

    /// Takes the line back.
    pub fn clear(&self) {
        let mut shown = self.shown.borrow_mut();
        if self.enabled && !shown.is_empty() {
            let mut stderr = std::io::stderr().lock();
            let _ = write!(stderr, "\r\u{1b}[K").and_then(|()| stderr.flush());
            shown.clear();
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.clear();
    }
}
