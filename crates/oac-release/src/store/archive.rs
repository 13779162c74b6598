//! What an image's archive says of itself. A release whose archive no node would take, or one of a working tree, is not
//! published.

use std::{
    collections::BTreeMap,
    io::{self, Read},
};

use flate2::read::MultiGzDecoder;
use oac_model::{Digest, SourceCommit};
use sha2::{Digest as _, Sha256};

use crate::{
    limits,
    manifest::{Image, Unpacked},
};

/// Counts and hashes what is read.
struct Measured<R> {
    inner: R,
    size: u64,
    limit: u64,
    digest: Sha256,
}

impl<R: Read> Read for Measured<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.size += n as u64;
        if self.size > self.limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.digest.update(&buffer[..n]);
        Ok(n)
    }
}

/// Whether the gzipped `archive` unpacks to what the manifest states and holds the image of `commit`, by both names.
pub(super) fn check(
    archive: impl Read,
    commit: SourceCommit,
    image: Image,
    unpacked: Unpacked,
) -> Result<(), &'static str> {
    const UNREADABLE: &str = "is not an archive that unpacks to what the manifest states";
    let mut stream = Measured {
        // To the end, as whoever loads it does, and not to the end of a first part.
        inner: MultiGzDecoder::new(archive),
        size: 0,
        limit: unpacked.size_bytes,
        digest: Sha256::new(),
    };
    let texts = texts_in(&mut stream).map_err(|_| UNREADABLE)?;
    io::copy(&mut stream, &mut io::sink()).map_err(|_| UNREADABLE)?;
    let digest = Digest::from_bytes(stream.digest.finalize().into());
    if (stream.size, digest) != (unpacked.size_bytes, unpacked.sha256) {
        return Err(UNREADABLE);
    }
    let json = |name: &str| -> Option<serde_json::Value> { serde_json::from_slice(texts.get(name)?).ok() };
    let older = json("manifest.json").ok_or("has no image index")?;
    let tag = format!("oac-runtime:{commit}");
    if older[0]["RepoTags"] != serde_json::json!([tag]) {
        return Err(
            "holds an image that is not tagged as this release's: one of a working tree is never published",
        );
    }
    let blob = |digest: String| digest.replace("sha256:", "blobs/sha256/");
    if older[0]["Config"].as_str() != Some(blob(image.config_digest.to_string()).as_str()) {
        return Err("holds an image of another config_digest");
    }
    let index = json("index.json").ok_or("has no image index")?;
    if index["manifests"][0]["digest"].as_str() != Some(image.manifest_digest.to_string().as_str()) {
        return Err("holds an image of another manifest_digest");
    }
    Ok(())
}

/// The two index files of the archive.
fn texts_in(stream: &mut impl Read) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut texts = BTreeMap::new();
    let mut archive = tar::Archive::new(stream);
    for entry in archive.entries()? {
        let entry = entry?;
        let name = entry.path()?.to_string_lossy().into_owned();
        if matches!(name.as_str(), "manifest.json" | "index.json") {
            let mut bytes = Vec::new();
            entry
                .take(limits::METADATA_BYTES as u64)
                .read_to_end(&mut bytes)?;
            texts.insert(name, bytes);
        }
    }
    Ok(texts)
}
