//! The native configuration of a generation on a Docker node (node.md section 2, providers.md section 6).

use std::path::{Path, PathBuf};

use oac_model::{Artifacts, Digest, ImageDigest, ProviderKind, backend_fingerprint};
use serde::{Deserialize, Serialize};

/// A seccomp profile is about 15 KiB.
const SECCOMP_LIMIT_BYTES: u64 = 1024 * 1024;

/// `native` of a Docker node's configuration. `DOCKER_HOST` and its kin are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DockerConfig {
    /// `unix://` and a clean absolute path other than `/`.
    pub host: String,
    /// One of the two release digests of the specification.
    pub image: ImageDigest,
    /// A network's name; neither `host` nor `container:…`.
    pub network: String,
    /// An absolute path; the file's content is sent to the engine.
    pub seccomp_file: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("host must be unix:// and a clean absolute path, such as unix:///var/run/docker.sock")]
    Host,
    #[error("image must be image_id or image_manifest_digest of the specification's Runtime release")]
    Image,
    #[error("network must be a network's name, and neither host nor container:")]
    Network,
    #[error("seccomp_file must be a clean absolute path")]
    SeccompPath,
    #[error("the seccomp profile {path} cannot be read; restore it from the matching release")]
    SeccompRead {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the seccomp profile {path} is not valid JSON; restore it from the matching release")]
    SeccompJson {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

impl DockerConfig {
    /// The engine's socket.
    pub fn socket(&self) -> Result<&Path, ConfigError> {
        let path = self.host.strip_prefix("unix://").ok_or(ConfigError::Host)?;
        if is_clean_absolute(path) {
            Ok(Path::new(path))
        } else {
            Err(ConfigError::Host)
        }
    }

    /// Everything that can be checked without the engine; the seccomp profile as compact JSON.
    pub fn check(&self, artifacts: &Artifacts) -> Result<String, ConfigError> {
        self.socket()?;
        let release = [artifacts.image_id, artifacts.image_manifest_digest];
        if !release.contains(&Some(self.image)) {
            return Err(ConfigError::Image);
        }
        let network = self.network.as_str();
        if network.is_empty() || network == "host" || network.starts_with("container:") {
            return Err(ConfigError::Network);
        }
        if !self.seccomp_file.to_str().is_some_and(is_clean_absolute) {
            return Err(ConfigError::SeccompPath);
        }
        self.seccomp()
    }

    fn seccomp(&self) -> Result<String, ConfigError> {
        let path = &self.seccomp_file;
        let read = || {
            if std::fs::metadata(path)?.len() > SECCOMP_LIMIT_BYTES {
                return Err(std::io::Error::other("larger than 1 MiB"));
            }
            std::fs::read(path)
        };
        let bytes = read().map_err(|source| ConfigError::SeccompRead {
            path: path.clone(),
            source,
        })?;
        let json = |source| ConfigError::SeccompJson {
            path: path.clone(),
            source,
        };
        let profile: serde_json::Value = serde_json::from_slice(&bytes).map_err(json)?;
        serde_json::to_string(&profile).map_err(json)
    }

    /// Names the backend: two nodes with one fingerprint would share an engine.
    pub fn fingerprint(&self) -> Digest {
        backend_fingerprint(ProviderKind::Docker, &self.host)
    }
}

fn is_clean_absolute(path: &str) -> bool {
    path.len() > 1
        && path.starts_with('/')
        && path[1..]
            .split('/')
            .all(|s| !s.is_empty() && s != "." && s != "..")
        && !path.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(dir: &Path) -> (DockerConfig, Artifacts) {
        let seccomp_file = dir.join("seccomp.json");
        std::fs::write(&seccomp_file, b"{ \"defaultAction\" : 1 }").unwrap();
        let artifacts = Artifacts {
            image_id: Some(ImageDigest::of("id")),
            image_manifest_digest: Some(ImageDigest::of("manifest")),
            ..Artifacts::default()
        };
        let config = DockerConfig {
            host: "unix:///var/run/docker.sock".into(),
            image: ImageDigest::of("id"),
            network: "oac-node-1".into(),
            seccomp_file,
        };
        (config, artifacts)
    }

    #[test]
    fn the_configuration_is_checked_member_by_member() {
        let dir = tempfile::tempdir().unwrap();
        let (good, artifacts) = config(dir.path());
        assert_eq!(good.check(&artifacts).unwrap(), r#"{"defaultAction":1}"#);
        let refused = |change: &dyn Fn(&mut DockerConfig)| {
            let mut config = good.clone();
            change(&mut config);
            config.check(&artifacts).unwrap_err().to_string()
        };
        for host in [
            "unix:///",
            "unix://",
            "unix://a/b",
            "unix:///a/../b",
            "unix:///a/",
            "tcp://h:1",
            "/a",
        ] {
            assert!(refused(&|c| c.host = host.into()).starts_with("host"), "{host}");
        }
        assert!(refused(&|c| c.image = ImageDigest::of("other")).starts_with("image"));
        for network in ["", "host", "container:abc"] {
            assert!(refused(&|c| c.network = network.into()).starts_with("network"));
        }
        assert!(refused(&|c| c.seccomp_file = "a.json".into()).starts_with("seccomp_file"));
        assert!(refused(&|c| c.seccomp_file = "/nonexistent/a.json".into()).contains("cannot be read"));
        std::fs::write(&good.seccomp_file, b"{").unwrap();
        assert!(refused(&|_| ()).contains("not valid JSON"));
    }

    #[test]
    fn unknown_members_are_refused() {
        let text = r#"{"host":"unix:///a","image":"sha256:IMAGE","network":"n","seccomp_file":"/s"EXTRA}"#
            .replace("IMAGE", &"ab".repeat(32));
        let read =
            |extra: &str| oac_wire::strict::from_str::<DockerConfig>(&text.replace("EXTRA", extra)).is_ok();
        assert!(read(""));
        assert!(!read(r#","docker_host":"x""#));
    }
}
