//! `oac-release-image`: builds the Runtime image of a working tree and prints its record as one line of JSON.
#![allow(clippy::print_stdout, reason = "the record is the program's result")]

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use oac_model::SourceCommit;
use oac_release::image::{BuildImage, ImageRecord, Variant, build_image, ensure_base, write_manifest};

#[derive(Parser)]
struct Arguments {
    #[arg(long, value_enum)]
    variant: Variant,
    /// Tag the image as one of a working tree, which can never be published
    #[arg(long)]
    dirty: bool,
    #[arg(long)]
    commit: SourceCommit,
    /// Time of the commit, in seconds since 1970
    #[arg(long, default_value_t = 0)]
    created: u64,
    /// The static oac-runtime
    #[arg(long)]
    runtime: PathBuf,
    /// Folder in which the base of packages is kept
    #[arg(long)]
    cache: PathBuf,
    /// Folder for the archive, packages.lock and manifest.json
    #[arg(long)]
    out: PathBuf,
}

fn main() -> ExitCode {
    match build(&Arguments::parse()) {
        Ok(record) => {
            println!("{record}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let mut line = error.to_string();
            if let Some(cause) = error.source() {
                line.push_str(&format!(" ({cause})"));
            }
            eprintln!("error: {line}");
            ExitCode::FAILURE
        }
    }
}

fn build(arguments: &Arguments) -> Result<String, Box<dyn std::error::Error>> {
    let base = ensure_base(arguments.variant, &arguments.cache)?;
    let built = build_image(&BuildImage {
        base: Some(&base),
        runtime: &arguments.runtime,
        variant: arguments.variant,
        commit: arguments.commit,
        dirty: arguments.dirty,
        created: arguments.created,
        // A working tree's image is loaded once and thrown away; a release's is fetched by every node.
        compression: if arguments.dirty { 1 } else { 9 },
        out: &arguments.out,
    })?;
    let manifest = write_manifest(&built, arguments.commit, &arguments.out)?;
    Ok(serde_json::to_string(&ImageRecord {
        tag: built.tag,
        source_commit: arguments.commit,
        image_id: built.config_digest,
        image_manifest_digest: built.manifest_digest,
        archive: built.archive,
        manifest,
    })?)
}
