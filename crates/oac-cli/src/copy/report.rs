//! What a copy tells while it goes on and at its end.

use std::cell::Cell;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use crate::{
    Failure,
    output::{self, Form},
};

/// So many single failures are told; the rest is counted.
const TOLD: u64 = 20;

/// One copy's progress and its losses.
pub struct Report {
    form: Form,
    bar: ProgressBar,
    files: Cell<u64>,
    bytes: Cell<u64>,
    skipped: Cell<u64>,
    failed: Cell<u64>,
}

impl Report {
    pub fn new(form: Form) -> Self {
        let target = match form {
            // Drawn on a terminal alone.
            Form::Text => ProgressDrawTarget::stderr(),
            Form::Json => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{bytes}/{total_bytes}  {bytes_per_sec}  {wide_msg}")
        {
            bar.set_style(style);
        }
        Self {
            form,
            bar,
            files: Cell::default(),
            bytes: Cell::default(),
            skipped: Cell::default(),
            failed: Cell::default(),
        }
    }

    /// So many bytes more are to be moved.
    pub fn expect(&self, bytes: u64) {
        self.bar.set_length(self.bar.length().unwrap_or(0) + bytes);
    }

    pub fn moved(&self, bytes: usize) {
        self.bar.inc(bytes as u64);
    }

    /// A transfer begins anew: so many bytes were moved in vain.
    pub fn unmoved(&self, bytes: u64) {
        self.bar.set_position(self.bar.position().saturating_sub(bytes));
    }

    pub fn copied(&self, path: &str, bytes: u64) {
        self.files.set(self.files.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
        self.bar.set_message(output::printable(path));
        if self.form == Form::Json {
            output::json(&json!({ "type": "copied", "path": path, "bytes": bytes }));
        }
    }

    /// Left out by design: `why` says what it is.
    pub fn skipped(&self, path: &str, why: &str) {
        self.skipped.set(self.skipped.get() + 1);
        if self.form == Form::Json {
            output::json(&json!({ "type": "skipped", "path": path, "reason": why }));
        } else if self.skipped.get() <= TOLD {
            self.tell(&format!("skipped {path}: {why}"));
        }
    }

    /// One file could not be copied; the others go on.
    pub fn failed(&self, path: &str, failure: &Failure) {
        self.failed.set(self.failed.get() + 1);
        let message = output::with_cause(failure);
        if self.form == Form::Json {
            let error = json!({ "code": failure.code(), "message": message });
            output::json(&json!({ "type": "failed", "path": path, "error": error }));
        } else if self.failed.get() <= TOLD {
            self.tell(&format!("{path}: {message}"));
        }
    }

    /// A line beside the progress.
    pub fn tell(&self, line: &str) {
        self.bar.suspend(|| output::complain(&output::printable(line)));
    }

    /// The last word.
    pub fn finish(self) -> Result<(), Failure> {
        self.bar.finish_and_clear();
        let (files, bytes) = (self.files.get(), self.bytes.get());
        let (skipped, failed) = (self.skipped.get(), self.failed.get());
        match self.form {
            Form::Json => output::json(&json!({
                "type": "done", "files": files, "bytes": bytes, "skipped": skipped, "failed": failed,
            })),
            Form::Text => {
                let mut line = format!(
                    "Copied {files} {}, {bytes} bytes",
                    if files == 1 { "file" } else { "files" }
                );
                if skipped > 0 {
                    line.push_str(&format!("; skipped {skipped}"));
                }
                output::note(&line);
            }
        }
        if failed > 0 {
            return Err(Failure::Unfinished(format!(
                "{failed} could not be copied: see above, mend that and copy again"
            )));
        }
        Ok(())
    }
}
