//! The root file system of test hosts: Debian packages, built once, shared by every host and never written to.

use std::path::{Path, PathBuf};

use oac_model::Digest;
use oac_release::image::{BaseError, Form, debian};

/// Names the folder of the root; `cargo xtask test` sets it.
pub const VARIABLE: &str = "OAC_TEST_HOST_ROOT";

/// What hosts have: an operator's shells and tools, an engine, and a service manager.
const PACKAGES: &[&str] = &[
    "busybox-static",
    "ca-certificates",
    "curl",
    "dbus",
    "docker.io",
    "fish",
    "iproute2",
    "iptables",
    "libpam-systemd",
    "procps",
    "sudo",
    "systemd",
    "systemd-sysv",
    "util-linux",
    "zsh",
];
const INIT: &str = include_str!("init.sh");
/// Each host makes an identity of its own, and pays no timer of the distribution.
const HOOK: &str = r#"install -m 0755 "$OAC_TEST_HOST_INIT" "$1/sbin/test-host-init" &&
: >"$1/etc/machine-id" && rm -f "$1/var/lib/dbus/machine-id" "$1/etc/resolv.conf" &&
mkdir -p "$1/var/log/journal" &&
for timer in apt-daily apt-daily-upgrade dpkg-db-backup e2scrub_all fstrim; do
    ln -sf /dev/null "$1/etc/systemd/system/$timer.timer"
done"#;

#[derive(Debug, thiserror::Error)]
pub enum RootError {
    #[error("cannot use {path}", path = path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the root of test hosts cannot be built")]
    Build(#[source] BaseError),
}

/// The root in `cache`, built first (two minutes, 500 MB) if it is not there; its name changes with all that shapes it.
/// Needs root.
pub fn ensure(cache: &Path) -> Result<PathBuf, RootError> {
    let file = |path: &Path| {
        let path = path.to_owned();
        move |source| RootError::File { path, source }
    };
    let packages = PACKAGES.join(",");
    let shape = Digest::of([packages.as_str(), INIT, HOOK].join("\n")).to_string();
    let root = cache.join(format!("root-{}", &shape[..16]));
    if root.exists() {
        return Ok(root);
    }
    std::fs::create_dir_all(cache).map_err(file(cache))?;
    let partial = cache.join(format!("root-{}.{}.partial", &shape[..16], std::process::id()));
    let init = cache.join(format!("init.{}", std::process::id()));
    std::fs::write(&init, INIT).map_err(file(&init))?;
    let hook = format!("OAC_TEST_HOST_INIT='{}'\n{HOOK}", init.display());
    let built = debian(&packages, Form::Folder, &hook, &partial).map_err(RootError::Build);
    let _ = std::fs::remove_file(&init);
    if let Err(error) = built {
        let _ = std::fs::remove_dir_all(&partial);
        return Err(error);
    }
    std::fs::rename(&partial, &root).map_err(file(&root))?;
    Ok(root)
}
