//! A copy of this project's files and where it is built: this checkout, or another one, to see that both give the same.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use crate::process;
use crate::workspace::{self, Metadata};

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Compiles in a third of the time what need not be fast.
const QUICK: &[(&str, &str)] = &[
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
];

/// Files of one commit.
#[derive(Debug, Clone)]
pub(crate) struct Checkout {
    root: PathBuf,
    /// Where cargo builds.
    target: PathBuf,
    /// Where cargo keeps the sources of dependencies.
    cargo_home: PathBuf,
    /// 40 hex digits; zeros in an unpacked source archive, which says nothing of its commit.
    pub(crate) commit: String,
    /// The commit's time in seconds since 1970.
    pub(crate) created: String,
    /// What differs from the release profile, as cargo reads it from the environment.
    profile: &'static [(&'static str, &'static str)],
}

impl Checkout {
    /// This one.
    pub(crate) fn own(metadata: &Metadata) -> Result<Self> {
        let (commit, created) = commit()?;
        Ok(Self {
            root: workspace::root().to_owned(),
            target: metadata.target_directory.clone(),
            cargo_home: cargo_home()?,
            commit,
            created,
            profile: &[],
        })
    }

    /// This one for tests: the files as they are, committed or not, which a digest of them names in a commit's place, and
    /// programs that are compiled quickly.
    pub(crate) fn trial(self) -> Result<Self> {
        let mut digest = Sha256::new();
        for file in workspace::files(&self.root)? {
            let bytes = std::fs::read(self.root.join(&file))
                .with_context(|| format!("cannot read {}", file.display()))?;
            digest.update(file.as_os_str().as_encoded_bytes());
            digest.update([0]);
            digest.update(Sha256::digest(&bytes));
        }
        let mut name: String = digest
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        name.truncate(40);
        Ok(Self {
            commit: name,
            profile: QUICK,
            ..self
        })
    }

    /// The same files in another place, to be built from nothing, with dependencies in another place as well. `folder`
    /// is replaced.
    pub(crate) fn elsewhere(&self, folder: &Path) -> Result<Self> {
        forget(folder)?;
        let root = folder.join("checkout");
        for file in workspace::files(&self.root)? {
            let to = root.join(&file);
            let parent = to.parent().unwrap_or(&root);
            std::fs::create_dir_all(parent)
                .and_then(|()| std::fs::copy(self.root.join(&file), &to))
                .with_context(|| format!("cannot copy {} to {}", file.display(), root.display()))?;
        }
        // Another name for the same sources: cargo and the compiler know them by the path that they are given.
        let cargo_home = folder.join("cargo");
        std::fs::create_dir_all(&cargo_home)?;
        for entry in std::fs::read_dir(&self.cargo_home).into_iter().flatten() {
            let entry = entry?;
            std::os::unix::fs::symlink(entry.path(), cargo_home.join(entry.file_name()))?;
        }
        Ok(Self {
            root,
            target: folder.join("target"),
            cargo_home,
            ..self.clone()
        })
    }

    /// Builds the program `name` of `package` so that it runs without libraries: with glibc's own static ones.
    pub(crate) fn build_static(&self, package: &str, name: &str) -> Result<PathBuf> {
        let flags = [
            "-Ctarget-feature=+crt-static",
            "--cfg",
            "getrandom_backend=\"linux_getrandom\"",
        ];
        self.build(package, name, &flags)
    }

    /// Builds the program `name` of `package` against glibc, for what loads libraries.
    pub(crate) fn build_dynamic(&self, package: &str, name: &str) -> Result<PathBuf> {
        self.build(package, name, &[])
    }

    /// Builds a program that has the same bytes wherever and whenever it is built: no path of this machine is in it. The
    /// explicit target keeps the flags away from build scripts.
    fn build(&self, package: &str, name: &str, flags: &[&str]) -> Result<PathBuf> {
        let remapped = self.remapped()?;
        let mut flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        flags.extend(
            remapped
                .iter()
                .map(|(from, to)| format!("--remap-path-prefix={from}={to}")),
        );
        let compiler = remapped
            .iter()
            .map(|(from, to)| format!("-ffile-prefix-map={from}={to}"));
        let mut build = process::cargo_build();
        build.current_dir(&self.root);
        build.args(["--locked", "--release", "--target", TRIPLE]);
        build.args(["-p", package, "--bin", name]);
        // Before whatever else may name flags; a path may hold a space, so they are not parted by spaces.
        build.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
        build.env("CARGO_TARGET_DIR", &self.target);
        build.env("CARGO_HOME", &self.cargo_home);
        build.envs(self.profile.iter().copied());
        let compiler: Vec<String> = compiler.collect();
        build.env(format!("CFLAGS_{}", TRIPLE.replace('-', "_")), compiler.join(" "));
        build.env("SOURCE_DATE_EPOCH", &self.created);
        build.env("OAC_SOURCE_COMMIT", &self.commit);
        process::run(&mut build).with_context(|| format!("{name} does not build for a release"))?;
        Ok(self.target.join(TRIPLE).join("release").join(name))
    }

    /// What of this machine's paths a program could hold, and what stands for it.
    fn remapped(&self) -> Result<[(String, &'static str); 3]> {
        let text = |path: &Path| {
            let text = path.to_str().map(str::to_owned);
            text.with_context(|| format!("{} is no text", path.display()))
        };
        // A later one goes before an earlier one: where cargo builds is often below the root.
        Ok([
            (text(&self.cargo_home)?, "/cargo"),
            (text(&self.root)?, "/oac"),
            (text(&self.target)?, "/target"),
        ])
    }

    /// What differs from the commit, one line each; an error where no commit is known.
    pub(crate) fn changes(&self) -> Result<Vec<String>> {
        if !self.root.join(".git").exists() {
            anyhow::bail!("this is no clone, so that nothing says which commit it is of");
        }
        let mut git = git();
        git.args(["status", "--porcelain"]);
        let text = process::capture(&mut git).context("the checkout's changes are unknown")?;
        Ok(text.lines().map(str::to_owned).collect())
    }
}

/// Removes a folder and all below it; a missing one is success.
pub(crate) fn forget(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Where cargo keeps the sources of dependencies.
fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    let home = std::env::var_os("HOME").context("HOME is not set: it says where cargo keeps sources")?;
    Ok(PathBuf::from(home).join(".cargo"))
}

/// git in this checkout, which may belong to another account than the one that runs this, root in a container for one.
fn git() -> Command {
    let root = workspace::root();
    let mut git = Command::new("git");
    git.arg("-c")
        .arg(format!("safe.directory={}", root.display()))
        .current_dir(root);
    git
}

/// The checkout's commit and its time; an unpacked source archive has neither and says so with zeros.
fn commit() -> Result<(String, String)> {
    if !workspace::root().join(".git").exists() {
        return Ok(("0".repeat(40), "0".to_owned()));
    }
    let mut git = git();
    git.args(["show", "--no-patch", "--format=%H %ct", "HEAD"]);
    let text = process::capture(&mut git).context("the checkout's commit is unknown")?;
    let (commit, created) = text
        .trim()
        .split_once(' ')
        .context("the checkout's commit is unknown")?;
    Ok((commit.to_owned(), created.to_owned()))
}
