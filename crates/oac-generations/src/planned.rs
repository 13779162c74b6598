//! The configuration that a later generation gets: the enrolled one's host settings, its own specification, and paths
//! below its release. Pure.

use std::path::Path;

use oac_model::Specification;

use crate::{
    layout::{Layout, store_name},
    native::{DockerNative, MicrosandboxNative, Native},
    outside::{Release, Selected},
    records::{Configuration, Identity, is_key},
};

const SECCOMP: &str = "runtime/seccomp.json";
const HELPER: &str = "native/bin/oac-microsandbox-helper";
const RUNTIME: &str = "native/microsandbox/msb";
const FIRMWARE: &str = "native/microsandbox/libkrunfw.so.";

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("the release is of another commit than the specification selects")]
    OtherRelease,
    #[error("the release has no file {0}")]
    NoFile(&'static str),
    #[error("the release names a file by a path that leaves its directory")]
    Path,
    #[error("the specification lacks what its provider needs")]
    Specification,
}

/// Whether the release is the selected one and its paths stay below it. Its other claims were checked by its reader.
pub(crate) fn check(release: &Release, specification: &Specification) -> Result<(), PlanError> {
    let runtime = specification.runtime.as_ref().ok_or(PlanError::Specification)?;
    if runtime.source_commit != release.source_commit {
        return Err(PlanError::OtherRelease);
    }
    let keys = release.artifacts.iter().all(|artifact| is_key(&artifact.key));
    keys.then_some(()).ok_or(PlanError::Path)
}

pub(crate) fn configuration(
    layout: &Layout,
    enrolled: &Configuration,
    identity: Identity,
    selected: &Selected,
    release: &Release,
) -> Result<Configuration, PlanError> {
    let runtime = selected
        .specification
        .runtime
        .as_ref()
        .ok_or(PlanError::Specification)?;
    let payload = layout.release(release.source_commit);
    let at = |key: &'static str, exact: bool| {
        let fits = |found: &str| {
            if exact {
                found == key
            } else {
                found.starts_with(key)
            }
        };
        let artifact = release.artifacts.iter().find(|artifact| fits(&artifact.key));
        let artifact = artifact.ok_or(PlanError::NoFile(key))?;
        Ok(payload.join(&artifact.key).to_string_lossy().into_owned())
    };
    let native = match &enrolled.native {
        Native::Docker(docker) => Native::Docker(DockerNative {
            host: docker.host.clone(),
            image: runtime.artifacts.image_id.ok_or(PlanError::Specification)?,
            network: docker.network.clone(),
            seccomp_file: at(SECCOMP, true)?,
        }),
        Native::Microsandbox(native) => Native::Microsandbox(MicrosandboxNative {
            helper_path: at(HELPER, true)?,
            runtime_path: at(RUNTIME, true)?,
            firmware_path: at(FIRMWARE, false)?,
            runtime_home: store(enrolled, native, &selected.specification)?,
            checkpoint_root: native.checkpoint_root.clone(),
            network: native.network.clone(),
        }),
    };
    Ok(Configuration {
        installation_id: identity.installation_id,
        provider: selected.specification.provider,
        core_url: selected.core_url.clone(),
        specification: selected.specification.clone(),
        generation: identity.generation,
        native,
    })
}

/// The enrolled generation's store, or one beside it where runtime or firmware differ.
fn store(
    enrolled: &Configuration,
    native: &MicrosandboxNative,
    specification: &Specification,
) -> Result<String, PlanError> {
    let programs = |specification: &Specification| {
        let artifacts = specification.runtime.as_ref().map(|runtime| &runtime.artifacts);
        artifacts.and_then(|a| a.runtime_sha256.zip(a.firmware_sha256))
    };
    let own = programs(specification).ok_or(PlanError::Specification)?;
    if programs(&enrolled.specification) == Some(own) {
        return Ok(native.runtime_home.clone());
    }
    let beside = Path::new(&native.runtime_home)
        .parent()
        .ok_or(PlanError::Specification)?;
    let name = store_name(enrolled.installation_id, Some(own));
    Ok(beside.join(name).to_string_lossy().into_owned())
}
