//! What a sandbox container is made of, written once: the body that creates it and the comparison that verifies it.

use oac_model::{ImageDigest, Resources};
use serde::Deserialize;
use serde_json::json;

use crate::{
    inventory::Container,
    names::{Labels, Names},
};

const USER: &str = "1000:1000";
const WORKING_DIRECTORY: &str = "/environment/workspace";
const ENTRYPOINT: [&str; 3] = [
    "/usr/local/bin/oac-runtime",
    "--bootstrap-file",
    "/home/runtime/bootstrap.json",
];
const NO_NEW_PRIVILEGES: &str = "no-new-privileges";
const PIDS_LIMIT: i64 = 128;
const TMPFS_PATH: &str = "/tmp";
const TMPFS_OPTIONS: &str = "rw,nosuid,nodev,size=128m";
const RESTART_POLICY: &str = "unless-stopped";
/// An image with this label and value ships `/environment/{workspace,initialization,packages}`, 0700 and owned by
/// 1000:1000. The engine copies them into the new volume, owners and all (docs/decisions/0002).
const LAYOUT_LABEL: &str = "io.oac.layout";
const LAYOUT: &str = "1";
const NANOS_PER_CPU: i64 = 1_000_000_000;

/// The options that a generation fixes for all its containers.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) image: ImageDigest,
    pub(crate) network: String,
    pub(crate) resources: Resources,
    /// `seccomp=` and the profile's content; `None` while the profile cannot be read, and nothing can be made.
    pub(crate) seccomp: Option<String>,
}

/// The image as the engine resolved it. Its id is its content, so this never goes stale.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Image {
    pub(crate) id: String,
    #[serde(default)]
    config: Option<ImageConfig>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ImageConfig {
    #[serde(default)]
    env: Option<Vec<String>>,
    #[serde(default)]
    labels: Option<Labels>,
}

impl Image {
    /// Whether the image ships the directories of `/environment`, so that they need no upload.
    pub(crate) fn ships_environment(&self) -> bool {
        let labels = self.config.as_ref().and_then(|c| c.labels.as_ref());
        labels
            .and_then(|l| l.get(LAYOUT_LABEL))
            .is_some_and(|l| l == LAYOUT)
    }
}

impl Options {
    pub(crate) fn memory_bytes(&self) -> i64 {
        i64::try_from(self.resources.memory_mib << 20).unwrap_or(i64::MAX)
    }

    pub(crate) fn nano_cpus(&self) -> i64 {
        i64::from(self.resources.cpus) * NANOS_PER_CPU
    }

    /// The body of the engine's create call, with the profile of [`Self::seccomp`].
    pub(crate) fn body(&self, names: &Names, seccomp: &str) -> serde_json::Value {
        // With labels here too: a create that outlives its node finds the volumes removed by kill, and the engine makes
        // them anew. Without labels they would hold the names as somebody else's.
        let volume = |source: &str, target: &str| {
            json!({
                "Type": "volume", "Source": source, "Target": target,
                "VolumeOptions": {"Labels": names.label_map()},
            })
        };
        json!({
            "Image": self.image.to_string(),
            "User": USER,
            "WorkingDir": WORKING_DIRECTORY,
            "Entrypoint": ENTRYPOINT,
            "Labels": names.label_map(),
            "HostConfig": {
                "NetworkMode": self.network,
                "ReadonlyRootfs": true,
                "Privileged": false,
                "CapDrop": ["ALL"],
                "SecurityOpt": [NO_NEW_PRIVILEGES, seccomp],
                "PidsLimit": PIDS_LIMIT,
                "Memory": self.memory_bytes(),
                "MemorySwap": self.memory_bytes(),
                "NanoCpus": self.nano_cpus(),
                "Tmpfs": {TMPFS_PATH: TMPFS_OPTIONS},
                "Mounts": [volume(&names.home, "/home"), volume(&names.environment, "/environment")],
                "IpcMode": "private",
                "PublishAllPorts": false,
                "RestartPolicy": {"Name": RESTART_POLICY},
            },
        })
    }

    /// The options in which `container` differs from what this generation makes; empty when it is exactly that.
    pub(crate) fn mismatches(
        &self,
        container: &Container,
        image: &Image,
        names: &Names,
    ) -> Vec<&'static str> {
        let config = &container.config;
        let host = &container.host_config;
        let list = |l: &Option<Vec<String>>| l.clone().unwrap_or_default();
        let sorted = |mut l: Vec<String>| {
            l.sort();
            l
        };
        let mut mounts: Vec<_> = container
            .mounts
            .iter()
            .flatten()
            .map(|m| {
                (
                    m.destination.as_str(),
                    m.kind.as_str(),
                    m.name.as_str(),
                    m.writable,
                )
            })
            .filter(|m| m.0 != TMPFS_PATH || m.1 != "tmpfs")
            .collect();
        mounts.sort_unstable();
        let tmpfs: Vec<_> = host.tmpfs.iter().flatten().collect();
        let networks: Vec<_> = container.network_settings.networks.iter().flatten().collect();
        let image_env = image.config.as_ref().map(|c| list(&c.env)).unwrap_or_default();

        let checks = [
            ("image", container.image == image.id),
            ("user", config.user == USER),
            ("working directory", config.working_dir == WORKING_DIRECTORY),
            ("entrypoint", list(&config.entrypoint) == ENTRYPOINT),
            ("command", list(&config.cmd).is_empty()),
            ("environment", sorted(list(&config.env)) == sorted(image_env)),
            ("read-only root", host.readonly_rootfs),
            ("privileged", !host.privileged),
            ("dropped capabilities", list(&host.cap_drop) == ["ALL"]),
            ("added capabilities", list(&host.cap_add).is_empty()),
            (
                "security options",
                // Without the profile there is nothing to compare with; what is made without it is made nowhere.
                self.seccomp.as_ref().is_none_or(|seccomp| {
                    sorted(list(&host.security_opt))
                        == sorted(vec![NO_NEW_PRIVILEGES.to_owned(), seccomp.clone()])
                }),
            ),
            (
                "network",
                host.network_mode == self.network
                    && matches!(networks[..], [(name, _)] if *name == self.network),
            ),
            ("pids", host.pids_limit == Some(PIDS_LIMIT)),
            ("memory", host.memory == self.memory_bytes()),
            ("swap", host.memory_swap == self.memory_bytes()),
            ("cpus", host.nano_cpus == self.nano_cpus()),
            (
                "tmpfs",
                matches!(tmpfs[..], [(path, options)] if path == TMPFS_PATH && options == TMPFS_OPTIONS),
            ),
            (
                "volumes",
                mounts
                    == [
                        ("/environment", "volume", names.environment.as_str(), true),
                        ("/home", "volume", names.home.as_str(), true),
                    ],
            ),
            ("binds", list(&host.binds).is_empty()),
            ("volumes of others", list(&host.volumes_from).is_empty()),
            ("ipc namespace", host.ipc_mode == "private"),
            ("pid namespace", host.pid_mode.is_empty()),
            ("uts namespace", host.uts_mode.is_empty()),
            ("user namespace", host.userns_mode.is_empty()),
            ("groups", list(&host.group_add).is_empty()),
            ("links", list(&host.links).is_empty()),
            (
                "devices",
                host.devices.iter().flatten().next().is_none()
                    && host.device_requests.iter().flatten().next().is_none()
                    && list(&host.device_cgroup_rules).is_empty(),
            ),
            (
                "ports",
                !host.publish_all_ports && host.port_bindings.iter().flatten().next().is_none(),
            ),
            (
                "restart policy",
                host.restart_policy.name == RESTART_POLICY && !host.auto_remove,
            ),
        ];
        checks
            .into_iter()
            .filter_map(|(what, equal)| (!equal).then_some(what))
            .collect()
    }
}
