//! The host's engine as an installer sees it: what it can do, and the installation's network in it.
//!
//! No call has a timeout of its own. Nothing here removes an image, a container or a volume.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use http::Method;
use serde::Deserialize;
use serde_json::json;

use crate::{
    engine::{Body, Engine, EngineError, Session, filters},
    provider::DockerSetup,
};

/// What an engine says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostEngine {
    /// The newest API it speaks.
    pub api: (u32, u32),
    pub is_rootless: bool,
    pub is_linux_amd64: bool,
    pub limits_memory: bool,
    pub limits_cpu: bool,
    pub cpus: u32,
    pub memory_bytes: u64,
    /// Where it keeps images and containers.
    pub data_root: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum HostEngineError {
    #[error("the Docker host must be unix:// and a path")]
    Host,
    /// Nobody listens at the socket, or it cannot be reached.
    #[error("the Docker Engine cannot be reached")]
    Unreachable(#[source] std::io::Error),
    #[error("the Docker Engine did not do what it was asked")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<EngineError> for HostEngineError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Unreachable { source, .. } => Self::Unreachable(source),
            error => Self::Engine(Box::new(error)),
        }
    }
}

async fn session(host: &str) -> Result<Session, HostEngineError> {
    let path = host.strip_prefix("unix://").ok_or(HostEngineError::Host)?;
    let engine: Arc<Engine> = Engine::new(path.as_ref(), DockerSetup::system_clock());
    Ok(engine.session().await?)
}

/// The engine behind `host` (`unix://…`).
pub async fn describe(host: &str) -> Result<HostEngine, HostEngineError> {
    let mut session = session(host).await?;
    let info = session.system().await?;
    let options = info.security_options.unwrap_or_default();
    Ok(HostEngine {
        api: session.api(),
        is_rootless: options.iter().any(|option| option.contains("rootless")),
        is_linux_amd64: info.os_type == "linux" && matches!(info.architecture.as_str(), "x86_64" | "amd64"),
        limits_memory: info.memory_limit,
        limits_cpu: info.cpu_cfs_quota,
        cpus: u32::try_from(info.cpus).unwrap_or(0),
        memory_bytes: u64::try_from(info.mem_total).unwrap_or(0),
        data_root: info.docker_root_dir.into(),
    })
}

/// The labels of the network `name`; `None` where the engine has none.
pub async fn network_labels(
    host: &str,
    name: &str,
) -> Result<Option<BTreeMap<String, String>>, HostEngineError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Network {
        name: String,
        #[serde(default)]
        labels: Option<BTreeMap<String, String>>,
    }
    let found: Option<Network> = session(host).await?.get(&format!("/networks/{name}")).await?;
    // The engine also takes the beginning of an id for a name.
    let found = found.filter(|network| network.name == name);
    Ok(found.map(|network| network.labels.unwrap_or_default()))
}

/// A bridge without traffic between its containers (providers.md section 6).
pub async fn create_network(host: &str, name: &str, label: (&str, &str)) -> Result<(), HostEngineError> {
    let body = json!({
        "Name": name,
        "Driver": "bridge",
        "CheckDuplicate": true,
        "Options": { "com.docker.network.bridge.enable_icc": "false" },
        "Labels": BTreeMap::from([label]),
    });
    let mut session = session(host).await?;
    Ok(session
        .act(Method::POST, "/networks/create", Some(Body::Json(body)))
        .await?)
}

/// Removes the network; one that is gone already is success. The engine frees the place of a removed container a moment
/// late and refuses until then.
pub async fn remove_network(host: &str, name: &str) -> Result<(), HostEngineError> {
    let removed = session(host)
        .await?
        .act(Method::DELETE, &format!("/networks/{name}"), None)
        .await;
    match removed {
        Err(error) if error.status() == Some(404) => Ok(()),
        removed => Ok(removed?),
    }
}

/// Whether any container, running or not, has the label.
pub async fn holds_containers(host: &str, (label, value): (&str, &str)) -> Result<bool, HostEngineError> {
    #[derive(Deserialize)]
    struct Listed {}
    let filters = filters(&json!({ "label": [format!("{label}={value}")] }));
    let listed: Option<Vec<Listed>> = session(host)
        .await?
        .get(&format!("/containers/json?all=true&limit=1&{filters}"))
        .await?;
    Ok(listed.is_some_and(|listed| !listed.is_empty()))
}
