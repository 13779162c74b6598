//! Where things are on a host. A test gives another beginning for everything that is written.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use oac_model::{InstallationId, SourceCommit};

use crate::plan::service::unit_name;

/// Programs are looked for here and nowhere else.
pub const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

#[derive(Debug, Clone)]
pub struct Host {
    /// `/` but for tests.
    pub prefix: PathBuf,
    /// [`PATH`] but for tests.
    pub tools: OsString,
    pub docker_socket: PathBuf,
    pub kvm: PathBuf,
    /// The commit that this program was built from; `None` where it was built without a release.
    pub commit: Option<SourceCommit>,
}

impl Host {
    /// This machine.
    pub fn real(commit: Option<SourceCommit>) -> Self {
        Self {
            prefix: PathBuf::from("/"),
            tools: PATH.into(),
            docker_socket: "/var/run/docker.sock".into(),
            kvm: "/dev/kvm".into(),
            commit,
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.prefix.join(path)
    }

    pub fn lock(&self) -> PathBuf {
        self.at("run/oac-node.lock")
    }

    pub fn records(&self) -> PathBuf {
        self.at("etc/oac-node")
    }

    pub fn record_name(installation: InstallationId) -> String {
        format!("{installation}.json")
    }

    pub fn environment_name(installation: InstallationId) -> String {
        format!("{installation}.env")
    }

    pub fn units(&self) -> PathBuf {
        self.at("etc/systemd/system")
    }

    pub fn unit(&self, installation: InstallationId) -> PathBuf {
        self.units().join(unit_name(installation))
    }

    /// What makes the unit start with the host.
    pub fn wanted(&self, installation: InstallationId) -> PathBuf {
        let wanted = self.units().join("multi-user.target.wants");
        wanted.join(unit_name(installation))
    }

    pub fn systemd(&self) -> PathBuf {
        self.at("run/systemd/system")
    }

    pub fn selinux(&self) -> PathBuf {
        self.at("sys/fs/selinux/enforce")
    }

    pub fn loader(&self) -> PathBuf {
        self.at("lib64/ld-linux-x86-64.so.2")
    }

    /// The account's home.
    pub fn home(&self) -> PathBuf {
        self.at("var/lib/oac-node")
    }

    pub fn nodes(&self) -> PathBuf {
        self.home().join(".oac/nodes")
    }

    pub fn node_root(&self, installation: InstallationId) -> PathBuf {
        self.nodes().join(installation.to_string())
    }

    /// microsandbox stores.
    pub fn stores(&self) -> PathBuf {
        self.home().join(".oac/m")
    }

    /// As a node's configuration names the engine.
    pub fn docker(&self) -> String {
        format!("unix://{}", self.docker_socket.display())
    }

    pub fn network(installation: InstallationId) -> String {
        format!("oac-node-{installation}")
    }
}

/// `path`, or the nearest directory above it that exists.
pub fn nearest(path: &Path) -> &Path {
    let mut nearest = path;
    while !nearest.exists() {
        match nearest.parent() {
            Some(parent) => nearest = parent,
            None => break,
        }
    }
    nearest
}
