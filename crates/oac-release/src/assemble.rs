//! A release directory of built parts (releases.md section 3, step 4). The same parts give the same bytes.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
};

use flate2::read::MultiGzDecoder;
use oac_model::{Digest, SourceCommit};
use sha2::{Digest as _, Sha256};

use crate::{
    layout::{self, Row},
    limits,
    manifest::{Artifact, Image, Manifest, ManifestError, Unpacked},
    metadata::{ARTIFACTS, MANIFEST, Metadata, SUMS},
    store::{self, StoreError},
};

/// One file of the release.
#[derive(Debug, Clone)]
pub struct Part {
    pub row: Row,
    /// Follows the key where the row is versioned, else empty.
    pub version: String,
    pub path: PathBuf,
}

impl Part {
    /// The file at `path` for this destination on a node; `None` where no release has such a destination.
    pub fn of(key: &str, path: &Path) -> Option<Self> {
        let row = *Row::of(key)?;
        Some(Self {
            row,
            version: key.strip_prefix(row.key)?.to_owned(),
            path: path.to_owned(),
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    #[error("{} cannot be read or written", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not empty: give a directory that is not there", .0.display())]
    Taken(PathBuf),
    #[error("the installer has {0} bytes, more than the 24 MiB that a slow link fetches in time")]
    Installer(u64),
    #[error("the parts are no release")]
    Manifest(#[from] ManifestError),
    #[error("what was built would not be published")]
    Refused(#[from] StoreError),
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> AssembleError {
    let path = path.to_owned();
    move |source| AssembleError::File { path, source }
}

/// Writes the release of `parts` to `out`, which is not there or empty, and has the publisher judge it. One of a working
/// tree (`dirty`) is complete but for the image's tag, for which no publisher takes it.
pub fn assemble(
    commit: SourceCommit,
    image: Image,
    parts: &[Part],
    out: &Path,
    dirty: bool,
) -> Result<Metadata, AssembleError> {
    fs::create_dir_all(out).map_err(at(out))?;
    if fs::read_dir(out).map_err(at(out))?.next().is_some() {
        return Err(AssembleError::Taken(out.to_owned()));
    }
    let folder = out.join(ARTIFACTS);
    fs::create_dir(&folder).map_err(at(&folder))?;
    let mut artifacts = Vec::with_capacity(parts.len());
    for part in parts {
        let filename = part.row.filename(commit);
        let to = folder.join(&filename);
        let (size_bytes, sha256) = copy(&part.path, &to)?;
        if part.row == layout::INSTALLER && size_bytes > limits::BUILT_INSTALLER_BYTES {
            return Err(AssembleError::Installer(size_bytes));
        }
        let unpacked = match part.row == layout::IMAGE {
            true => Some(unpacked(&to)?),
            false => None,
        };
        artifacts.push(Artifact {
            key: format!("{}{}", part.row.key, part.version),
            filename,
            role: part.row.role,
            provider: part.row.provider,
            size_bytes,
            sha256,
            unpacked,
        });
    }
    let metadata = Metadata::of(Manifest::of(commit, image, artifacts)?);
    for (name, bytes) in [
        (MANIFEST, metadata.manifest_bytes()),
        (SUMS, metadata.sums_bytes()),
    ] {
        let path = out.join(name);
        fs::write(&path, bytes).map_err(at(&path))?;
    }
    if !dirty {
        store::check(out)?;
    }
    Ok(metadata)
}

fn copy(from: &Path, to: &Path) -> Result<(u64, Digest), AssembleError> {
    let mut source = File::open(from).map_err(at(from))?;
    let mut target = File::create_new(to).map_err(at(to))?;
    io::copy(&mut source, &mut target).map_err(at(to))?;
    target.flush().map_err(at(to))?;
    // What was written is what is described.
    let mut written = File::open(to).map_err(at(to))?;
    hash(&mut written).map_err(at(to))
}

fn unpacked(archive: &Path) -> Result<Unpacked, AssembleError> {
    let mut file = File::open(archive).map_err(at(archive))?;
    file.rewind().map_err(at(archive))?;
    let (size_bytes, sha256) = hash(&mut MultiGzDecoder::new(file)).map_err(at(archive))?;
    Ok(Unpacked { size_bytes, sha256 })
}

fn hash(bytes: &mut dyn Read) -> io::Result<(u64, Digest)> {
    let (mut size, mut digest) = (0, Sha256::new());
    let mut chunk = vec![0; limits::CHUNK_BYTES];
    loop {
        match bytes.read(&mut chunk)? {
            0 => return Ok((size, Digest::from_bytes(digest.finalize().into()))),
            n => {
                size += n as u64;
                digest.update(&chunk[..n]);
            }
        }
    }
}
