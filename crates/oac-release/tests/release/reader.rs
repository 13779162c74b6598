//! Readers with clocks of the test's own, a node to read to, and what an honest server answers.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use oac_dial::Surroundings;
use oac_model::SourceCommit;
use oac_records::Directory;
use oac_release::{
    fetch::{Clock, Remote},
    layout::{self, Role},
    made::{Made, made_of},
    manifest::Artifact,
    metadata::Metadata,
    payload::{self, PayloadError},
    progress::Silent,
};
use url::Url;

use crate::server::{Asked, Stream, roots, say};

/// Of a file that hostile servers play with: long enough for several reads, short enough for many tries.
pub(crate) const SIZE: usize = 300_000;

/// A release whose node program has [`SIZE`] bytes.
pub(crate) fn sized(commit: SourceCommit) -> Made {
    made_of(commit, &layout::ROWS, |row| match row.role {
        Role::Node => (0..SIZE).map(|at| (at * 7 % 251) as u8).collect(),
        _ => row.key.as_bytes().to_vec(),
    })
}

/// A clock that stands still while something moves.
struct Counted {
    passed: AtomicU64,
    /// For each tenth of a second in which nothing came.
    idle_millis: u64,
    look_millis: u64,
}

impl Clock for Counted {
    fn now(&self) -> Duration {
        Duration::from_millis(self.passed.fetch_add(self.look_millis, Ordering::SeqCst))
    }

    fn idle(&self) {
        self.passed.fetch_add(self.idle_millis, Ordering::SeqCst);
    }
}

pub(crate) fn counted(
    origin: &Url,
    idle_millis: u64,
    look_millis: u64,
    surroundings: Surroundings,
) -> Remote {
    let clock = Counted {
        passed: AtomicU64::new(0),
        idle_millis,
        look_millis,
    };
    Remote::by(origin, surroundings, program(), Arc::new(clock)).unwrap()
}

/// A reader that a second and a half without a byte is a minute to.
pub(crate) fn hurried(origin: &Url) -> Remote {
    counted(origin, 4000, 0, surroundings())
}

/// A reader whose clock stands still.
pub(crate) fn patient(origin: &Url) -> Remote {
    counted(origin, 0, 0, surroundings())
}

/// A reader whose clock goes on with every piece that arrives.
pub(crate) fn measured(origin: &Url) -> Remote {
    counted(origin, 0, 500, surroundings())
}

pub(crate) fn program() -> http::HeaderValue {
    http::HeaderValue::from_static("oac-test/1")
}

pub(crate) fn surroundings() -> Surroundings {
    Surroundings {
        roots: roots(),
        ..Surroundings::default()
    }
}

/// Answers as Core does, without ranges in metadata.
pub(crate) fn honest(made: &Made, asked: &Asked, out: &mut dyn Stream) -> std::io::Result<()> {
    let commit = made.metadata.source_commit();
    let base = format!("/api/v1/sandbox-node/install/releases/{commit}/");
    let Some(name) = asked.path.strip_prefix(&base) else {
        return say(out, "404 Not Found", &[], b"");
    };
    match name {
        "manifest.json" => return say(out, "200 OK", &[], made.metadata.manifest_bytes()),
        "SHA256SUMS" => return say(out, "200 OK", &[], made.metadata.sums_bytes()),
        _ => {}
    }
    match file(made, asked) {
        Some((_, bytes)) => ranged(bytes, asked, out),
        None => say(out, "404 Not Found", &[], b""),
    }
}

pub(crate) fn file<'a>(made: &'a Made, asked: &Asked) -> Option<(&'a Artifact, &'a [u8])> {
    let (_, name) = asked.path.split_once("/artifacts/")?;
    let artifacts = made.metadata.manifest().artifacts();
    let at = artifacts.iter().position(|artifact| artifact.filename == name)?;
    Some((&artifacts[at], &made.files[at]))
}

pub(crate) fn ranged(bytes: &[u8], asked: &Asked, out: &mut dyn Stream) -> std::io::Result<()> {
    let size = bytes.len();
    match asked.from().map(|from| from as usize) {
        None => say(out, "200 OK", &[], bytes),
        Some(from) if from >= size => say(out, "416 Range Not Satisfiable", &[], b""),
        Some(from) => {
            let range = format!("bytes {from}-{}/{size}", size - 1);
            say(
                out,
                "206 Partial Content",
                &[("Content-Range", &range)],
                &bytes[from..],
            )
        }
    }
}

pub(crate) struct Node {
    _temp: tempfile::TempDir,
    pub(crate) root: Directory,
}

impl Node {
    pub(crate) fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let root = Directory::create(&temp.path().join("root")).unwrap();
        Self { _temp: temp, root }
    }

    pub(crate) fn get(&self, remote: &mut Remote, metadata: &Metadata) -> Result<(), PayloadError> {
        let missing = payload::missing(&self.root, metadata.manifest().artifacts(), &mut Silent)?;
        payload::fetch(
            &self.root,
            remote,
            metadata.source_commit(),
            &missing,
            &mut Silent,
        )
    }

    /// What is there below the root, without partial files: keys, modes, bytes.
    pub(crate) fn files(&self) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = Vec::new();
        walk(self.root.path(), self.root.path(), &mut found);
        found.retain(|(key, ..)| !key.ends_with(".partial"));
        found.sort();
        found
    }

    pub(crate) fn partial(&self) -> Option<Vec<u8>> {
        std::fs::read(self.root.path().join("bin/.oac-node.partial")).ok()
    }

    /// As an interrupted run left it.
    pub(crate) fn leave(&self, bytes: &[u8]) {
        let place = self.root.make("bin").unwrap();
        let mut partial =
            oac_records::Partial::begin(&place, "oac-node", oac_records::FileMode::Program).unwrap();
        partial.append(bytes).unwrap();
    }
}

fn walk(root: &Path, at: &Path, found: &mut Vec<(String, u32, Vec<u8>)>) {
    use std::os::unix::fs::PermissionsExt as _;
    for entry in std::fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        let mode = std::fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o7777;
        if path.is_dir() {
            assert_eq!(mode, 0o700, "{}", path.display());
            walk(root, &path, found);
        } else {
            let key = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            found.push((key, mode, std::fs::read(&path).unwrap()));
        }
    }
}

/// What a whole release is on a node.
pub(crate) fn whole(made: &Made) -> Vec<(String, u32, Vec<u8>)> {
    let files = made.metadata.manifest().artifacts().iter().zip(&made.files);
    let placed = files.filter(|(artifact, _)| artifact.role != Role::Installer);
    placed
        .map(|(artifact, bytes)| {
            let mode = match artifact.role {
                Role::Node | Role::Runtime => 0o700,
                _ => 0o600,
            };
            (artifact.key.clone(), mode, bytes.clone())
        })
        .collect()
}

pub(crate) fn metadata(made: &Made) -> &Metadata {
    &made.metadata
}
