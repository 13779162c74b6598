//! The commands and their arguments, with the words that `--help` shows.

use clap::{Parser, Subcommand};

use crate::host::runtime_image::Variant;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Everything a person runs in this repository",
    disable_version_flag = true
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run the product's main job on this machine: Core, a node, a Session, commands in its sandbox
    Demo {
        /// Leave Core, the node, the Session and the engine running
        #[arg(long)]
        keep: bool,
        /// With the full Runtime image: compilers, interpreters and common tools in the sandbox
        #[arg(long)]
        full: bool,
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
        variant: Variant,
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
    /// Serve the console from its sources, beside a running Core
    Console {
        /// Build it instead, so that the next build of oac-core holds it
        #[arg(long)]
        build: bool,
        /// The Core whose routes are passed on
        #[arg(long, default_value = "http://127.0.0.1:8080", value_name = "URL")]
        core: String,
    },
    /// Build the release of this commit: programs, Runtime image, manifest and checksums
    Dist {
        /// Where the release directory goes, which is not there or empty; below the target directory unless given
        #[arg(long, value_name = "DIR")]
        out: Option<std::path::PathBuf>,
        /// Build everything twice, the second time in another place and from nothing, and compare every byte
        #[arg(long)]
        verify: bool,
        /// Of the files as they are; such a release is never published
        #[arg(long)]
        dirty: bool,
        /// What the Runtime image holds; a release that is published has the full one
        #[arg(long, value_enum, default_value = "full", requires_if("minimal", "dirty"))]
        variant: Variant,
        /// Instead, what the tests publish: the files as they are, with the minimal image and programs that are compiled
        /// quickly, named by a digest in the commit's place, and built twice for a test to compare
        #[arg(long, exclusive = true)]
        trial: bool,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::workspace;

    /// The words after each `cargo xtask` of a document, up to the end of its span or line.
    fn shown(text: &str) -> Vec<Vec<&str>> {
        let found = text.split("cargo xtask ").skip(1);
        let spans = found.filter_map(|rest| rest.split(['`', '\n', ')', ',', ';', '"']).next());
        spans.map(|span| span.split_whitespace().collect()).collect()
    }

    #[test]
    fn every_command_of_the_documents_exists_with_its_options() {
        let root = workspace::root();
        let mut count = 0;
        let documents = workspace::files(root).expect("files");
        let is_document = |file: &&std::path::PathBuf| {
            file.extension().is_some_and(|extension| extension == "md") && !file.starts_with("docs/decisions")
        };
        for file in documents.iter().filter(is_document) {
            let text = workspace::read(&root.join(file)).expect("a document");
            for words in shown(&text) {
                let Some((name, rest)) = words.split_first().filter(|(name, _)| **name != "…") else {
                    continue;
                };
                let arguments = Arguments::command();
                let command = arguments.find_subcommand(name.trim_end_matches('.'));
                let command = command.unwrap_or_else(|| panic!("{}: {name}", file.display()));
                for option in rest.iter().filter_map(|word| word.strip_prefix("--")) {
                    let known = command
                        .get_arguments()
                        .any(|known| known.get_long() == Some(option));
                    assert!(known, "{}: {name} --{option}", file.display());
                }
                count += 1;
            }
        }
        assert!(count >= 10, "{count}");
    }
}
