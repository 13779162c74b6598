//! A real Docker Engine as tests and the demo see it: what the installer would do to it, and what must be gone again.

use std::{
    collections::HashMap,
    net::IpAddr,
    path::{Path, PathBuf},
};

use bollard::{
    Docker,
    models::{ContainerCreateBody, HostConfig, NetworkCreateRequest},
    query_parameters::{
        CreateContainerOptions, ListContainersOptions, ListNetworksOptions, ListVolumesOptions, LogsOptions,
        RemoveContainerOptions, RemoveImageOptions, RemoveVolumeOptions, WaitContainerOptions,
    },
};
use futures_util::StreamExt;
use oac_model::InstallationId;

/// The engine's usual socket.
pub const SOCKET: &str = "/var/run/docker.sock";
const LABEL: &str = "io.oac.installation";

/// A connection to one engine.
#[derive(Clone)]
pub struct Engine {
    docker: Docker,
    socket: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("cannot reach the Docker Engine at {socket}: is it running?", socket = socket.display())]
    Unreachable {
        socket: PathBuf,
        #[source]
        source: bollard::errors::Error,
    },
    #[error("the Docker Engine refused to {what}")]
    Refused {
        what: &'static str,
        #[source]
        source: bollard::errors::Error,
    },
    #[error("the engine's default bridge has no gateway address")]
    NoGateway,
}

fn refused(what: &'static str) -> impl FnOnce(bollard::errors::Error) -> EngineError {
    move |source| EngineError::Refused { what, source }
}

/// The first host of an IPv4 subnet such as `172.17.0.0/16`.
fn first_host(subnet: &str) -> Option<IpAddr> {
    let network: std::net::Ipv4Addr = subnet.split_once('/')?.0.parse().ok()?;
    Some(IpAddr::V4(std::net::Ipv4Addr::from_bits(
        network.to_bits().checked_add(1)?,
    )))
}

/// What of an installation is left in an engine.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    pub containers: Vec<String>,
    pub volumes: Vec<String>,
    pub networks: Vec<String>,
}

impl Leftovers {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// 30 s in all.
const NETWORK_TRIES: u32 = 150;

impl Engine {
    pub async fn connect(socket: &Path) -> Result<Self, EngineError> {
        let unreachable = |source| EngineError::Unreachable {
            socket: socket.to_owned(),
            source,
        };
        let text = socket.to_string_lossy();
        let docker =
            Docker::connect_with_unix(&text, 120, bollard::API_DEFAULT_VERSION).map_err(unreachable)?;
        let docker = docker.negotiate_version().await.map_err(unreachable)?;
        docker.ping().await.map_err(unreachable)?;
        Ok(Self {
            docker,
            socket: socket.to_owned(),
        })
    }

    /// The engine that `cargo xtask test` names.
    pub async fn of_tests() -> Self {
        let Ok(host) = std::env::var("OAC_TEST_DOCKER") else {
            panic!("OAC_TEST_DOCKER is not set: run through cargo xtask test");
        };
        let socket = host.strip_prefix("unix://").unwrap_or(&host);
        Self::connect(Path::new(socket))
            .await
            .unwrap_or_else(|e| panic!("{e}"))
    }

    pub fn docker(&self) -> &Docker {
        &self.docker
    }

    /// The host string of a node's configuration.
    pub fn host(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The host's address on the engine's default bridge: containers reach it, other hosts usually do not.
    pub async fn bridge_gateway(&self) -> Result<IpAddr, EngineError> {
        let bridge = self
            .docker
            .inspect_network("bridge", None)
            .await
            .map_err(refused("inspect its bridge network"))?;
        let pools = bridge.ipam.and_then(|ipam| ipam.config).unwrap_or_default();
        // An engine that was restarted may name the subnet alone; its bridge then has the first address in it.
        let named = pools.iter().find_map(|pool| pool.gateway.as_ref()?.parse().ok());
        named
            .or_else(|| pools.iter().find_map(|pool| first_host(pool.subnet.as_ref()?)))
            .ok_or(EngineError::NoGateway)
    }

    /// The image's local id, if the engine holds it.
    pub async fn image_id(&self, image: &str) -> Result<Option<String>, EngineError> {
        match self.docker.inspect_image(image).await {
            Ok(found) => Ok(found.id),
            Err(bollard::errors::Error::DockerResponseServerError { status_code: 404, .. }) => Ok(None),
            Err(source) => Err(refused("inspect an image")(source)),
        }
    }

    /// Removes an image this run loaded.
    pub async fn remove_image(&self, image: &str) -> Result<(), EngineError> {
        self.docker
            .remove_image(image, None::<RemoveImageOptions>, None)
            .await
            .map_err(refused("remove the image"))?;
        Ok(())
    }

    /// `oac-node-<installation>`: a bridge without traffic between containers (providers.md section 6).
    pub async fn create_node_network(&self, installation: InstallationId) -> Result<String, EngineError> {
        let name = format!("oac-node-{installation}");
        let request = NetworkCreateRequest {
            name: name.clone(),
            driver: Some("bridge".to_owned()),
            options: Some(HashMap::from([(
                "com.docker.network.bridge.enable_icc".to_owned(),
                "false".to_owned(),
            )])),
            labels: Some(HashMap::from([(LABEL.to_owned(), installation.to_string())])),
            ..NetworkCreateRequest::default()
        };
        self.docker
            .create_network(request)
            .await
            .map_err(refused("create the node's network"))?;
        Ok(name)
    }

    /// The engine frees a removed container's place in its network a moment after it answered: 403 until then. One that was
    /// removed while its restart policy started it again leaves a place that the engine counts until it is restarted itself:
    /// such a network, which it says nobody is in, is left with it.
    pub async fn remove_network(&self, name: &str) -> Result<(), EngineError> {
        let mut tries = 0;
        loop {
            match self.docker.remove_network(name).await {
                Err(bollard::errors::Error::DockerResponseServerError { status_code: 403, .. })
                    if tries < NETWORK_TRIES =>
                {
                    tries += 1;
                    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                }
                Err(bollard::errors::Error::DockerResponseServerError { status_code: 403, .. })
                    if self.is_deserted(name).await? =>
                {
                    eprintln!("the engine counts a place in {name} that nobody has: it is left");
                    return Ok(());
                }
                answer => return answer.map_err(refused("remove the node's network")),
            }
        }
    }

    async fn is_deserted(&self, network: &str) -> Result<bool, EngineError> {
        let network = self.docker.inspect_network(network, None).await;
        let network = network.map_err(refused("inspect the node's network"))?;
        Ok(network.containers.unwrap_or_default().is_empty())
    }

    /// Whether a throw-away container of `image` reaches `address:port` over TCP. Needs bash in the image.
    pub async fn reaches(&self, image: &str, address: IpAddr, port: u16) -> Result<bool, EngineError> {
        let script = format!("exec 3<>/dev/tcp/{address}/{port}");
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            entrypoint: Some(vec![
                "timeout".to_owned(),
                "10".to_owned(),
                "bash".to_owned(),
                "-c".to_owned(),
                script,
            ]),
            labels: Some(HashMap::from([("io.oac.probe".to_owned(), "reach".to_owned())])),
            host_config: Some(HostConfig {
                network_mode: Some("bridge".to_owned()),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        let created = self
            .docker
            .create_container(None::<CreateContainerOptions>, body)
            .await
            .map_err(refused("create a throw-away container"))?;
        let ran = self.run_to_end(&created.id).await;
        let options = RemoveContainerOptions {
            force: true,
            v: true,
            ..RemoveContainerOptions::default()
        };
        self.docker
            .remove_container(&created.id, Some(options))
            .await
            .map_err(refused("remove a throw-away container"))?;
        ran.map(|status| status == 0)
    }

    async fn run_to_end(&self, id: &str) -> Result<i64, EngineError> {
        self.docker
            .start_container(id, None)
            .await
            .map_err(refused("start a throw-away container"))?;
        let mut ends = self.docker.wait_container(id, None::<WaitContainerOptions>);
        match ends.next().await {
            Some(Ok(end)) => Ok(end.status_code),
            Some(Err(bollard::errors::Error::DockerContainerWaitError { code, .. })) => Ok(code),
            Some(Err(source)) => Err(refused("wait for a throw-away container")(source)),
            None => Ok(-1),
        }
    }

    /// Containers, volumes and networks that carry the installation's label.
    pub async fn leftovers(&self, installation: InstallationId) -> Result<Leftovers, EngineError> {
        let filters = HashMap::from([("label".to_owned(), vec![format!("{LABEL}={installation}")])]);
        let containers = self
            .docker
            .list_containers(Some(ListContainersOptions {
                all: true,
                filters: Some(filters.clone()),
                ..ListContainersOptions::default()
            }))
            .await
            .map_err(refused("list containers"))?;
        let volumes = self
            .docker
            .list_volumes(Some(ListVolumesOptions {
                filters: Some(filters.clone()),
            }))
            .await
            .map_err(refused("list volumes"))?;
        let networks = self
            .docker
            .list_networks(Some(ListNetworksOptions {
                filters: Some(filters),
            }))
            .await
            .map_err(refused("list networks"))?;
        Ok(Leftovers {
            containers: containers.into_iter().filter_map(|c| c.id).collect(),
            volumes: volumes
                .volumes
                .unwrap_or_default()
                .into_iter()
                .map(|v| v.name)
                .collect(),
            networks: networks.into_iter().filter_map(|n| n.name).collect(),
        })
    }

    /// Removes what is left of an installation, for a test that failed half way.
    pub async fn clear(&self, installation: InstallationId) -> Result<(), EngineError> {
        let left = self.leftovers(installation).await?;
        for id in left.containers {
            let options = RemoveContainerOptions {
                force: true,
                v: true,
                ..RemoveContainerOptions::default()
            };
            self.docker
                .remove_container(&id, Some(options))
                .await
                .map_err(refused("remove a container"))?;
        }
        for name in left.volumes {
            self.docker
                .remove_volume(&name, None::<RemoveVolumeOptions>)
                .await
                .map_err(refused("remove a volume"))?;
        }
        for name in left.networks {
            self.remove_network(&name).await?;
        }
        Ok(())
    }

    /// The end of a container's log, for messages.
    pub async fn log_of(&self, id: &str) -> String {
        let options = LogsOptions {
            stdout: true,
            stderr: true,
            tail: "20".to_owned(),
            ..LogsOptions::default()
        };
        let mut lines = self.docker.logs(id, Some(options));
        let mut text = String::new();
        while let Some(Ok(line)) = lines.next().await {
            text.push_str(&line.to_string());
        }
        text
    }
}
