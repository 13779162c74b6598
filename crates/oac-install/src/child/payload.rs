//! Step 21's releases: where they come from, which files a node is made of, and what of their failures an operator is
//! told.

use http::HeaderValue;
use oac_dial::Surroundings;
use oac_generations::{
    layout::{PROGRAM, RUNTIME_ARTIFACTS},
    records::{self, Installation, Record as _},
};
use oac_model::{Digest, ProviderKind, SourceCommit, Specification};
use oac_records::Directory;
use oac_release::{
    bundle::Bundle,
    fetch::Remote,
    layout::{self, Role},
    manifest::Artifact,
    metadata::Metadata,
    payload::PayloadError,
    source::{self, ReadError, Source},
};

use super::{file_failed, record};
use crate::{arguments::Releases, hint::Hint, plan::place::disk_full};

const PROGRAM_NAME: HeaderValue =
    HeaderValue::from_static(concat!("oac-node-install/", env!("CARGO_PKG_VERSION")));

/// Opens the place.
pub(super) fn source(releases: &Releases) -> Result<Box<dyn Source>, Hint> {
    match releases {
        Releases::Bundle(folder) => Ok(Box::new(
            Bundle::open(folder).map_err(|error| read_hint(error, true))?,
        )),
        Releases::At(origin) => {
            let around = Surroundings::of_this_process()
                .map_err(|error| Hint::failed("the proxy settings", &error))?;
            let remote = Remote::new(origin.url(), around, PROGRAM_NAME)
                .map_err(|error| Hint::failed("Downloads could not be prepared", &error))?;
            Ok(Box::new(remote))
        }
    }
}

/// What a node on this host is made of: its program, and its Runtime's files.
pub(super) struct Files {
    pub(crate) program_commit: SourceCommit,
    pub(crate) program: Artifact,
    pub(crate) runtime_commit: SourceCommit,
    pub(crate) runtime: Vec<Artifact>,
}

impl Files {
    /// From both releases' metadata: the installer's own, whose manifest the command names, and the selected one.
    pub(super) fn selected(
        source: &mut dyn Source,
        is_bundle: bool,
        own: SourceCommit,
        manifest_sha256: Option<Digest>,
        specification: &Specification,
    ) -> Result<Self, Hint> {
        let told = |error| read_hint(error, is_bundle);
        let selected = specification
            .runtime
            .as_ref()
            .ok_or(Hint::ReleaseDiffers)?
            .source_commit;
        let program = source::release(source, own, manifest_sha256).map_err(told)?;
        let runtime = match selected == own {
            true => {
                let differs = |_| Hint::ReleaseDiffers;
                program.manifest().matches(specification).map_err(differs)?;
                program.clone()
            }
            false => source::runtime_release(source, specification).map_err(told)?,
        };
        Self::of(&program, &runtime, specification.provider)
    }

    fn of(program: &Metadata, runtime: &Metadata, provider: ProviderKind) -> Result<Self, Hint> {
        let files = runtime
            .manifest()
            .runtime_files(provider)
            .ok_or(Hint::ReleaseDiffers)?;
        Ok(Self {
            program_commit: program.source_commit(),
            program: program
                .manifest()
                .file(&layout::NODE)
                .ok_or(Hint::ReleaseDiffers)?
                .clone(),
            runtime_commit: runtime.source_commit(),
            runtime: files.into_iter().cloned().collect(),
        })
    }

    /// The Runtime's files but the image's archive.
    pub(super) fn placed(&self) -> impl Iterator<Item = &Artifact> {
        self.runtime
            .iter()
            .filter(|artifact| artifact.role != Role::Image)
    }

    pub(super) fn image(&self) -> Option<&Artifact> {
        self.runtime.iter().find(|artifact| artifact.role == Role::Image)
    }

    /// Step 20: the records of what is placed, `installation.json` last, since it is what makes them this attempt's.
    pub(super) fn write_records(
        &self,
        root: &Directory,
        installation: &Installation,
        source_url: &str,
    ) -> Result<(), Hint> {
        let artifacts = records::RuntimeArtifacts {
            installation_id: installation.installation_id,
            source_commit: self.runtime_commit,
            sha256: self
                .runtime
                .iter()
                .map(|file| (file.key.clone(), file.sha256))
                .collect(),
        };
        let program = records::Program {
            format: 1,
            source_commit: self.program_commit,
            sha256: self.program.sha256,
        };
        let preparation = records::Preparation {
            source_url: source_url.to_owned(),
        };
        for (name, bytes) in [
            (RUNTIME_ARTIFACTS, artifacts.encode()),
            (PROGRAM, program.encode()),
            (oac_generations::layout::PREPARATION, preparation.encode()),
            (oac_generations::layout::INSTALLATION, installation.encode()),
        ] {
            write(root, name, &bytes)?;
        }
        Ok(())
    }
}

/// Leaves equal bytes alone.
pub(super) fn write(root: &Directory, name: &str, bytes: &[u8]) -> Result<(), Hint> {
    let present = root
        .read(name, 1024 * 1024)
        .map_err(|error| file_failed(&error))?;
    if present.as_deref() == Some(bytes) {
        return Ok(());
    }
    root.write(name, bytes).map_err(|error| file_failed(&error))
}

/// What a registered node recorded of its files: their digests, by their paths, the program's among them.
pub(super) fn recorded(root: &Directory) -> Result<(records::Program, records::RuntimeArtifacts), Hint> {
    let missing = |name: &str| super::damaged(&root.path().join(name));
    let program = record(root, PROGRAM)?.ok_or_else(|| missing(PROGRAM))?;
    let artifacts = record(root, RUNTIME_ARTIFACTS)?.ok_or_else(|| missing(RUNTIME_ARTIFACTS))?;
    Ok((program, artifacts))
}

pub(super) fn read_hint(error: ReadError, is_bundle: bool) -> Hint {
    match error {
        ReadError::NoRelease(commit) if is_bundle => Hint::BundleWithout { commit },
        ReadError::NoRelease(commit) => Hint::NoRelease { commit },
        ReadError::OtherManifest | ReadError::Metadata(_) | ReadError::Mismatch(_) => Hint::ReleaseDiffers,
        ReadError::Stalled { .. } => Hint::Stalled,
        ReadError::Local { .. } => Hint::BundleUnreadable,
        ReadError::Status { file, .. }
        | ReadError::Answer { file, .. }
        | ReadError::Redirect { file, .. }
        | ReadError::Broken { file, .. } => Hint::Transfer { file },
        ReadError::Sink(_) => Hint::failed("A file could not be kept", &error),
    }
}

pub(super) fn payload_hint(error: PayloadError, root: &Directory, is_bundle: bool) -> Hint {
    match error {
        PayloadError::Conflict(key) => Hint::FileDiffers {
            file: root.path().join(key).display().to_string(),
        },
        PayloadError::Space { needed, free } => disk_full(&root.path().display().to_string(), needed, free),
        PayloadError::Checksum(file) => Hint::Checksum { file },
        PayloadError::Source(error) => read_hint(error, is_bundle),
        PayloadError::File(error) => file_failed(&error),
        error @ PayloadError::Read(..) => Hint::failed("A file could not be read", &error),
    }
}
