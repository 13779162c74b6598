//! The vendor's files of the microsandbox backend: `msb` and its firmware, out of the wheel on the Python package index,
//! pinned by version and SHA-256 (releases.md section 3). Nothing of it is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::checkout::forget;
use crate::process;

/// What `pip` takes: the version and the wheel's SHA-256.
const REQUIREMENT: &str = "microsandbox==0.7.11 \
    --hash=sha256:65f1e4bbf8d721c9f7f557329fb6c8cf41f554c1c6942eac8b941198fa283fe0\n";
const RELEASE: &str = "microsandbox-0.7.11";
/// Follows the firmware's name.
pub(crate) const FIRMWARE_VERSION: &str = "5.6.1";

/// The two files.
#[derive(Debug, Clone)]
pub(crate) struct Vendor {
    pub(crate) msb: PathBuf,
    pub(crate) firmware: PathBuf,
}

/// The files from the cache, fetched first where it lacks them.
pub(crate) fn ensure_vendor() -> Result<Vendor> {
    super::packages::ensure_packages(&[super::packages::VENDOR])?;
    let vendor = super::cache()?.join("vendor");
    let folder = vendor.join(RELEASE);
    let bundled = folder.join("microsandbox/_bundled");
    let files = Vendor {
        msb: bundled.join("bin/msb"),
        firmware: bundled
            .join("lib")
            .join(format!("libkrunfw.so.{FIRMWARE_VERSION}")),
    };
    if !folder.exists() {
        println!(
            "    fetching {RELEASE} (48 MB) into {}: msb and its firmware are the vendor's",
            vendor.display()
        );
        let partial = vendor.join(format!(".{RELEASE}.{}.partial", std::process::id()));
        let fetched = fetch(&partial).and_then(|()| {
            std::fs::rename(&partial, &folder).with_context(|| format!("cannot write {}", folder.display()))
        });
        if fetched.is_err() {
            let _ = forget(&partial);
        }
        fetched?;
    }
    for file in [&files.msb, &files.firmware] {
        if !file.is_file() {
            bail!(
                "{} is missing: remove {} and run this again",
                file.display(),
                folder.display()
            );
        }
    }
    Ok(files)
}

/// Unpacks the wheel into `folder`. `pip` refuses one with another digest.
fn fetch(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let requirement = folder.join("requirement.txt");
    std::fs::write(&requirement, REQUIREMENT)?;
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--require-hashes",
    ]);
    // The one wheel, whatever python this is.
    pip.args(["--only-binary", ":all:", "--platform", "manylinux_2_28_x86_64"]);
    pip.args([
        "--implementation",
        "cp",
        "--abi",
        "abi3",
        "--python-version",
        "3.12",
    ]);
    pip.arg("--dest")
        .arg(folder)
        .arg("--requirement")
        .arg(&requirement);
    process::capture(&mut pip).context("the wheel cannot be fetched: check the network")?;
    let entries = std::fs::read_dir(folder)?;
    let wheel = entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "whl"))
        .context("pip brought no wheel")?;
    let mut unzip = Command::new("python3");
    unzip.args(["-m", "zipfile", "--extract"]).arg(&wheel).arg(folder);
    process::capture(&mut unzip).context("the wheel cannot be unpacked")?;
    std::fs::remove_file(&wheel)?;
    // A zip archive unpacked this way has no modes.
    process::capture(
        Command::new("chmod")
            .arg("0755")
            .arg(folder.join("microsandbox/_bundled/bin/msb")),
    )?;
    Ok(())
}
