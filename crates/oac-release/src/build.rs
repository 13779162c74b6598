//! `oac-release-build`: builds the Runtime image of a checkout, alone or as a part of a release, and prints the image's
//! record as one line of JSON.
#![allow(clippy::print_stdout, reason = "the record is the program's result")]

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Parser};
use oac_model::SourceCommit;
use oac_release::{
    SECCOMP_PROFILE,
    assemble::{Part, assemble},
    image::{
        BuildImage, BuiltImage, ImageRecord, Standing, Variant, build_image, ensure_base, write_manifest,
    },
    layout,
    manifest::Image,
};

type Failure = Box<dyn std::error::Error>;

#[derive(Parser)]
enum Arguments {
    /// The image alone
    Image(ImageArguments),
    /// A release: image, seccomp profile and the files that are given
    Release {
        #[command(flatten)]
        image: ImageArguments,
        /// A file of the release by its destination on a node
        #[arg(long = "part", value_name = "KEY=FILE", value_parser = part)]
        parts: Vec<Part>,
        /// Where the release directory goes, which is not there or empty
        #[arg(long)]
        release: PathBuf,
    },
}

#[derive(Args)]
struct ImageArguments {
    #[arg(long, value_enum)]
    variant: Variant,
    /// Tag the image as one of a working tree, which can never be published
    #[arg(long)]
    dirty: bool,
    /// Tag the image as a release's, whatever it holds: for tests, with what stands for a commit and is none
    #[arg(long, conflicts_with = "dirty")]
    trial: bool,
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

fn part(text: &str) -> Result<Part, String> {
    let (key, path) = text
        .split_once('=')
        .ok_or("give a destination, `=` and the file")?;
    Part::of(key, Path::new(path)).ok_or_else(|| format!("no release has a file {key}"))
}

fn main() -> ExitCode {
    match build(Arguments::parse()) {
        Ok(record) => {
            println!("{record}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let mut line = error.to_string();
            let mut cause = error.source();
            while let Some(below) = cause {
                line.push_str(&format!(" ({below})"));
                cause = below.source();
            }
            eprintln!("error: {line}");
            ExitCode::FAILURE
        }
    }
}

fn build(arguments: Arguments) -> Result<String, Failure> {
    match arguments {
        Arguments::Image(image) => record(&image, built(&image)?),
        Arguments::Release {
            image,
            mut parts,
            release,
        } => {
            let built = built(&image)?;
            let names = Image {
                config_digest: built.config_digest,
                manifest_digest: built.manifest_digest,
            };
            let seccomp = image.out.join("seccomp.json");
            std::fs::write(&seccomp, SECCOMP_PROFILE)?;
            for (row, path) in [(layout::SECCOMP, seccomp), (layout::IMAGE, built.archive.clone())] {
                let version = String::new();
                parts.push(Part { row, version, path });
            }
            assemble(image.commit, names, &parts, &release, image.dirty)?;
            record(&image, built)
        }
    }
}

fn built(arguments: &ImageArguments) -> Result<BuiltImage, Failure> {
    let base = ensure_base(arguments.variant, &arguments.cache)?;
    let standing = match (arguments.dirty, arguments.trial) {
        (true, _) => Standing::WorkingTree,
        (false, true) => Standing::Trial,
        (false, false) => Standing::Commit,
    };
    Ok(build_image(&BuildImage {
        base: Some(&base),
        runtime: &arguments.runtime,
        variant: arguments.variant,
        commit: arguments.commit,
        standing,
        created: arguments.created,
        // What is tried out is loaded once and thrown away; a release is fetched by every node.
        compression: if standing == Standing::Commit { 9 } else { 1 },
        out: &arguments.out,
    })?)
}

fn record(arguments: &ImageArguments, built: BuiltImage) -> Result<String, Failure> {
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
