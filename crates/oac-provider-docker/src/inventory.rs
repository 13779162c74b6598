//! Everything the engine holds of one reference, by derived name and by labels.

use std::collections::HashMap;

use serde::Deserialize;

use crate::{
    engine::{EngineError, Session, filters},
    names::{Labels, Names},
};

/// One container as `inspect` shows it, as far as verification and answers need it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) image: String,
    pub(crate) state: ContainerState,
    pub(crate) config: ContainerConfig,
    #[serde(default)]
    pub(crate) host_config: HostConfig,
    #[serde(default)]
    pub(crate) mounts: Option<Vec<Mount>>,
    #[serde(default)]
    pub(crate) network_settings: NetworkSettings,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ContainerState {
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) started_at: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ContainerConfig {
    #[serde(default)]
    pub(crate) user: String,
    #[serde(default)]
    pub(crate) env: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) cmd: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) entrypoint: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) working_dir: String,
    #[serde(default)]
    pub(crate) labels: Option<Labels>,
}

/// The options that matter; the engine writes null for most empty lists.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct HostConfig {
    pub(crate) network_mode: String,
    pub(crate) readonly_rootfs: bool,
    pub(crate) privileged: bool,
    pub(crate) publish_all_ports: bool,
    pub(crate) cap_add: Option<Vec<String>>,
    pub(crate) cap_drop: Option<Vec<String>>,
    pub(crate) security_opt: Option<Vec<String>>,
    pub(crate) pids_limit: Option<i64>,
    pub(crate) memory: i64,
    pub(crate) memory_swap: i64,
    pub(crate) nano_cpus: i64,
    pub(crate) tmpfs: Option<HashMap<String, String>>,
    pub(crate) ipc_mode: String,
    pub(crate) pid_mode: String,
    #[serde(rename = "UTSMode")]
    pub(crate) uts_mode: String,
    pub(crate) userns_mode: String,
    pub(crate) restart_policy: RestartPolicy,
    pub(crate) binds: Option<Vec<String>>,
    pub(crate) volumes_from: Option<Vec<String>>,
    pub(crate) devices: Option<Vec<serde_json::Value>>,
    pub(crate) device_requests: Option<Vec<serde_json::Value>>,
    pub(crate) device_cgroup_rules: Option<Vec<String>>,
    pub(crate) port_bindings: Option<HashMap<String, serde_json::Value>>,
    pub(crate) group_add: Option<Vec<String>>,
    pub(crate) links: Option<Vec<String>>,
    pub(crate) auto_remove: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct RestartPolicy {
    pub(crate) name: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Mount {
    #[serde(rename = "Type", default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) destination: String,
    #[serde(rename = "RW", default)]
    pub(crate) writable: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct NetworkSettings {
    pub(crate) networks: Option<HashMap<String, serde_json::Value>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Volume {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) labels: Option<Labels>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Listed {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) labels: Option<Labels>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct VolumeList {
    pub(crate) volumes: Option<Vec<Volume>>,
    /// Volumes that a driver could not tell of: the listing is not complete.
    pub(crate) warnings: Option<Vec<String>>,
}

impl Container {
    /// Docker states other than `exited` and `dead` are live.
    pub(crate) fn is_live(&self) -> bool {
        !matches!(self.state.status.as_str(), "exited" | "dead")
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state.status == "running"
    }

    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.name.strip_prefix('/').unwrap_or(&self.name) == name
    }

    pub(crate) fn labels(&self) -> Labels {
        self.config.labels.clone().unwrap_or_default()
    }
}

/// All that exists of one reference, every piece of it owned.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    pub(crate) containers: Vec<Container>,
    pub(crate) volumes: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum InventoryError {
    /// Nothing may be concluded (INV-V5).
    #[error("the inventory of the reference is incomplete")]
    Failed(#[from] EngineError),
    #[error("the volume listing is incomplete: {0}")]
    Partial(String),
    #[error("{0} holds a name of this reference but not its labels")]
    Foreign(String),
}

impl Inventory {
    pub(crate) fn is_empty(&self) -> bool {
        self.containers.is_empty() && self.volumes.is_empty()
    }

    /// By name and by labels; any failure fails the whole.
    pub(crate) async fn take(session: &mut Session, names: &Names) -> Result<Self, InventoryError> {
        let filter = filters(&names.filter());
        let mut inventory = Self::default();

        let path = format!("/containers/json?all=true&{filter}");
        let listed: Vec<Listed> = session.get(&path).await?.ok_or_else(|| vanished(&path))?;
        let mut wanted = vec![names.container.clone()];
        wanted.extend(listed.into_iter().map(|l| l.id));
        for key in wanted {
            let known = inventory.containers.iter().any(|c| c.id == key);
            if known {
                continue;
            }
            let path = format!("/containers/{key}/json");
            let Some(container) = session.get::<Container>(&path).await? else {
                continue;
            };
            // The engine also finds a container by a prefix of its id; only the name counts.
            let named = container.has_name(&names.container);
            if !names.own(&container.labels()) {
                if named {
                    return Err(InventoryError::Foreign(names.container.clone()));
                }
                continue;
            }
            inventory.containers.push(container);
        }

        let path = format!("/volumes?{filter}");
        let listed: VolumeList = session.get(&path).await?.ok_or_else(|| vanished(&path))?;
        if let Some(warning) = listed.warnings.unwrap_or_default().first() {
            return Err(InventoryError::Partial(warning.clone()));
        }
        inventory
            .volumes
            .extend(listed.volumes.unwrap_or_default().into_iter().map(|v| v.name));
        for name in [&names.home, &names.environment] {
            if inventory.volumes.contains(name) {
                continue;
            }
            let Some(volume) = session.get::<Volume>(&format!("/volumes/{name}")).await? else {
                continue;
            };
            if !names.own(&volume.labels.unwrap_or_default()) {
                return Err(InventoryError::Foreign(name.clone()));
            }
            inventory.volumes.push(volume.name);
        }
        Ok(inventory)
    }
}

/// A listing never answers 404; an engine that does is not believed.
fn vanished(path: &str) -> InventoryError {
    InventoryError::Failed(EngineError::Refused {
        call: path.split('?').next().unwrap_or_default().to_owned(),
        status: 404,
        message: "no listing".into(),
    })
}
