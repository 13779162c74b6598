//! `cargo xtask dist`: the release of this checkout's commit (releases.md section 3), as a directory that
//! `oac-core release publish` takes.
//!
//! Static programs, the Runtime image and the vendor's files come together in the program `oac-release-build`; no
//! container engine and no image registry takes part. With `--verify` everything is built a second time, in another
//! place and from nothing, base of packages included; a byte that differs fails the command.
//!
//! What this workspace does not have yet is not pretended: microsandbox files wait for the helper program, without
//! which they are of no use.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::host::checkout::{Checkout, forget};
use crate::host::runtime_image::{Builder, Standing, Variant};
use crate::host::{lock, packages, vendor};
use crate::process;
use crate::steps::Steps;
use crate::workspace::{self, Metadata};

const NODE: (&str, &str) = ("oac-node", "oac-node");
const INSTALLER: (&str, &str) = ("oac-install", "oac-node-install");
const HELPER: (&str, &str) = ("oac-provider-microsandbox", "oac-microsandbox-helper");

/// What is built.
pub(crate) struct Wanted<'a> {
    /// Where the release directory goes; below the target directory unless given.
    pub(crate) out: Option<&'a Path>,
    /// Build it twice and compare.
    pub(crate) verify: bool,
    /// Of the files as they are, whatever the commit says; never published.
    pub(crate) dirty: bool,
    pub(crate) variant: Variant,
    /// What tests publish, instead of a release.
    pub(crate) trial: bool,
}

pub(crate) fn run(wanted: &Wanted<'_>) -> Result<()> {
    let _lock = lock::take()?;
    let metadata = workspace::metadata()?;
    if wanted.trial {
        packages::ensure_packages(&[packages::IMAGE])?;
        let builder = Builder::of(&metadata, Variant::Minimal, Standing::Trial)?;
        let folder = twice(&builder, &metadata)?;
        println!("releases: {}", folder.display());
        return Ok(());
    }
    let own = Checkout::own(&metadata)?;
    if !wanted.dirty {
        let changes = own.changes()?;
        if let Some(first) = changes.first() {
            bail!(
                "the checkout has changes ({}): commit them, or build with --dirty what is never published",
                first.trim()
            );
        }
    }
    let mut steps = Steps::default();
    let result = build(&mut steps, &metadata, &own, wanted);
    steps.print_times();
    let out = result?;
    println!("release:  {}", out.display());
    Ok(())
}

fn build(steps: &mut Steps, metadata: &Metadata, own: &Checkout, wanted: &Wanted<'_>) -> Result<PathBuf> {
    steps
        .run("packages", || packages::ensure_packages(&[packages::IMAGE]))
        .context("packages are missing")?;
    let builder = steps.run("builder", || {
        let standing = match wanted.dirty {
            true => Standing::WorkingTree,
            false => Standing::Commit,
        };
        Builder::of(metadata, wanted.variant, standing)
    });
    let mut builder = builder.context("the builder does not build")?;
    let work = metadata.target_directory.join("xtask/dist");
    let out = match wanted.out {
        Some(out) => std::path::absolute(out)?,
        None => {
            let out = work.join("release");
            forget(&out)?;
            out
        }
    };
    steps
        .run("release", || {
            release(&builder, metadata, own, &work.join("work"), &out)
        })
        .context("the release cannot be built")?;
    if wanted.verify {
        let again = work.join("again");
        let verified = steps.run("release, again", || {
            let other = own.elsewhere(&again)?;
            builder.cache = again.join("cache");
            let second = again.join("release");
            release(&builder, metadata, &other, &again.join("work"), &second)?;
            let locks = [&work, &again].map(|folder| folder.join("work").join("packages.lock"));
            let [one, two] = [workspace::read(&locks[0])?, workspace::read(&locks[1])?];
            if one != two {
                bail!(
                    "the mirror's packages changed between the two builds: run this again with an empty cache"
                );
            }
            same(&out, &second)
        });
        verified.context("the release is not what a second build gives")?;
        forget(&again)?;
    }
    Ok(out)
}

/// Two releases of this checkout's files for tests, in the folders `one` and `two` of the one that is given: the second
/// of a copy in another place, built from nothing. They are named by the files' digest instead of a commit, hold the
/// minimal image, and their programs are compiled quickly: what they are for is the building and what hosts do with it.
pub(crate) fn for_tests(metadata: &Metadata, programs: &Path) -> Result<PathBuf> {
    twice(
        &Builder::among(programs, Variant::Minimal, Standing::Trial)?,
        metadata,
    )
}

fn twice(builder: &Builder, metadata: &Metadata) -> Result<PathBuf> {
    let own = Checkout::own(metadata)?.trial()?;
    println!(
        "    {}: for this run's tests alone, of no commit, with the minimal image",
        own.commit
    );
    let folder = metadata.target_directory.join("xtask/releases");
    forget(&folder)?;
    let [one, two] = ["one", "two"].map(|name| folder.join(name));
    release(builder, metadata, &own, &folder.join("work"), &one)?;
    let again = folder.join("again");
    let other = own.elsewhere(&again)?;
    release(builder, metadata, &other, &again.join("work"), &two)?;
    forget(&again)?;
    Ok(folder)
}

fn has(metadata: &Metadata, (package, name): (&str, &str)) -> bool {
    metadata.has_program(package, name)
}

/// Builds the release of `checkout` at `out`; what is made on the way stays in `work`.
fn release(
    builder: &Builder,
    metadata: &Metadata,
    checkout: &Checkout,
    work: &Path,
    out: &Path,
) -> Result<()> {
    std::fs::create_dir_all(work).with_context(|| format!("cannot create {}", work.display()))?;
    let program = |(package, name): (&str, &str)| checkout.build_static(package, name);
    let runtime = program(("oac-runtime", "oac-runtime"))?;
    let mut parts = vec![
        ("bin/oac-node".to_owned(), program(NODE)?),
        ("bin/oac-node-install".to_owned(), program(INSTALLER)?),
    ];
    if has(metadata, HELPER) {
        let files = vendor::ensure_vendor()?;
        parts.push((
            format!("native/bin/{}", HELPER.1),
            checkout.build_dynamic(HELPER.0, HELPER.1)?,
        ));
        parts.push(("native/microsandbox/msb".to_owned(), files.msb));
        let firmware = format!("native/microsandbox/libkrunfw.so.{}", vendor::FIRMWARE_VERSION);
        parts.push((firmware, files.firmware));
    } else {
        println!("    without microsandbox: this workspace has no helper program");
    }
    let mut command = builder.command("release", checkout, &runtime, work)?;
    for (key, path) in parts {
        let path = path
            .to_str()
            .with_context(|| format!("{} is no text", path.display()))?
            .to_owned();
        command.arg("--part").arg(format!("{key}={path}"));
    }
    command.arg("--release").arg(out);
    process::output_of(&mut command).context("the parts make no release")?;
    Ok(())
}

/// Fails at the first file that is not in both folders with the same bytes.
fn same(one: &Path, two: &Path) -> Result<()> {
    let names = [names(one)?, names(two)?];
    if let Some(name) = names[0].symmetric_difference(&names[1]).next() {
        bail!("only one of the two builds has {name}");
    }
    for name in &names[0] {
        if !equal(&one.join(name), &two.join(name))? {
            bail!("{name} differs between the two builds");
        }
    }
    println!("    {} files, each the same in both builds", names[0].len());
    Ok(())
}

/// The files of a release directory.
fn names(release: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for (prefix, folder) in [
        ("", release.to_owned()),
        ("artifacts/", release.join("artifacts")),
    ] {
        let entries =
            std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.insert(format!("{prefix}{}", entry.file_name().to_string_lossy()));
            }
        }
    }
    Ok(names)
}

fn equal(one: &Path, two: &Path) -> Result<bool> {
    let open =
        |path: &Path| std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()));
    let (mut one, mut two) = (open(one)?, open(two)?);
    if one.metadata()?.len() != two.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let n = one.read(&mut left)?;
        if n == 0 {
            return Ok(true);
        }
        two.read_exact(&mut right[..n])?;
        if left[..n] != right[..n] {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_or_a_file_more_or_less_is_a_difference() {
        let temp = tempfile::tempdir().expect("a folder");
        let write = |release: &str, name: &str, bytes: &str| {
            let path = temp.path().join(release).join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            std::fs::write(path, bytes).expect("a file");
        };
        let both = || same(&temp.path().join("one"), &temp.path().join("two"));
        for release in ["one", "two"] {
            write(release, "manifest.json", "{}");
            write(release, "artifacts/node", "a program");
        }
        both().expect("the same");
        write("two", "artifacts/node", "a Program");
        assert!(
            both()
                .expect_err("other bytes")
                .to_string()
                .contains("artifacts/node")
        );
        write("two", "artifacts/node", "a program, longer");
        assert!(both().is_err());
        write("two", "artifacts/node", "a program");
        write("two", "artifacts/more", "");
        assert!(
            both()
                .expect_err("another file")
                .to_string()
                .contains("artifacts/more")
        );
    }
}
