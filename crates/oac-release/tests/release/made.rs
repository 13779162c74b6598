//! Releases made for tests: small files, true digests.

use std::path::{Path, PathBuf};

use oac_model::{Digest, ImageDigest, SourceCommit};
use oac_release::{
    layout::{self, ROWS, Row},
    manifest::{Artifact, Image, Manifest, Unpacked},
    metadata::{ARTIFACTS, MANIFEST, Metadata, SUMS},
};

/// A release and the bytes of its files, in the order of its artifacts.
pub(crate) struct Made {
    pub(crate) metadata: Metadata,
    pub(crate) files: Vec<Vec<u8>>,
}

pub(crate) fn commit(digit: char) -> SourceCommit {
    digit.to_string().repeat(40).parse().unwrap()
}

/// The key of a row, with a version where one belongs.
pub(crate) fn key(row: &Row) -> String {
    format!("{}{}", row.key, if row.versioned { "5.6.1" } else { "" })
}

pub(crate) fn artifact(row: &Row, commit: SourceCommit, bytes: &[u8]) -> Artifact {
    Artifact {
        key: key(row),
        filename: row.filename(commit),
        role: row.role,
        provider: row.provider,
        size_bytes: bytes.len() as u64,
        sha256: Digest::of(bytes),
        unpacked: (*row == layout::IMAGE).then(|| Unpacked {
            size_bytes: 7,
            sha256: Digest::of("unpacked"),
        }),
    }
}

/// A whole release whose files are told apart by `salt`.
pub(crate) fn made(commit: SourceCommit, salt: &str) -> Made {
    made_of(commit, &ROWS, |row| format!("{salt} {}", row.suffix).into_bytes())
}

pub(crate) fn made_of(commit: SourceCommit, rows: &[Row], bytes: impl Fn(&Row) -> Vec<u8>) -> Made {
    let files: Vec<(Artifact, Vec<u8>)> = rows
        .iter()
        .map(|row| {
            let bytes = bytes(row);
            (artifact(row, commit, &bytes), bytes)
        })
        .collect();
    let image = Image {
        config_digest: ImageDigest::of("config"),
        manifest_digest: ImageDigest::of("manifest"),
    };
    let manifest = Manifest::of(commit, image, files.iter().map(|(a, _)| a.clone()).collect()).unwrap();
    let bytes_of = |artifact: &Artifact| {
        let found = files.iter().find(|(a, _)| a.key == artifact.key);
        found.unwrap().1.clone()
    };
    let ordered = manifest.artifacts().iter().map(bytes_of).collect();
    Made {
        metadata: Metadata::of(manifest),
        files: ordered,
    }
}

impl Made {
    pub(crate) fn bytes(&self, row: &Row) -> &[u8] {
        let artifacts = self.metadata.manifest().artifacts();
        let at = artifacts
            .iter()
            .position(|artifact| row.is(&artifact.key))
            .unwrap();
        &self.files[at]
    }

    pub(crate) fn file(&self, row: &Row) -> &Artifact {
        self.metadata.manifest().file(row).unwrap()
    }

    /// Writes a release directory.
    pub(crate) fn write(&self, directory: &Path) -> PathBuf {
        std::fs::create_dir_all(directory.join(ARTIFACTS)).unwrap();
        std::fs::write(directory.join(MANIFEST), self.metadata.manifest_bytes()).unwrap();
        std::fs::write(directory.join(SUMS), self.metadata.sums_bytes()).unwrap();
        for (artifact, bytes) in self.metadata.manifest().artifacts().iter().zip(&self.files) {
            std::fs::write(directory.join(ARTIFACTS).join(&artifact.filename), bytes).unwrap();
        }
        directory.to_owned()
    }
}
