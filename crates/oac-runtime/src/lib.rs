//! The program inside every sandbox: one link to Core, and through it Turns that are started once, followed by offset,
//! and told to the end.
//!
//! In go one bootstrap file and, over the link, commands; out come their output and exits, and files below the
//! bootstrap file's directory that survive the program (`turns/`, `uploads/`). It is linked statically and needs nothing of the
//! image but what the commands themselves need. It listens on no port, never opens a stream, never changes its identity,
//! and never writes its credential anywhere but into the hello message.

mod activity;
mod bootstrap;
mod dial;
mod files;
mod life;
mod limits;
mod park;
mod ports;
mod process;
mod retry;
mod service;
mod task;
mod turns;
mod wake;

pub use life::run;

/// As Core shows it.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// One line for whoever reads the sandbox's log.
pub(crate) fn report(line: std::fmt::Arguments<'_>) {
    eprintln!("oac-runtime: {line}");
}
