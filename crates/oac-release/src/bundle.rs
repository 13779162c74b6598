//! A release from a local folder: `manifest.json`, `SHA256SUMS`, `artifacts/`, read by the same rules as one from the
//! network.

use std::{
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use oac_model::SourceCommit;

use crate::{
    folder::Folder,
    limits,
    manifest::Artifact,
    metadata::{ARTIFACTS, MANIFEST, SUMS},
    source::{ReadError, Sink, Source},
};

/// A folder that holds one release.
#[derive(Debug)]
pub struct Bundle {
    folder: Folder,
}

impl Bundle {
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let folder = Folder::open(path).map_err(|source| ReadError::Local {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self { folder })
    }

    fn failed(&self, name: &str) -> impl FnOnce(io::Error) -> ReadError {
        let path = self.folder.path().join(name);
        move |source| ReadError::Local { path, source }
    }

    fn missing(&self, name: &str) -> ReadError {
        self.failed(name)(io::ErrorKind::NotFound.into())
    }
}

impl Source for Bundle {
    fn metadata(&mut self, _: SourceCommit) -> Result<(Vec<u8>, Vec<u8>), ReadError> {
        let read = |name: &str| {
            let bytes = self.folder.read(name, limits::METADATA_BYTES);
            bytes
                .map_err(self.failed(name))?
                .ok_or_else(|| self.missing(name))
        };
        Ok((read(MANIFEST)?, read(SUMS)?))
    }

    fn artifact(
        &mut self,
        _: SourceCommit,
        artifact: &Artifact,
        from: u64,
        sink: &mut dyn Sink,
    ) -> Result<(), ReadError> {
        let name = &artifact.filename;
        let artifacts = self.folder.enter(ARTIFACTS).map_err(self.failed(ARTIFACTS))?;
        let artifacts = artifacts.ok_or_else(|| self.missing(ARTIFACTS))?;
        let found = artifacts.file(name).map_err(self.failed(name))?;
        let (mut file, stat) = found.ok_or_else(|| self.missing(name))?;
        let wrong = |fault| ReadError::Answer {
            file: name.clone(),
            fault,
        };
        if u64::try_from(stat.st_size).ok() != Some(artifact.size_bytes) {
            return Err(wrong("has another size than the manifest states"));
        }
        file.seek(SeekFrom::Start(from)).map_err(self.failed(name))?;
        let mut left = artifact.size_bytes.saturating_sub(from);
        let mut chunk = vec![0; limits::CHUNK_BYTES];
        while left > 0 {
            let room = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            match file.read(&mut chunk[..room]).map_err(self.failed(name))? {
                0 => return Err(wrong("has fewer bytes than the manifest states")),
                n => {
                    sink.append(&chunk[..n]).map_err(ReadError::Sink)?;
                    left -= n as u64;
                }
            }
        }
        Ok(())
    }
}
