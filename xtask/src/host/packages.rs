//! Distribution packages: which are missing and why they are needed is said before any is installed.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::process;

/// A Debian package and the file or program that shows it is not needed, however it came here.
pub(crate) struct Need {
    pub(crate) package: &'static str,
    pub(crate) why: &'static str,
    pub(crate) present: fn() -> bool,
    /// Looked at when the others are installed: some releases bring it with one of them, and have no package of that name.
    pub(crate) afterwards: bool,
}

pub(crate) const DOCKER: &[Need] = &[
    Need {
        package: "docker.io",
        why: "sandboxes are containers of a Docker Engine",
        present: || found("dockerd"),
        afterwards: false,
    },
    Need {
        package: "docker-cli",
        why: "images are loaded into the Docker Engine with its program `docker`",
        present: || found("docker"),
        afterwards: true,
    },
    Need {
        package: "iptables",
        why: "the Docker Engine sets up its networks with it",
        present: || found("iptables"),
        afterwards: false,
    },
];

pub(crate) const OWN_ENGINE: &[Need] = &[Need {
    package: "iproute2",
    why: "an engine that a test may kill gets a bridge of its own",
    present: || found("ip"),
    afterwards: false,
}];

pub(crate) const POSTGRES: &[Need] = &[Need {
    package: "postgresql",
    why: "Core's storage is tested on SQLite and on PostgreSQL",
    present: || super::postgres::programs().is_some(),
    afterwards: false,
}];

pub(crate) const IMAGE: &[Need] = &[
    Need {
        package: "mmdebstrap",
        why: "the Runtime image is built from Debian packages",
        present: || found("mmdebstrap"),
        afterwards: false,
    },
    Need {
        package: "debian-archive-keyring",
        why: "the packages of the Runtime image are checked with it",
        present: || Path::new("/usr/share/keyrings/debian-archive-keyring.gpg").exists(),
        afterwards: false,
    },
    Need {
        package: "uidmap",
        why: "an account that is not root builds the Runtime image in a user namespace",
        present: || process::is_root() || found("newuidmap"),
        afterwards: false,
    },
];

pub(crate) const HOSTS: &[Need] = &[
    Need {
        package: "systemd-container",
        why: "hosts with a service manager of their own are booted by systemd-nspawn",
        present: || found("systemd-nspawn"),
        afterwards: false,
    },
    Need {
        package: "shellcheck",
        why: "the script of the commands that operators paste is checked with it",
        present: || found("shellcheck"),
        afterwards: false,
    },
];

pub(crate) const VENDOR: &[Need] = &[Need {
    package: "python3-pip",
    why: "the vendor's files of microsandbox come in a Python wheel",
    present: || process::succeeds(std::process::Command::new("python3").args(["-m", "pip", "--version"])),
    afterwards: false,
}];

pub(crate) const CONTAINERD: &[Need] = &[Need {
    package: "containerd",
    why: "the Runtime image is loaded into a containerd of the test's own",
    present: || found("containerd") && found("ctr"),
    afterwards: false,
}];

pub(crate) const BENCH: &[Need] = &[Need {
    package: "curl",
    why: "downloads are measured against it",
    present: || found("curl"),
    afterwards: false,
}];

pub(crate) const BROWSER: &[Need] = &[Need {
    package: "chromium",
    why: "the console is tested in a browser",
    present: || found("chromium"),
    afterwards: false,
}];

fn found(program: &str) -> bool {
    process::which(program).is_some()
}

/// Installs what is missing of `needs`, after saying what and why. Installed packages stay.
pub(crate) fn ensure_packages(needs: &[&[Need]]) -> Result<()> {
    for afterwards in [false, true] {
        let needs = needs.iter().flat_map(|list| list.iter());
        install(needs.filter(|need| need.afterwards == afterwards))?;
    }
    Ok(())
}

fn install<'a>(needs: impl Iterator<Item = &'a Need>) -> Result<()> {
    let missing: Vec<&Need> = needs.filter(|need| !(need.present)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for need in &missing {
        println!("    missing: Debian package {}: {}", need.package, need.why);
    }
    let names: Vec<&str> = missing.iter().map(|need| need.package).collect();
    if !Path::new("/etc/debian_version").exists() || process::which("apt-get").is_none() {
        bail!(
            "this is not Debian or Ubuntu: install what corresponds to {} and run this again",
            names.join(", ")
        );
    }
    println!(
        "    installing {} with apt-get; they stay installed",
        names.join(", ")
    );
    quietly(&mut apt("update")?)
        .context("apt-get cannot fetch the package lists: check the network and /etc/apt")?;
    let cluster = names
        .contains(&"postgresql")
        .then(NoDefaultCluster::set)
        .transpose()?;
    let mut install = apt("install")?;
    install.args(["--yes", "--no-install-recommends"]).args(&names);
    let result = quietly(&mut install);
    drop(cluster);
    result.with_context(|| {
        format!(
            "cannot install {}: run `apt-get install {}` to see why",
            names.join(", "),
            names.join(" ")
        )
    })?;
    if let Some(need) = missing.iter().find(|need| !(need.present)()) {
        bail!(
            "package {} is installed but what it should bring is not there",
            need.package
        );
    }
    Ok(())
}

/// What apt-get says is of interest only when it fails.
fn quietly(command: &mut Command) -> Result<()> {
    let output = process::output(command)?;
    if !output.success {
        print!("{}", output.text);
        bail!("apt-get failed");
    }
    Ok(())
}

/// `sudo` empties the environment, so the setting travels as an argument of `env`.
fn apt(action: &str) -> Result<Command> {
    let mut command = process::as_root("env")?;
    command.args([
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "--quiet=2",
        "-o",
        "Dpkg::Use-Pty=0",
        action,
    ]);
    Ok(command)
}

/// Debian's PostgreSQL package creates and starts a server of its own when it is installed. This project needs only
/// the programs, so for the time of the installation a drop-in tells the package not to.
struct NoDefaultCluster;

const CLUSTER_DROP_IN: &str = "/etc/postgresql-common/createcluster.d/oac-xtask.conf";

impl NoDefaultCluster {
    fn set() -> Result<Self> {
        let script = format!(
            "mkdir -p /etc/postgresql-common/createcluster.d && echo 'create_main_cluster = false' > {CLUSTER_DROP_IN}"
        );
        process::run(process::as_root("sh")?.args(["-c", &script]))
            .context("cannot prepare the installation of PostgreSQL")?;
        Ok(Self)
    }
}

impl Drop for NoDefaultCluster {
    fn drop(&mut self) {
        if let Ok(mut remove) = process::as_root("rm") {
            let _ = remove.args(["-f", CLUSTER_DROP_IN]).status();
        }
    }
}
