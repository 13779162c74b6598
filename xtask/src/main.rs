//! `cargo xtask ...`: everything a person runs in this repository.
//!
//! In goes a command of `overview.md` ("Commands a person runs"), out comes its work on this checkout and an exit
//! status that is zero only when all of it succeeded. The program installs what is missing after saying so, starts
//! the services it needs and stops exactly those again. It never pretends: a command whose part is not built yet says
//! so in one line and fails. It depends on no crate of the product, so it builds in seconds and can check them all.
#![allow(clippy::print_stdout, reason = "a command's output is its purpose")]

mod arguments;
mod bench;
mod console;
mod demo;
mod dist;
mod fuzz;
mod host;
mod ledger;
mod marks;
mod process;
mod requirements;
mod steps;
mod test;
mod tidy;
mod workspace;
mod world;

use std::process::ExitCode;

use clap::Parser as _;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = process::watch_signals().and_then(|()| match arguments.command {
        Command::Demo { keep, full } => demo::run(keep, full),
        Command::Test { quick } => test::run(quick),
        Command::Tidy { write } => tidy::run(write),
        Command::Requirements => requirements::run(),
        Command::Bench { name } => bench::run(name.as_deref()),
        Command::Image { variant, out } => host::runtime_image::run(variant, out.as_deref()),
        Command::Fuzz {
            minutes,
            seed,
            replay,
        } => fuzz::run(minutes, seed, replay.as_deref()),
        Command::World { seed, seeds, from } => world::run(seed, seeds, from),
        Command::Console { build, core } => console::run(build, &core),
        Command::Dist {
            out,
            verify,
            dirty,
            variant,
            trial,
        } => dist::run(&dist::Wanted {
            out: out.as_deref(),
            verify,
            dirty,
            variant,
            trial,
        }),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
