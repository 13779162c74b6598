//! `cargo xtask ...`: everything a person runs in this repository.
//!
//! In goes a command of `overview.md` ("Commands a person runs"), out comes its work on this checkout and an exit
//! status that is zero only when all of it succeeded. The program installs what is missing after saying so, starts
//! the services it needs and stops exactly those again. It never pretends: a command whose part is not built yet says
//! so in one line and fails. It depends on no crate of the product, so it builds in seconds and can check them all.
#![allow(clippy::print_stdout, reason = "a command's output is its purpose")]

mod bench;
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

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Everything a person runs in this repository",
    disable_version_flag = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the product's main job on this machine: Core, a node, a Session, commands in its sandbox
    Demo {
        /// Leave Core, the node, the Session and the engine running
        #[arg(long)]
        keep: bool,
    },
    /// Run every check and test; install and start what they need, stop what was started
    Test {
        /// Only what needs no service
        #[arg(long)]
        quick: bool,
    },
    /// Check layout, purity, sizes, links, marks and generated files
    Tidy {
        /// Write generated files that are out of date
        #[arg(long)]
        write: bool,
    },
    /// Read the marks and the last test run, and show which requirements are proven
    Requirements,
    /// Run one benchmark, or all, beside its baseline
    Bench { name: Option<String> },
    /// Build a Runtime image of this checkout: an archive that engines load, and its manifest
    Image {
        #[arg(long, value_enum)]
        variant: host::runtime_image::Variant,
        /// Where the files go; below the target directory unless given
        #[arg(long, value_name = "DIR")]
        out: Option<std::path::PathBuf>,
    },
    /// Attack the frame decoder and both machines of the node connection with random input
    Fuzz {
        /// How long, all targets together
        #[arg(long, default_value_t = 10, value_name = "N")]
        minutes: u64,
        /// Begin with this seed, as an earlier run printed it
        #[arg(long, conflicts_with = "replay")]
        seed: Option<u64>,
        /// Run only this input again, as a failed run kept it
        #[arg(long, value_name = "FILE")]
        replay: Option<std::path::PathBuf>,
    },
    /// Run the simulation: Cores, nodes and networks through faults drawn from seeds, the invariants checked all the way
    World {
        /// Only this seed, with everything that happens
        #[arg(long, conflicts_with_all = ["seeds", "from"])]
        seed: Option<u64>,
        /// How many
        #[arg(long, default_value_t = 100_000, value_name = "N")]
        seeds: u64,
        /// The first
        #[arg(long, default_value_t = 0, value_name = "N")]
        from: u64,
    },
    /// Build a release
    Dist {
        /// Where the release directory goes
        #[arg(long, value_name = "DIR")]
        out: Option<std::path::PathBuf>,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = process::watch_signals().and_then(|()| match arguments.command {
        Command::Demo { keep } => demo::run(keep),
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
        Command::Dist { out } => dist::run(out.as_deref()),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
