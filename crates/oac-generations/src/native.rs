//! `native` of a configuration: what a backend needs on this host beside the specification (node.md section 2).

use oac_model::{ImageDigest, ProviderKind};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A Docker node's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DockerNative {
    /// `unix://` and a clean absolute path.
    pub host: String,
    /// In a plan one of the two release digests; in a configuration the id that the engine resolved.
    pub image: ImageDigest,
    /// A network's name; neither `host` nor `container:…`.
    pub network: String,
    pub seccomp_file: String,
}

/// A microsandbox node's. The paths are clean and absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MicrosandboxNative {
    pub helper_path: String,
    pub runtime_path: String,
    pub firmware_path: String,
    /// The store's directory.
    pub runtime_home: String,
    /// The default root written out.
    pub checkpoint_root: String,
    pub network: NetworkPolicy,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkPolicy {
    pub default_egress: Access,
    pub default_ingress: Access,
    pub rules: Vec<NetworkRule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    Egress,
    Ingress,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkRule {
    pub action: Access,
    pub direction: Way,
    pub destination: String,
    pub protocol: String,
    pub port: u16,
}

/// The form of the record's `provider`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Native {
    Docker(DockerNative),
    Microsandbox(MicrosandboxNative),
}

impl Serialize for Native {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Docker(native) => native.serialize(serializer),
            Self::Microsandbox(native) => native.serialize(serializer),
        }
    }
}

impl Native {
    /// Reads the form that belongs to `provider`.
    pub(crate) fn read(provider: ProviderKind, text: &RawValue) -> Result<Self, NativeError> {
        let native = match provider {
            ProviderKind::Docker => Self::Docker(oac_wire::strict::from_str(text.get())?),
            ProviderKind::Microsandbox => Self::Microsandbox(oac_wire::strict::from_str(text.get())?),
            ProviderKind::E2b => return Err(NativeError::NoNode),
        };
        native.check()?;
        Ok(native)
    }

    fn check(&self) -> Result<(), NativeError> {
        let paths = |paths: &[(&'static str, &str)]| {
            let wrong = paths.iter().find(|(_, path)| !is_clean_absolute(path));
            wrong.map_or(Ok(()), |(member, _)| Err(NativeError::Path(member)))
        };
        match self {
            Self::Docker(docker) => {
                let socket = docker.host.strip_prefix("unix://").unwrap_or_default();
                paths(&[("host", socket), ("seccomp_file", &docker.seccomp_file)])?;
                let network = docker.network.as_str();
                if network.is_empty() || network == "host" || network.starts_with("container:") {
                    return Err(NativeError::Network);
                }
                Ok(())
            }
            Self::Microsandbox(native) => paths(&[
                ("helper_path", &native.helper_path),
                ("runtime_path", &native.runtime_path),
                ("firmware_path", &native.firmware_path),
                ("runtime_home", &native.runtime_home),
                ("checkpoint_root", &native.checkpoint_root),
            ]),
        }
    }

    pub fn provider(&self) -> ProviderKind {
        match self {
            Self::Docker(_) => ProviderKind::Docker,
            Self::Microsandbox(_) => ProviderKind::Microsandbox,
        }
    }

    /// The payload files that the generation's provider opens.
    pub fn files(&self) -> Vec<&str> {
        match self {
            Self::Docker(docker) => vec![&docker.seccomp_file],
            Self::Microsandbox(native) => {
                vec![&native.helper_path, &native.runtime_path, &native.firmware_path]
            }
        }
    }

    /// The store its image and VMs are in; `None` for Docker, whose daemon is the host's.
    pub fn store(&self) -> Option<&str> {
        match self {
            Self::Docker(_) => None,
            Self::Microsandbox(native) => Some(&native.runtime_home),
        }
    }

    /// Equal in everything but the image, which is resolved after the plan was written.
    pub fn agrees(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Docker(a), Self::Docker(b)) => {
                (&a.host, &a.network, &a.seccomp_file) == (&b.host, &b.network, &b.seccomp_file)
            }
            (a, b) => a == b,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum NativeError {
    #[error("native is not valid")]
    Json(#[from] oac_wire::strict::StrictError),
    #[error("native.{0} is not a clean absolute path")]
    Path(&'static str),
    #[error("native.network must be a network's name, and neither host nor container:")]
    Network,
    #[error("no node serves this provider")]
    NoNode,
}

/// No empty, `.` or `..` segment, no trailing slash, no control character.
pub(crate) fn is_clean_absolute(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|rest| {
        !path.chars().any(char::is_control)
            && rest
                .split('/')
                .all(|segment| !segment.is_empty() && segment != "." && segment != "..")
    })
}
