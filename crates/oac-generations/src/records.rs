//! The contents of the files of node.md section 2: strict JSON with exactly these members.
//!
//! What is written is compact, with the members in this order, so that equal records have equal bytes. A record that
//! holds a member this program does not know was written by another program and is refused, never half understood.

use std::collections::BTreeMap;

use oac_model::{
    Digest, Generation, InstallationId, ProviderKind, SourceCommit, Specification, SpecificationError,
    StoreId,
};
use oac_wire::strict::{self, StrictError};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::native::{Native, NativeError};

/// The three members that bind a record to its generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    pub installation_id: InstallationId,
    pub generation: Generation,
    pub specification_digest: Digest,
}

/// `g.json` and `provider.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Configuration {
    pub installation_id: InstallationId,
    pub provider: ProviderKind,
    /// An origin followed by `/api/v1`.
    pub core_url: String,
    pub specification: Specification,
    pub generation: Generation,
    pub native: Native,
}

/// `g.preparing`: for recovery and collection; never a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub identity: Identity,
    pub import_started: bool,
    pub configuration: Configuration,
}

/// `g.collecting`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collecting {
    pub identity: Identity,
    pub native_complete: bool,
}

/// `g.lease-identity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseIdentity {
    pub identity: Identity,
    pub device: u64,
    pub inode: u64,
}

/// `installation.json` and `registered.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Installation {
    pub installation_id: InstallationId,
    pub provider: ProviderKind,
    pub core_url: String,
    /// Of the enrolled generation's Runtime release.
    pub source_commit: SourceCommit,
    pub generation: Generation,
    pub specification_digest: Digest,
}

/// `preparation.json`; its presence makes the node managing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preparation {
    /// An origin.
    pub source_url: String,
}

/// `runtime-artifacts.json`: the Runtime files that the installer placed, by their paths below the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuntimeArtifacts {
    pub installation_id: InstallationId,
    pub source_commit: SourceCommit,
    pub sha256: BTreeMap<String, Digest>,
}

/// `program.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    pub format: u32,
    pub source_commit: SourceCommit,
    pub sha256: Digest,
}

/// `checkpoint-store.json`; written by the installer alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointStore {
    pub store_id: StoreId,
}

/// `oac-installation.json` of a microsandbox store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreOwner {
    pub installation_id: InstallationId,
}

/// Why bytes are not the record they should be.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    #[error("it is not strict JSON with exactly its members")]
    Json(#[from] StrictError),
    #[error("its member native is invalid")]
    Native(#[source] NativeError),
    #[error("its specification is invalid")]
    Specification(#[source] SpecificationError),
    #[error("its member {0} is out of bounds or contradicts another")]
    Member(&'static str),
}

/// A record's two directions.
pub trait Record: Sized {
    fn decode(bytes: &[u8]) -> Result<Self, Invalid>;
    fn encode(&self) -> Vec<u8>;
}

fn encoded(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_else(|error| unreachable!("a record is plain data: {error}"))
}

macro_rules! plain_records {
    ($($name:ident $check:expr;)*) => { $(
        impl Record for $name {
            fn decode(bytes: &[u8]) -> Result<Self, Invalid> {
                let record: Self = strict::from_slice(bytes)?;
                let check: fn(&Self) -> Result<(), Invalid> = $check;
                check(&record).map(|()| record)
            }
            fn encode(&self) -> Vec<u8> {
                encoded(self)
            }
        }
    )* };
}

plain_records! {
    Identity |_| Ok(());
    Installation |record| core_url(&record.core_url);
    Preparation |record| origin(&record.source_url).then_some(()).ok_or(Invalid::Member("source_url"));
    RuntimeArtifacts |record| {
        let fits = record.sha256.len() <= crate::limits::ARTIFACTS && record.sha256.keys().all(|key| is_key(key));
        fits.then_some(()).ok_or(Invalid::Member("sha256"))
    };
    Program |record| (record.format == 1).then_some(()).ok_or(Invalid::Member("format"));
    CheckpointStore |_| Ok(());
    StoreOwner |_| Ok(());
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigurationIn {
    installation_id: InstallationId,
    provider: ProviderKind,
    core_url: String,
    specification: Specification,
    generation: Generation,
    native: Box<RawValue>,
}

impl Configuration {
    fn checked(read: ConfigurationIn) -> Result<Self, Invalid> {
        core_url(&read.core_url)?;
        read.specification.validate().map_err(Invalid::Specification)?;
        if read.specification.provider != read.provider {
            return Err(Invalid::Member("provider"));
        }
        let native = Native::read(read.provider, &read.native).map_err(Invalid::Native)?;
        if let (Native::Docker(docker), Some(runtime)) = (&native, &read.specification.runtime) {
            let release = [
                runtime.artifacts.image_id,
                runtime.artifacts.image_manifest_digest,
            ];
            if !release.contains(&Some(docker.image)) {
                return Err(Invalid::Member("native.image"));
            }
        }
        Ok(Self {
            installation_id: read.installation_id,
            provider: read.provider,
            core_url: read.core_url,
            specification: read.specification,
            generation: read.generation,
            native,
        })
    }

    pub fn identity(&self) -> Identity {
        Identity {
            installation_id: self.installation_id,
            generation: self.generation,
            specification_digest: self.specification.digest(),
        }
    }

    /// Of its Runtime release. Every node's specification has one; its check says so.
    pub fn source_commit(&self) -> Option<SourceCommit> {
        self.specification
            .runtime
            .as_ref()
            .map(|runtime| runtime.source_commit)
    }

    /// Equal in everything but `native.image`.
    pub fn agrees(&self, other: &Self) -> bool {
        self.identity() == other.identity()
            && self.core_url == other.core_url
            && self.provider == other.provider
            && self.native.agrees(&other.native)
    }
}

impl Record for Configuration {
    fn decode(bytes: &[u8]) -> Result<Self, Invalid> {
        Self::checked(strict::from_slice(bytes)?)
    }
    fn encode(&self) -> Vec<u8> {
        encoded(self)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanIn {
    installation_id: InstallationId,
    generation: Generation,
    specification_digest: Digest,
    import_started: bool,
    configuration: ConfigurationIn,
}

#[derive(Serialize)]
struct PlanOut<'a> {
    installation_id: InstallationId,
    generation: Generation,
    specification_digest: Digest,
    import_started: bool,
    configuration: &'a Configuration,
}

impl Plan {
    pub fn of(configuration: Configuration) -> Self {
        Self {
            identity: configuration.identity(),
            import_started: false,
            configuration,
        }
    }
}

impl Record for Plan {
    fn decode(bytes: &[u8]) -> Result<Self, Invalid> {
        let read: PlanIn = strict::from_slice(bytes)?;
        let configuration = Configuration::checked(read.configuration)?;
        let identity = Identity {
            installation_id: read.installation_id,
            generation: read.generation,
            specification_digest: read.specification_digest,
        };
        if configuration.identity() != identity {
            return Err(Invalid::Member("configuration"));
        }
        Ok(Self {
            identity,
            import_started: read.import_started,
            configuration,
        })
    }
    fn encode(&self) -> Vec<u8> {
        encoded(&PlanOut {
            installation_id: self.identity.installation_id,
            generation: self.identity.generation,
            specification_digest: self.identity.specification_digest,
            import_started: self.import_started,
            configuration: &self.configuration,
        })
    }
}

/// A record of the three identity members and more, without `serde`'s flattening, which would weaken strictness.
macro_rules! bound_records {
    ($($name:ident $form:ident { $($member:ident: $kind:ty),* })*) => { $(
        #[derive(Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $form {
            installation_id: InstallationId,
            generation: Generation,
            specification_digest: Digest,
            $($member: $kind),*
        }
        impl Record for $name {
            fn decode(bytes: &[u8]) -> Result<Self, Invalid> {
                let read: $form = decode_form(bytes)?;
                let identity = Identity {
                    installation_id: read.installation_id,
                    generation: read.generation,
                    specification_digest: read.specification_digest,
                };
                Ok(Self { identity, $($member: read.$member),* })
            }
            fn encode(&self) -> Vec<u8> {
                encoded(&$form {
                    installation_id: self.identity.installation_id,
                    generation: self.identity.generation,
                    specification_digest: self.identity.specification_digest,
                    $($member: self.$member),*
                })
            }
        }
    )* };
}

fn decode_form<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Invalid> {
    Ok(strict::from_slice(bytes)?)
}

bound_records! {
    Collecting CollectingForm { native_complete: bool }
    LeaseIdentity LeaseIdentityForm { device: u64, inode: u64 }
}

fn core_url(url: &str) -> Result<(), Invalid> {
    let is_core = url.strip_suffix("/api/v1").is_some_and(origin);
    is_core.then_some(()).ok_or(Invalid::Member("core_url"))
}

/// The form of an origin; whoever dials it reads it more closely.
fn origin(text: &str) -> bool {
    let host = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    host.is_some_and(|host| {
        !host.is_empty()
            && host
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || ".-:[]_".contains(c))
    })
}

/// A destination below a payload root: segments of `[A-Za-z0-9._-]`, none beginning with a dot, at most 128 bytes
/// (releases.md section 2).
pub fn is_key(key: &str) -> bool {
    let segment = |s: &str| {
        !s.is_empty()
            && !s.starts_with('.')
            && s.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    key.len() <= 128 && key.split('/').all(segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: &str = r#""installation_id":"11111111-1111-4111-8111-111111111111","generation":7,"specification_digest":"D""#;

    fn docker() -> String {
        let (commit, id, manifest) = ("a".repeat(40), "ab".repeat(32), "cd".repeat(32));
        format!(
            r#"{{"installation_id":"11111111-1111-4111-8111-111111111111","provider":"docker","core_url":"https://core.example.org/api/v1","specification":{{"provider":"docker","resources":{{"cpus":1,"memory_mib":512}},"runtime":{{"source_commit":"{commit}","artifacts":{{"image_id":"sha256:{id}","image_manifest_digest":"sha256:{manifest}"}}}}}},"generation":7,"native":{{"host":"unix:///var/run/docker.sock","image":"sha256:{manifest}","network":"oac-node-1","seccomp_file":"/r/runtime/seccomp.json"}}}}"#
        )
    }

    fn microsandbox() -> String {
        let (commit, a, b) = ("a".repeat(40), "ab".repeat(32), "cd".repeat(32));
        format!(
            r#"{{"installation_id":"11111111-1111-4111-8111-111111111111","provider":"microsandbox","core_url":"http://127.0.0.1:8080/api/v1","specification":{{"provider":"microsandbox","resources":{{"cpus":1,"memory_mib":512,"root_disk_mib":1024,"environment_disk_mib":1024}},"runtime":{{"source_commit":"{commit}","artifacts":{{"firmware_sha256":"{a}","microsandbox_ref":"oac-runtime@sha256:{b}","runtime_sha256":"{b}"}}}}}},"generation":7,"native":{{"helper_path":"/r/helper","runtime_path":"/r/msb","firmware_path":"/r/libkrunfw.so.5","runtime_home":"/m/0123456789ab","checkpoint_root":"/r/checkpoints","network":{{"default_egress":"allow","default_ingress":"deny","rules":[{{"action":"deny","direction":"egress","destination":"10.0.0.0/8","protocol":"tcp","port":443}}]}}}}}}"#
        )
    }

    fn digest(configuration: &str) -> String {
        Configuration::decode(configuration.as_bytes())
            .unwrap()
            .specification
            .digest()
            .to_string()
    }

    /// The record, its name in a failure, and whether bytes are it.
    type Case = (String, fn(&[u8]) -> Option<Vec<u8>>);

    fn cases() -> Vec<Case> {
        fn again<T: Record>(bytes: &[u8]) -> Option<Vec<u8>> {
            T::decode(bytes).ok().map(|record| record.encode())
        }
        let hex = "ab".repeat(32);
        let identity = IDENTITY.replace('D', &hex);
        let (commit, bound) = ("a".repeat(40), IDENTITY.replace('D', &digest(&docker())));
        let installation = r#""installation_id":"11111111-1111-4111-8111-111111111111""#;
        vec![
            (docker(), again::<Configuration>),
            (microsandbox(), again::<Configuration>),
            (
                format!(
                    r#"{{{bound},"import_started":false,"configuration":{}}}"#,
                    docker()
                ),
                again::<Plan>,
            ),
            (
                format!(r#"{{{identity},"native_complete":true}}"#),
                again::<Collecting>,
            ),
            (format!("{{{identity}}}"), again::<Identity>),
            (
                format!(r#"{{{identity},"device":64,"inode":9}}"#),
                again::<LeaseIdentity>,
            ),
            (
                format!(
                    r#"{{{installation},"provider":"docker","core_url":"https://c/api/v1","source_commit":"{commit}","generation":1,"specification_digest":"{hex}"}}"#
                ),
                again::<Installation>,
            ),
            (
                r#"{"source_url":"https://core.example.org"}"#.to_owned(),
                again::<Preparation>,
            ),
            (
                format!(r#"{{{installation},"source_commit":"{commit}","sha256":{{"native/msb":"{hex}"}}}}"#),
                again::<RuntimeArtifacts>,
            ),
            (
                format!(r#"{{"format":1,"source_commit":"{commit}","sha256":"{hex}"}}"#),
                again::<Program>,
            ),
            (
                r#"{"store_id":"11111111-1111-4111-8111-111111111111"}"#.to_owned(),
                again::<CheckpointStore>,
            ),
            (format!("{{{installation}}}"), again::<StoreOwner>),
        ]
    }

    // req: P-109
    // inv: INV-N3
    #[test]
    fn every_record_reads_back_as_written_and_every_deviation_is_refused() {
        for (good, again) in cases() {
            assert_eq!(again(good.as_bytes()).as_deref(), Some(good.as_bytes()), "{good}");
            let value: serde_json::Value = serde_json::from_str(&good).unwrap();
            let members = value.as_object().unwrap();
            for (name, member) in members {
                let (quoted, member) = (format!("\"{name}\":"), member.to_string());
                let at = good.find(&quoted).unwrap();
                let put = |text: &str| format!("{}{text}{}", &good[..at], &good[at..]);
                let mut missing = members.clone();
                missing.remove(name);
                let changed = |value: serde_json::Value| {
                    let mut changed = members.clone();
                    changed.insert(name.clone(), value);
                    serde_json::to_string(&changed).unwrap()
                };
                for bad in [
                    serde_json::to_string(&missing).unwrap(),
                    put(&format!("{quoted}{member},")),
                    put("\"unknown\":1,"),
                    put("\"unknown\":null,"),
                    changed(serde_json::Value::Null),
                    changed(serde_json::json!([])),
                    changed(serde_json::json!(-1)),
                    good.replacen(&quoted, &quoted.to_uppercase(), 1),
                ] {
                    assert_eq!(again(bad.as_bytes()), None, "{bad}");
                }
            }
            for bad in [
                String::new(),
                format!("{good}{good}"),
                format!("\u{feff}{good}"),
                good[..good.len() - 1].into(),
            ] {
                assert_eq!(again(bad.as_bytes()), None, "{bad}");
            }
        }
    }

    #[test]
    fn a_configuration_that_contradicts_itself_is_refused() {
        let good = docker();
        for (from, to) in [
            (r#""cpus":1"#, r#""cpus":0"#),
            (r#"/api/v1"#, "/api/v2"),
            ("https://core", "ftp://core"),
            ("core.example.org", "user@core.example.org"),
            (r#""image":"sha256:cd"#, r#""image":"sha256:ee"#),
            (r#""network":"oac-node-1""#, r#""network":"host""#),
            (r#""network":"oac-node-1""#, r#""network":"container:x""#),
            ("unix:///var", "tcp://var"),
            ("/r/runtime", "/r/../runtime"),
            ("/r/runtime", "r/runtime"),
            (
                r#""provider":"docker","core_url""#,
                r#""provider":"microsandbox","core_url""#,
            ),
        ] {
            assert!(good.contains(from), "{from}");
            assert!(
                Configuration::decode(good.replacen(from, to, 1).as_bytes()).is_err(),
                "{to}"
            );
        }
        let bound = IDENTITY.replace('D', &"ab".repeat(32));
        let plan = format!(
            r#"{{{bound},"import_started":false,"configuration":{}}}"#,
            docker()
        );
        assert!(
            Plan::decode(plan.as_bytes()).is_err(),
            "another digest than its configuration's"
        );
    }
}
