//! A generation's content and the digest that identifies it (core.md section 5, protocol.md section 13).

use serde::{Deserialize, Serialize};

use crate::{Digest, ImageDigest, SourceCommit, StoreId};

/// The one kind of sandbox backend an installation uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    Docker,
    Microsandbox,
    E2b,
}

impl ProviderKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Microsandbox => "microsandbox",
            Self::E2b => "e2b",
        }
    }

    pub fn from_text(text: &str) -> Option<Self> {
        [Self::Docker, Self::Microsandbox, Self::E2b]
            .into_iter()
            .find(|k| k.as_str() == text)
    }
}

/// One sandbox's size. Disks exist for microsandbox only; 0 equals absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    pub cpus: u32,
    pub memory_mib: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub root_disk_mib: Option<u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub environment_disk_mib: Option<u64>,
}

fn is_zero(value: &Option<u64>) -> bool {
    value.unwrap_or(0) == 0
}

/// What a Runtime release consists of, as far as the provider uses it. Member order is ascending, as the digest needs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Artifacts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware_sha256: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_id: Option<ImageDigest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_manifest_digest: Option<ImageDigest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub microsandbox_ref: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_sha256: Option<Digest>,
}

/// The image (and native files) that sandboxes of a generation run, named by its source commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuntimeRelease {
    pub source_commit: SourceCommit,
    pub artifacts: Artifacts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceKind {
    Nfs,
}

/// Shared workspace storage, fixed per generation; microsandbox only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workspace {
    pub store_id: StoreId,
    pub mount: String,
    pub kind: WorkspaceKind,
}

/// What one generation's sandboxes are made of. Serialized compactly in this member order it is the canonical text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Specification {
    pub provider: ProviderKind,
    pub resources: Resources,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeRelease>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Workspace>,
}

/// The first member of a specification that breaks a rule of core.md section 5.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecificationError {
    #[error("{member} must be from {min} to {max}")]
    Range {
        member: &'static str,
        min: u64,
        max: u64,
    },
    #[error("{member} {rule}")]
    Rule {
        member: &'static str,
        rule: &'static str,
    },
}

impl SpecificationError {
    /// The member at fault, as a body names it.
    pub fn member(&self) -> &'static str {
        match self {
            Self::Range { member, .. } | Self::Rule { member, .. } => member,
        }
    }
}

impl Specification {
    /// Compact UTF-8 JSON in the fixed member order; zero and absent members omitted.
    pub fn canonical(&self) -> String {
        serde_json::to_string(self)
            .unwrap_or_else(|error| unreachable!("a specification is plain data: {error}"))
    }

    /// SHA-256 of [`Self::canonical`].
    pub fn digest(&self) -> Digest {
        Digest::of(self.canonical())
    }

    /// The checks 5 of core.md section 5, in their order; the first failure.
    pub fn validate(&self) -> Result<(), SpecificationError> {
        use SpecificationError::Rule;
        range("resources.cpus", u64::from(self.resources.cpus), 1, 255)?;
        range("resources.memory_mib", self.resources.memory_mib, 512, 1_048_576)?;
        let microsandbox = self.provider == ProviderKind::Microsandbox;
        let root = self.resources.root_disk_mib.unwrap_or(0);
        let environment = self.resources.environment_disk_mib.unwrap_or(0);
        if microsandbox {
            range("resources.root_disk_mib", root, 1024, 4_294_967_295)?;
            if self.workspace.is_none() {
                range("resources.environment_disk_mib", environment, 1024, 4_294_967_295)?;
            } else if environment != 0 {
                return Err(Rule {
                    member: "resources.environment_disk_mib",
                    rule: "must be absent with a workspace",
                });
            }
        } else {
            for (member, value) in [
                ("resources.root_disk_mib", root),
                ("resources.environment_disk_mib", environment),
            ] {
                if value != 0 {
                    return Err(Rule {
                        member,
                        rule: "belongs to microsandbox alone",
                    });
                }
            }
        }
        self.validate_runtime()?;
        match &self.workspace {
            Some(_) if !microsandbox => Err(Rule {
                member: "workspace",
                rule: "belongs to microsandbox alone",
            }),
            Some(w) if !is_clean_absolute_path(&w.mount) => Err(Rule {
                member: "workspace",
                rule: "needs a clean absolute path as mount",
            }),
            _ => Ok(()),
        }
    }

    fn validate_runtime(&self) -> Result<(), SpecificationError> {
        use SpecificationError::Rule;
        let member = "runtime";
        let Some(runtime) = &self.runtime else {
            return match self.provider {
                ProviderKind::E2b => Ok(()),
                _ => Err(Rule {
                    member,
                    rule: "is required: source_commit and artifacts of a Runtime release",
                }),
            };
        };
        let a = &runtime.artifacts;
        let docker = a.image_id.is_some() && a.image_manifest_digest.is_some();
        let native =
            a.firmware_sha256.is_some() && a.runtime_sha256.is_some() && a.microsandbox_ref.is_some();
        let no_docker = a.image_id.is_none() && a.image_manifest_digest.is_none();
        let no_native =
            a.firmware_sha256.is_none() && a.runtime_sha256.is_none() && a.microsandbox_ref.is_none();
        match self.provider {
            ProviderKind::Docker if docker && no_native => Ok(()),
            ProviderKind::Docker => Err(Rule {
                member,
                rule: "needs exactly the artifacts image_id and image_manifest_digest",
            }),
            ProviderKind::Microsandbox if native && no_docker => match a.microsandbox_ref.as_deref() {
                Some(r)
                    if r.strip_prefix("oac-runtime@")
                        .is_some_and(|d| d.parse::<ImageDigest>().is_ok()) =>
                {
                    Ok(())
                }
                _ => Err(Rule {
                    member,
                    rule: "needs microsandbox_ref as oac-runtime@sha256: and 64 hex digits",
                }),
            },
            ProviderKind::Microsandbox => Err(Rule {
                member,
                rule: "needs exactly the artifacts firmware_sha256, microsandbox_ref and runtime_sha256",
            }),
            ProviderKind::E2b => Err(Rule {
                member,
                rule: "does not belong to E2B",
            }),
        }
    }
}

fn range(member: &'static str, value: u64, min: u64, max: u64) -> Result<(), SpecificationError> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(SpecificationError::Range { member, min, max })
    }
}

/// Absolute, no empty, `.` or `..` segment, no trailing slash, no control character.
pub(crate) fn is_clean_absolute_path(path: &str) -> bool {
    path.len() > 1
        && path.starts_with('/')
        && path[1..]
            .split('/')
            .all(|s| !s.is_empty() && s != "." && s != "..")
        && !path.chars().any(char::is_control)
}

/// SHA-256 of provider kind, one zero byte and namespace (Docker: host string; microsandbox: runtime home).
pub fn backend_fingerprint(provider: ProviderKind, namespace: &str) -> Digest {
    Digest::of([provider.as_str().as_bytes(), b"\0", namespace.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = r#"{"provider":"microsandbox","resources":{"cpus":2,"memory_mib":4096,"root_disk_mib":8192,"environment_disk_mib":8192},"runtime":{"source_commit":"758965bdc63ed272d036fc3aa61880aa74704c21","artifacts":{"firmware_sha256":"eb21fac2e19371055e611b6bae6eb8c8ba334a665e0a777905d5b4f10d074cfc","microsandbox_ref":"oac-runtime@sha256:7ba451133c403e85ee98073f28fd640bc9aa5000f0d6fce0f0b06ff7ac4cd9c5","runtime_sha256":"494875559620b7fc1ce3ddc6112e8489bb52271dd34bf6785a4ae694978b1539"}}}"#;

    // inv: INV-C6
    #[test]
    fn the_worked_example_gives_its_text_and_digest() {
        let specification: Specification = serde_json::from_str(EXAMPLE).unwrap();
        assert_eq!(specification.canonical(), EXAMPLE);
        assert_eq!(EXAMPLE.len(), 476);
        assert_eq!(
            specification.digest().to_string(),
            "32dac9e73472ca1357d1e3c35e43b615ef1d5feeb5758c0d817c4a229f94e75e"
        );
        assert_eq!(specification.validate(), Ok(()));
    }

    // inv: INV-C6
    #[test]
    fn zero_disks_and_member_order_do_not_change_the_digest() {
        let artifacts = format!(
            r#"{{"image_manifest_digest":"sha256:{0}","image_id":"sha256:{0}"}}"#,
            "ab".repeat(32)
        );
        let a: Specification = serde_json::from_str(&format!(
            r#"{{"runtime":{{"artifacts":{artifacts},"source_commit":"{}"}},"provider":"docker","resources":{{"memory_mib":2048,"cpus":2,"root_disk_mib":0}}}}"#,
            "1".repeat(40)
        ))
        .unwrap();
        let mut b = a.clone();
        b.resources.root_disk_mib = None;
        assert_eq!(a.canonical(), b.canonical());
        assert_eq!(a.digest(), b.digest());
        b.resources.cpus = 3;
        assert_ne!(a.digest(), b.digest());
    }

    #[test]
    fn the_first_bad_member_is_named() {
        let good: Specification = serde_json::from_str(EXAMPLE).unwrap();
        let broken = |change: &dyn Fn(&mut Specification)| {
            let mut s = good.clone();
            change(&mut s);
            s.validate().unwrap_err().member()
        };
        assert_eq!(broken(&|s| s.resources.cpus = 0), "resources.cpus");
        assert_eq!(broken(&|s| s.resources.cpus = 256), "resources.cpus");
        assert_eq!(broken(&|s| s.resources.memory_mib = 511), "resources.memory_mib");
        assert_eq!(
            broken(&|s| s.resources.root_disk_mib = None),
            "resources.root_disk_mib"
        );
        assert_eq!(
            broken(&|s| s.provider = ProviderKind::Docker),
            "resources.root_disk_mib"
        );
        assert_eq!(broken(&|s| s.runtime = None), "runtime");
    }

    #[test]
    fn fingerprint_separates_kind_and_namespace() {
        assert_eq!(
            backend_fingerprint(ProviderKind::Docker, "unix:///var/run/docker.sock"),
            Digest::of(b"docker\0unix:///var/run/docker.sock")
        );
    }
}
