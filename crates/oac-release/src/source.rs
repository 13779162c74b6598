//! Where a release is read from, and the rules of reading that hold for every place (releases.md section 7): the
//! manifest is the one that was asked for, by commit and, where known, by digest; a Runtime release is the one that the
//! specification selects; nothing of another release stands in for one that is missing.

use std::{error::Error, io, path::PathBuf};

use oac_model::{Digest, SourceCommit, Specification};

use crate::{
    manifest::{Artifact, Mismatch},
    metadata::{Metadata, MetadataError},
};

/// What lies under a failure; for the local log.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why something could not be read. Each is an artifact failure: exit status 65 of `generation`.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("there is no release {0}: publish it, then retry")]
    NoRelease(SourceCommit),
    #[error("{file}: HTTP {status}")]
    Status { file: String, status: u16 },
    #[error("{file}: the answer {fault}")]
    Answer { file: String, fault: &'static str },
    #[error("{file}: a redirect {fault}")]
    Redirect { file: String, fault: &'static str },
    #[error("{file} could not be fetched: check address, network and proxy")]
    Broken {
        file: String,
        #[source]
        cause: Cause,
    },
    #[error(
        "The download stalled: less than 64 KiB arrived in a minute. Check the network and rerun the command."
    )]
    Stalled { file: String },
    #[error("the release is not valid")]
    Metadata(#[from] MetadataError),
    #[error("the release has another manifest than the command names: copy a fresh command")]
    OtherManifest,
    #[error("the release is not the selected one")]
    Mismatch(#[from] Mismatch),
    #[error("{} cannot be read", path.display())]
    Local {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// What took the bytes failed.
    #[error("the bytes could not be kept")]
    Sink(#[source] Cause),
}

/// Takes the bytes of one artifact, in order.
pub trait Sink {
    fn append(&mut self, bytes: &[u8]) -> Result<(), Cause>;
    /// Everything so far is void, what was there before the transfer included: the artifact comes from its beginning.
    fn restart(&mut self) -> Result<(), Cause>;
}

/// A place that has releases. What it gives is not trusted.
pub trait Source {
    /// `manifest.json` and `SHA256SUMS` of a commit, each of at most 1 MiB.
    fn metadata(&mut self, commit: SourceCommit) -> Result<(Vec<u8>, Vec<u8>), ReadError>;

    /// The bytes of a file of that release from offset `from`, which is less than its size, to its end: never more than
    /// the manifest states, fewer only with an error. Whether they are the right ones, whoever keeps them finds out.
    fn artifact(
        &mut self,
        commit: SourceCommit,
        artifact: &Artifact,
        from: u64,
        sink: &mut dyn Sink,
    ) -> Result<(), ReadError>;
}

/// The verified metadata of the release of `commit`, whose manifest has this digest if one is known.
pub fn release(
    source: &mut (impl Source + ?Sized),
    commit: SourceCommit,
    manifest_sha256: Option<Digest>,
) -> Result<Metadata, ReadError> {
    let (manifest, sums) = source.metadata(commit)?;
    if manifest_sha256.is_some_and(|known| known != Digest::of(&manifest)) {
        return Err(ReadError::OtherManifest);
    }
    let metadata = Metadata::parse(manifest, sums)?;
    if metadata.source_commit() != commit {
        return Err(ReadError::NoRelease(commit));
    }
    Ok(metadata)
}

/// The verified metadata of the release that `specification` selects.
pub fn runtime_release(
    source: &mut (impl Source + ?Sized),
    specification: &Specification,
) -> Result<Metadata, ReadError> {
    let selected = specification.runtime.as_ref().ok_or(Mismatch::NoRuntime)?;
    let metadata = release(source, selected.source_commit, None)?;
    metadata.manifest().matches(specification)?;
    Ok(metadata)
}
