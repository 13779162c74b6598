//! The base of a Runtime image: a root file system of Debian packages, built reproducibly by mmdebstrap.
//!
//! Suite, keyring and package list are fixed; the mirror is the host's own. A built base is kept in the cache under a
//! name that changes with everything that shapes it, so a stale one is never taken. The hosts of tests are built
//! likewise.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::Command,
};

use oac_model::Digest;

use super::Variant;

const SUITE: &str = "bookworm";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Newer times in the base are set back to this one: 2026-01-01, so that a base outlives commits.
const BASE_EPOCH: &str = "1767225600";
/// Documentation and translations that no sandbox reads.
const EXCLUDED: &[&str] = &[
    "/usr/share/man/*",
    "/usr/share/doc/*",
    "/usr/share/locale/*",
    "/usr/share/info/*",
];
/// Run on the finished root file system: caches that differ from build to build go, and no program keeps the right to
/// change who it runs as (a sandbox never gains privileges, so it would be of no use there).
const CLEAN: &str = r#"rm -rf "$1/var/cache/ldconfig/aux-cache" "$1/var/cache/debconf" "$1/var/log" &&
mkdir -m 0755 "$1/var/log" &&
find "$1" -xdev -type f -perm /6000 -exec chmod ug-s {} +"#;

#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    #[error("cannot use the folder {path}", path = path.display())]
    Folder {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot start mmdebstrap: install the package mmdebstrap")]
    NoBuilder(#[source] std::io::Error),
    #[error("{KEYRING} is missing: install the package debian-archive-keyring")]
    NoKeyring,
    #[error("mmdebstrap failed; its last lines:\n{0}")]
    Failed(String),
}

/// The cached base of an image, built first if the cache lacks it.
pub fn ensure_base(variant: Variant, cache: &Path) -> Result<PathBuf, BaseError> {
    let folder = |source| BaseError::Folder {
        path: cache.to_owned(),
        source,
    };
    fs::create_dir_all(cache).map_err(folder)?;
    let packages = variant.packages().join(",");
    let shape = [SUITE, BASE_EPOCH, CLEAN, &packages, &EXCLUDED.join(",")].join("\n");
    let name = format!("{variant}-{}", &Digest::of(shape).to_string()[..16]);
    let finished = cache.join(format!("{name}.tar"));
    if finished.exists() {
        return Ok(finished);
    }
    let partial = cache.join(format!("{name}.{}.partial.tar", std::process::id()));
    if let Err(error) = debian(&packages, Form::Tar, CLEAN, &partial) {
        let _ = fs::remove_file(&partial);
        return Err(error);
    }
    fs::rename(&partial, &finished).map_err(folder)?;
    Ok(finished)
}

/// What a root file system is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Tar,
    /// A folder, by root alone.
    Folder,
}

/// Builds a root file system of Debian's essential packages and `packages` (their names, separated by commas) into
/// `target`. `hook` is a shell script that is run on the finished root, which is its `$1`.
pub fn debian(packages: &str, form: Form, hook: &str, target: &Path) -> Result<(), BaseError> {
    if !Path::new(KEYRING).exists() {
        return Err(BaseError::NoKeyring);
    }
    let mut command = Command::new("mmdebstrap");
    command
        .env("SOURCE_DATE_EPOCH", BASE_EPOCH)
        .args(match form {
            Form::Tar => ["--mode=auto", "--format=tar"],
            Form::Folder => ["--mode=root", "--format=directory"],
        })
        .args(["--variant=essential", "--architectures=amd64"])
        .arg(format!("--include={packages}"))
        .args(
            EXCLUDED
                .iter()
                .map(|path| format!("--dpkgopt=path-exclude={path}")),
        )
        // A root that was cut off is thrown away, so dpkg need not wait for the disk.
        .arg("--dpkgopt=force-unsafe-io")
        .arg(format!("--customize-hook={hook}"))
        .arg(format!("--keyring={KEYRING}"))
        .arg(SUITE)
        .arg(target);
    // Without one, as on Ubuntu, mmdebstrap goes to Debian's own.
    if let Some(mirror) = mirror() {
        command.arg(format!("deb [signed-by={KEYRING}] {mirror} {SUITE} main"));
    }
    let output = command.output().map_err(BaseError::NoBuilder)?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    Err(BaseError::Failed(
        lines[lines.len().saturating_sub(15)..].join("\n"),
    ))
}

/// The Debian mirror this host uses, if it uses one.
fn mirror() -> Option<String> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(entries) = fs::read_dir("/etc/apt/sources.list.d") {
        files.extend(entries.flatten().map(|e| e.path()));
    }
    files.sort();
    let texts = files.iter().filter_map(|file| fs::read_to_string(file).ok());
    texts.filter_map(|text| mirror_in(&text)).next()
}

/// The first address of a Debian archive (not of its security updates) in an apt source file of either form.
fn mirror_in(text: &str) -> Option<String> {
    text.lines()
        .map(str::trim)
        .filter(|line| line.starts_with("deb ") || line.to_ascii_lowercase().starts_with("uris:"))
        .flat_map(str::split_whitespace)
        .find(|word| {
            let plain = word.trim_end_matches('/');
            (word.starts_with("http://") || word.starts_with("https://")) && plain.ends_with("/debian")
        })
        .map(|word| word.trim_end_matches('/').to_owned())
}

/// `name=version` of every package in a base, sorted: `packages.lock` (releases.md section 3).
pub(crate) fn packages_in(base: &Path) -> std::io::Result<Vec<String>> {
    let mut archive = tar::Archive::new(fs::File::open(base)?);
    for entry in archive.entries()? {
        let mut entry = entry?;
        if entry
            .path()?
            .strip_prefix("./")
            .is_ok_and(|p| p == Path::new("var/lib/dpkg/status"))
        {
            let mut text = String::new();
            entry.read_to_string(&mut text)?;
            return Ok(packages_of(&text));
        }
    }
    Ok(Vec::new())
}

fn packages_of(status: &str) -> Vec<String> {
    let field = |block: &str, name: &str| {
        block
            .lines()
            .find_map(|l| l.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned))
    };
    let mut packages: Vec<String> = status
        .split("\n\n")
        .filter_map(|block| {
            Some(format!(
                "{}={}",
                field(block, "Package")?,
                field(block, "Version")?
            ))
        })
        .collect();
    packages.sort();
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_hosts_own_in_either_form_of_source_file() {
        let new = "Types: deb\n# http://snapshot.example/archive/debian/2025\nURIs: http://mirror.example/debian/\nSuites: x\n";
        assert_eq!(mirror_in(new).as_deref(), Some("http://mirror.example/debian"));
        let old = "deb http://mirror.example/debian-security x main\ndeb [arch=amd64] https://a.example/debian x main\n";
        assert_eq!(mirror_in(old).as_deref(), Some("https://a.example/debian"));
        assert_eq!(mirror_in("deb http://archive.example/ubuntu noble main\n"), None);
    }

    #[test]
    fn packages_are_read_with_their_versions() {
        let status = "Package: b\nStatus: install ok installed\nVersion: 2-1\n\nPackage: a\nVersion: 1:3\nDepends: b\n\n";
        assert_eq!(packages_of(status), ["a=1:3", "b=2-1"]);
    }
}
