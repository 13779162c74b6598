//! A generation's configuration as this program serves it: `provider.json`, or a later generation's `g.json` (node.md
//! section 2).

use std::path::{Path, PathBuf};

use oac_dial::{Origin, ParseOriginError};
use oac_generations::{
    layout::PREPARATION,
    native::Native as NativeRecord,
    records::{self, Invalid, Record as _},
};
use oac_model::{Digest, Generation, InstallationId, ProviderKind, Specification};
use oac_provider_docker::DockerConfig;
use oac_records::{Directory, RecordError};

use crate::limits::RECORD_BYTES;

/// A generation's configuration.
#[derive(Debug, Clone)]
pub struct Configuration {
    pub installation_id: InstallationId,
    /// `docker` or `microsandbox`.
    pub provider: ProviderKind,
    pub core: Origin,
    pub specification: Specification,
    pub generation: Generation,
    pub native: Native,
}

/// What the backend of this host needs beside the specification.
#[derive(Debug, Clone)]
pub enum Native {
    Docker(DockerConfig),
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("--config must be an absolute path of a file in a private directory")]
    Path,
    #[error("the configuration is missing at {0}; run the installer again")]
    Missing(PathBuf),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("{path} is not valid; restore it from the installation")]
    Invalid {
        path: PathBuf,
        #[source]
        source: Invalid,
    },
    #[error("core_url of the configuration is not an origin followed by /api/v1")]
    CoreUrl(#[source] ParseOriginError),
    #[error("this build of oac-node serves Docker only; the configuration names {0}")]
    NotBuilt(&'static str),
}

impl Configuration {
    /// Reads and checks the configuration at an absolute path.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let (directory, name) = private(path)?;
        let bytes = directory
            .read(name, RECORD_BYTES)?
            .ok_or_else(|| ConfigError::Missing(path.to_owned()))?;
        let record = records::Configuration::decode(&bytes).map_err(|source| ConfigError::Invalid {
            path: path.to_owned(),
            source,
        })?;
        Self::of(&record)
    }

    /// Of a record that was read.
    pub fn of(record: &records::Configuration) -> Result<Self, ConfigError> {
        let core = Origin::of_api_url(&record.core_url).map_err(ConfigError::CoreUrl)?;
        let native = match &record.native {
            NativeRecord::Docker(docker) => Native::Docker(DockerConfig {
                host: docker.host.clone(),
                image: docker.image,
                network: docker.network.clone(),
                seccomp_file: docker.seccomp_file.clone().into(),
            }),
            NativeRecord::Microsandbox(_) => {
                return Err(ConfigError::NotBuilt(ProviderKind::Microsandbox.as_str()));
            }
        };
        Ok(Self {
            installation_id: record.installation_id,
            provider: record.provider,
            core,
            specification: record.specification.clone(),
            generation: record.generation,
            native,
        })
    }

    pub fn specification_digest(&self) -> Digest {
        self.specification.digest()
    }

    pub fn backend_fingerprint(&self) -> Digest {
        match &self.native {
            Native::Docker(docker) => docker.fingerprint(),
        }
    }
}

/// `preparation.json` beside the configuration at `path`: where releases come from. `None` for a fixed node.
pub fn preparation(path: &Path) -> Result<Option<records::Preparation>, ConfigError> {
    let (directory, _) = private(path)?;
    let Some(bytes) = directory.read(PREPARATION, RECORD_BYTES)? else {
        return Ok(None);
    };
    let record = records::Preparation::decode(&bytes).map_err(|source| ConfigError::Invalid {
        path: directory.path().join(PREPARATION),
        source,
    })?;
    Ok(Some(record))
}

/// The private directory of a file at an absolute path, and its name there.
fn private(path: &Path) -> Result<(Directory, &str), ConfigError> {
    let name = path.file_name().and_then(|name| name.to_str());
    match (path.parent(), name) {
        (Some(parent), Some(name)) if path.is_absolute() => Ok((Directory::open(parent)?, name)),
        _ => Err(ConfigError::Path),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    pub(crate) fn document() -> String {
        let (id, manifest) = ("ab".repeat(32), "cd".repeat(32));
        format!(
            r#"{{"installation_id":"11111111-1111-4111-8111-111111111111","provider":"docker","core_url":"http://127.0.0.1:1/api/v1","specification":{{"provider":"docker","resources":{{"cpus":1,"memory_mib":512}},"runtime":{{"source_commit":"{}","artifacts":{{"image_id":"sha256:{id}","image_manifest_digest":"sha256:{manifest}"}}}}}},"generation":1,"native":{{"host":"unix:///var/run/docker.sock","image":"sha256:{id}","network":"oac-node-1","seccomp_file":"/s.json"}}}}"#,
            "a".repeat(40)
        )
    }

    fn load(text: &str) -> Result<Configuration, ConfigError> {
        let temp = tempfile::tempdir().unwrap();
        let directory = Directory::create(&temp.path().join("root")).unwrap();
        directory.write("provider.json", text.as_bytes()).unwrap();
        Configuration::load(&directory.path().join("provider.json"))
    }

    #[test]
    fn a_complete_configuration_loads_and_any_deviation_is_refused() {
        let good = document();
        let config = load(&good).unwrap();
        assert_eq!(config.core.as_str(), "http://127.0.0.1:1");
        let Native::Docker(docker) = &config.native;
        assert_eq!(docker.network, "oac-node-1");
        for (from, to) in [
            (r#""generation":1"#, r#""generation":0"#),
            (r#""generation":1"#, r#""generation":1,"generation":1"#),
            (r#""generation":1,"#, ""),
            (r#""generation":1"#, r#""Generation":1"#),
            (r#""generation":1"#, r#""generation":1.0"#),
            (r#""generation":1"#, r#""generation":1,"extra":null"#),
            (r#""network":"oac-node-1""#, r#""network":"a","network":"b""#),
            (r#""network":"oac-node-1""#, r#""network":null"#),
            (r#"/api/v1","#, r#"/api/v2","#),
            (
                r#""provider":"docker","core_url""#,
                r#""provider":"microsandbox","core_url""#,
            ),
            (r#""cpus":1"#, r#""cpus":0"#),
        ] {
            assert!(good.contains(from), "{from}");
            assert!(load(&good.replacen(from, to, 1)).is_err(), "{to}");
        }
    }

    #[test]
    fn a_relative_path_and_an_open_file_are_refused_and_preparation_makes_a_node_managing() {
        assert!(matches!(
            Configuration::load(Path::new("provider.json")),
            Err(ConfigError::Path | ConfigError::Record(_))
        ));
        let temp = tempfile::tempdir().unwrap();
        let directory = Directory::create(&temp.path().join("root")).unwrap();
        directory.write("provider.json", document().as_bytes()).unwrap();
        let path = directory.path().join("provider.json");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(matches!(Configuration::load(&path), Err(ConfigError::Record(_))));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(preparation(&path).unwrap(), None);
        directory.write("preparation.json", b"{}").unwrap();
        assert!(matches!(preparation(&path), Err(ConfigError::Invalid { .. })));
        let record = br#"{"source_url":"https://core.example.org"}"#;
        directory.write("preparation.json", record).unwrap();
        assert_eq!(
            preparation(&path).unwrap().unwrap().source_url,
            "https://core.example.org"
        );
    }
}
