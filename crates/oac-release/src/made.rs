//! Releases made for tests, with the feature `made`: small files, true digests. What fails here is a defect of the test, and
//! panics.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use crate::{
    layout::{self, ROWS, Row},
    manifest::{Artifact, Image, Manifest, Unpacked},
    metadata::{ARTIFACTS, MANIFEST, Metadata, SUMS},
};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use oac_model::{Digest, ImageDigest, SourceCommit};

/// A release and the bytes of its files.
#[derive(Debug, Clone)]
pub struct Made {
    pub metadata: Metadata,
    /// In the order of the manifest's artifacts.
    pub files: Vec<Vec<u8>>,
}

/// The commit of this digit alone.
pub fn commit(digit: char) -> SourceCommit {
    digit.to_string().repeat(40).parse().unwrap()
}

/// The key of a row, with a version where one belongs.
pub fn key(row: &Row) -> String {
    format!("{}{}", row.key, if row.versioned { "5.6.1" } else { "" })
}

/// The entry of a file with these bytes.
pub fn artifact(row: &Row, commit: SourceCommit, bytes: &[u8]) -> Artifact {
    Artifact {
        key: key(row),
        filename: row.filename(commit),
        role: row.role,
        provider: row.provider,
        size_bytes: bytes.len() as u64,
        sha256: Digest::of(bytes),
        unpacked: (*row == layout::IMAGE).then(|| {
            let mut unpacked = Vec::new();
            GzDecoder::new(bytes).read_to_end(&mut unpacked).unwrap();
            Unpacked {
                size_bytes: unpacked.len() as u64,
                sha256: Digest::of(&unpacked),
            }
        }),
    }
}

/// What the builder writes of an image, without its layers.
pub fn archive(tag: &str, salt: &str) -> Vec<u8> {
    let hex = |digest: ImageDigest| digest.to_string().replace("sha256:", "");
    let (config, manifest) = (ImageDigest::of("config"), ImageDigest::of("manifest"));
    let older = format!(
        r#"[{{"Config":"blobs/sha256/{}","Layers":[],"RepoTags":["{tag}"]}}]"#,
        hex(config)
    );
    let index = format!(r#"{{"manifests":[{{"digest":"{manifest}"}}]}}"#);
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, text) in [
        ("index.json", index.as_str()),
        ("manifest.json", &older),
        ("salt", salt),
    ] {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

/// A whole release whose files are told apart by `salt`.
pub fn made(commit: SourceCommit, salt: &str) -> Made {
    made_of(commit, &ROWS, |row| format!("{salt} {}", row.suffix).into_bytes())
}

/// A release of these rows' files; of the image `bytes` is what tells it apart.
pub fn made_of(commit: SourceCommit, rows: &[Row], bytes: impl Fn(&Row) -> Vec<u8>) -> Made {
    let files: Vec<(Artifact, Vec<u8>)> = rows
        .iter()
        .map(|row| {
            let bytes = match *row == layout::IMAGE {
                true => archive(
                    &format!("oac-runtime:{commit}"),
                    &String::from_utf8_lossy(&bytes(row)),
                ),
                false => bytes(row),
            };
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
    /// Of the file of a row.
    pub fn bytes(&self, row: &Row) -> &[u8] {
        let artifacts = self.metadata.manifest().artifacts();
        let at = artifacts
            .iter()
            .position(|artifact| row.is(&artifact.key))
            .unwrap();
        &self.files[at]
    }

    /// The entry of a row's file.
    pub fn file(&self, row: &Row) -> &Artifact {
        self.metadata.manifest().file(row).unwrap()
    }

    /// Writes a release directory.
    pub fn write(&self, directory: &Path) -> PathBuf {
        std::fs::create_dir_all(directory.join(ARTIFACTS)).unwrap();
        std::fs::write(directory.join(MANIFEST), self.metadata.manifest_bytes()).unwrap();
        std::fs::write(directory.join(SUMS), self.metadata.sums_bytes()).unwrap();
        for (artifact, bytes) in self.metadata.manifest().artifacts().iter().zip(&self.files) {
            std::fs::write(directory.join(ARTIFACTS).join(&artifact.filename), bytes).unwrap();
        }
        directory.to_owned()
    }
}
