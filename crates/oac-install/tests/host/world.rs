//! A scratch host, a scripted Core with one release, and the command that makes the one a node of the other.

use std::{
    fs::{self, Permissions},
    io::Write as _,
    ops::{Deref, DerefMut},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use oac_model::{ImageDigest, InstallationId, NodeId, SourceCommit, Specification};
use oac_release::{
    layout::{IMAGE, INSTALLER, NODE, Row, SECCOMP},
    made::{Made, artifact, commit},
    manifest::{Artifact, Image, Manifest},
    metadata::Metadata,
};
use serde_json::{Value, json};

use crate::{
    core::{Core, ENROLL},
    engine::{Leftovers, image},
    scratch::{Ran, Scratch},
};

pub(crate) const TOKEN: &str = "oac_enroll_0123456789abcdef0123456789abcdef";

/// A Core with one release, and the command that makes a host its node.
pub(crate) struct Offer {
    pub(crate) core: Core,
    pub(crate) id: InstallationId,
    pub(crate) node: NodeId,
    pub(crate) image: ImageDigest,
    pub(crate) archive: Vec<u8>,
    pub(crate) commit: SourceCommit,
    /// The node program.
    program: fn(&Self) -> String,
}

pub(crate) struct World {
    pub(crate) host: Scratch,
    offer: Offer,
    _left: Leftovers,
}

impl Deref for World {
    type Target = Offer;

    fn deref(&self) -> &Offer {
        &self.offer
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Offer {
        &mut self.offer
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::known_as(|port| format!("http://127.0.0.1:{port}"))
    }

    /// Core's public address, by the port that it listens at.
    pub(crate) fn known_as(origin: impl FnOnce(u16) -> String) -> Self {
        let host = Scratch::new(&commit('a').to_string());
        let folder = host.path("core");
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        let offer = Offer::made(&folder, origin, Offer::program);
        let left = Leftovers(offer.id.to_string(), offer.image.to_string());
        Self {
            host,
            offer,
            _left: left,
        }
    }

    pub(crate) fn install(&self) -> Ran {
        self.host.run(&self.command(), &format!("{TOKEN}\n"))
    }

    pub(crate) fn uninstall(&self, more: &[&str]) -> Ran {
        self.host.run(&self.uninstall_command(more), "")
    }
}

impl Offer {
    /// Core keeps what it has in `folder`.
    pub(crate) fn made(
        folder: &Path,
        origin: impl FnOnce(u16) -> String,
        program: fn(&Self) -> String,
    ) -> Self {
        let (id, node) = (InstallationId::random(), NodeId::random());
        let mut core = Core::start(folder);
        core.origin = origin(core.port);
        let (archive, image) = image(&id.to_string());
        let offer = Self {
            core,
            id,
            node,
            image,
            archive,
            commit: commit('a'),
            program,
        };
        offer.select(1, offer.commit);
        offer
    }

    /// The selection of a generation with the Runtime of a commit, which is also released.
    pub(crate) fn select(&self, generation: u64, runtime: SourceCommit) {
        self.release(runtime, "{}");
        let specification = self.specification(runtime, 1, 512);
        let digest = parsed(&specification).digest();
        let common = json!({
            "installation_id": self.id, "provider": "docker", "specification_digest": digest,
            "max_active": 1, "max_retained": 1,
        });
        let with = |more: Value| {
            let mut all = common.clone();
            all.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            all
        };
        let origin = self.core.origin.clone();
        self.core.set(|state| {
            state.token = TOKEN.to_owned();
            state.configuration = with(json!({
                "core_url": origin, "generation": generation, "specification": specification,
            }));
            state.identity = with(json!({
                "node_id": self.node, "deployment_generation": generation, "connected": true, "provider_ready": true,
            }));
        });
    }

    pub(crate) fn specification(&self, runtime: SourceCommit, cpus: u32, memory_mib: u64) -> Value {
        json!({
            "provider": "docker",
            "resources": { "cpus": cpus, "memory_mib": memory_mib },
            "runtime": { "source_commit": runtime, "artifacts": {
                "image_id": self.image, "image_manifest_digest": ImageDigest::of("manifest"),
            } },
        })
    }

    /// Publishes a release of the commit, with this seccomp profile.
    pub(crate) fn release(&self, commit: SourceCommit, seccomp: &str) {
        let program = (self.program)(self).into_bytes();
        let folder = self.core.folder().join(format!("releases/{commit}"));
        released(
            &folder,
            commit,
            (self.image, &self.archive),
            &program,
            seccomp.as_bytes(),
        );
    }

    /// The identity that a node program writes, as a word of its shell in double quotes.
    fn identity(&self) -> String {
        json!({
            "identity": {
                "node_id": self.node, "installation_id": self.id, "provider": "docker",
                "backend_fingerprint": "0".repeat(64), "deployment_generation": "GENERATION",
                "specification_digest": "DIGEST", "max_active": 1, "max_retained": 1,
            },
            "credential": "ab".repeat(32), "core_url": self.core.origin, "owner_epoch": 0, "host_id": "0".repeat(64),
        })
        .to_string()
        .replace("\"GENERATION\"", "$generation")
        .replace("DIGEST", "$digest")
        .replace('"', "\\\"")
    }

    /// A node program whose `register` does what the real one does: the identity first, then Core.
    fn program(&self) -> String {
        let identity = self.identity();
        let enrolled = self.core.folder().join("enrolled");
        let enrolled = enrolled.display();
        let digest = oac_model::Digest::of(TOKEN);
        format!(
            r#"#!/bin/sh
umask 077
[ "$1" = register ] || exit 1
arguments="$*"
while [ $# -gt 0 ]; do case $1 in --state-dir) state=$2;; --config) config=$2;; esac; shift; done
read -r token
echo "$arguments" > {enrolled}.arguments; env > {enrolled}.environment; id -G > {enrolled}.groups; cat /proc/$$/status > {enrolled}.status
[ "$(printf %s "$token" | sha256sum)" = "{digest}  -" ] || {{ echo "the enrollment token is unknown" >&2; exit 78; }}
record=$(dirname "$config")/installation.json
generation=$(sed 's/.*"generation":\([0-9]*\).*/\1/' "$record")
digest=$(sed 's/.*"specification_digest":"\([0-9a-f]*\)".*/\1/' "$record")
[ -e "$state/identity.json" ] || echo "{identity}" > "$state/identity.json"
if [ -e {enrolled}.refusal ]; then cat {enrolled}.refusal >&2; exit 1; fi
touch {enrolled}
"#
        )
    }

    pub(crate) fn command(&self) -> Vec<String> {
        self.command_for(&self.core.origin)
    }

    pub(crate) fn command_for(&self, origin: &str) -> Vec<String> {
        let id = self.id.to_string();
        let words = [
            "--core-url",
            origin,
            "--installation-id",
            &id,
            "--provider",
            "docker",
            "--enrollment-token-stdin",
        ];
        words.map(str::to_owned).to_vec()
    }

    pub(crate) fn uninstall_command(&self, more: &[&str]) -> Vec<String> {
        let id = self.id.to_string();
        let words = ["--uninstall", "--installation-id", &id];
        words.iter().chain(more).map(|word| (*word).to_owned()).collect()
    }

    /// One for a host that shares no file with Core, which also runs.
    pub(crate) fn program_elsewhere(&self) -> String {
        let (identity, digest) = (self.identity(), oac_model::Digest::of(TOKEN));
        let url = format!("{}{ENROLL}", self.core.origin);
        format!(
            r#"#!/bin/sh
umask 077
[ "$1" != run ] || exec sleep infinity
while [ $# -gt 0 ]; do case $1 in --state-dir) state=$2;; --config) config=$2;; esac; shift; done
read -r token
[ "$(printf %s "$token" | sha256sum)" = "{digest}  -" ] || {{ echo "the enrollment token is unknown" >&2; exit 78; }}
record=$(dirname "$config")/installation.json
generation=$(sed 's/.*"generation":\([0-9]*\).*/\1/' "$record")
digest=$(sed 's/.*"specification_digest":"\([0-9a-f]*\)".*/\1/' "$record")
[ -e "$state/identity.json" ] || echo "{identity}" > "$state/identity.json"
curl -q -fsS --noproxy '*' -H "Authorization: Bearer $token" {url} || {{ echo "Core could not be reached" >&2; exit 1; }}
"#
        )
    }

    /// A path below the node root.
    pub(crate) fn inner(&self, path: &str) -> String {
        format!("var/lib/oac-node/.oac/nodes/{}/{path}", self.id)
    }

    pub(crate) fn network(&self) -> String {
        format!("oac-node-{}", self.id)
    }
}

pub(crate) fn parsed(specification: &Value) -> Specification {
    oac_wire::strict::from_str(&specification.to_string()).unwrap()
}

/// Writes a release of these files.
pub(crate) fn released(
    folder: &Path,
    commit: SourceCommit,
    (image, archive): (ImageDigest, &[u8]),
    program: &[u8],
    seccomp: &[u8],
) {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(archive).unwrap();
    let packed = gz.finish().unwrap();
    let rows: [(Row, &[u8]); 4] = [
        (IMAGE, &packed),
        (NODE, program),
        (INSTALLER, b"installer"),
        (SECCOMP, seccomp),
    ];
    let files: Vec<(Artifact, &[u8])> = rows
        .iter()
        .map(|(row, bytes)| (artifact(row, commit, bytes), *bytes))
        .collect();
    let digests = Image {
        config_digest: image,
        manifest_digest: ImageDigest::of("manifest"),
    };
    let manifest = Manifest::of(commit, digests, files.iter().map(|(a, _)| a.clone()).collect()).unwrap();
    let ordered = manifest
        .artifacts()
        .iter()
        .map(|a| files.iter().find(|(b, _)| a.key == b.key).unwrap().1.to_vec());
    let made = Made {
        files: ordered.collect(),
        metadata: Metadata::of(manifest),
    };
    made.write(folder);
}
