//! `sandbox-node/install/…`: the files that hosts become nodes with, for anyone (releases.md section 6).

use std::sync::Arc;

use axum::{Extension, extract::State, http::HeaderMap, response::Response};
use oac_release::metadata::Metadata;
use utoipa_axum::routes;

use crate::{
    Core,
    http::{
        ApiError,
        auth::Credential,
        router::{Body, Route},
        stall::Urgency,
        strict::{NoQuery, StrictQuery},
        target::Target,
    },
    releases::serve::{self, Named, Sending},
};

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

pub(crate) fn routes() -> Vec<Route> {
    let open = |api| Route::new(Credential::Open, Body::None, api);
    vec![
        open(routes!(index_json)).refuses(&[404]),
        open(routes!(current_manifest)).refuses(&[404]),
        open(routes!(current_sums)).refuses(&[404]),
        open(routes!(current_artifact)).refuses(&[404]),
        open(routes!(release_manifest)),
        open(routes!(release_sums)),
        open(routes!(release_artifact)),
    ]
}

fn sending(core: &Core, urgency: Urgency) -> Sending<'_> {
    Sending {
        release_url: core.config.release_url.as_ref(),
        downloads: &core.releases.downloads,
        urgency,
    }
}

/// What this console offers to hosts.
#[utoipa::path(get, path = "/api/v1/sandbox-node/install/index.json", responses(
    (status = 200, description = "The current release in short, and the commits of all", content_type = "application/json")
))]
async fn index_json(
    State(core): State<Arc<Core>>,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    serve::index(&core, &headers)
}

/// manifest.json of the current release.
#[utoipa::path(get, path = "/api/v1/sandbox-node/install/manifest.json", responses(
    (status = 200, description = "The manifest, whole", content_type = "application/json")
))]
async fn current_manifest(
    State(core): State<Arc<Core>>,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let shelf = core.releases.shelf();
    let commit = serve::current(&shelf)?;
    serve::metadata(
        &shelf,
        commit,
        Named::Current,
        JSON,
        Metadata::manifest_bytes,
        &headers,
    )
}

/// SHA256SUMS of the current release.
#[utoipa::path(get, path = "/api/v1/sandbox-node/install/SHA256SUMS", responses(
    (status = 200, description = "The checksums, whole", content_type = "text/plain")
))]
async fn current_sums(
    State(core): State<Arc<Core>>,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let shelf = core.releases.shelf();
    let commit = serve::current(&shelf)?;
    serve::metadata(
        &shelf,
        commit,
        Named::Current,
        TEXT,
        Metadata::sums_bytes,
        &headers,
    )
}

/// A file of the current release.
#[utoipa::path(get, path = "/api/v1/sandbox-node/install/artifacts/{filename}",
    params(("filename" = String, Path, description = "As the manifest names it")),
    responses(
        (status = 200, description = "The file", content_type = "application/octet-stream"),
        (status = 206, description = "The range that was asked for", content_type = "application/octet-stream"),
        (status = 302, description = "It is found elsewhere"),
        (status = 416, description = "The range is behind the file's end")
    )
)]
async fn current_artifact(
    State(core): State<Arc<Core>>,
    Extension(urgency): Extension<Urgency>,
    target: Target,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let shelf = core.releases.shelf();
    let commit = serve::current(&shelf)?;
    serve::artifact(
        sending(&core, urgency),
        shelf,
        commit,
        target.text("filename"),
        Named::Current,
        &headers,
    )
    .await
}

/// manifest.json of one release.
#[utoipa::path(get, path = "/api/v1/sandbox-node/install/releases/{commit}/manifest.json",
    params(("commit" = String, Path, description = "40 hex digits")),
    responses((status = 200, description = "The manifest, whole", content_type = "application/json"))
)]
async fn release_manifest(
    State(core): State<Arc<Core>>,
    target: Target,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let (shelf, commit) = (core.releases.shelf(), target.id("commit")?);
    serve::metadata(
        &shelf,
        commit,
        Named::Release,
        JSON,
        Metadata::manifest_bytes,
        &headers,
    )
}

/// SHA256SUMS of one release.
#[utoipa::path(get, path = "/api/v1/sandbox-node/install/releases/{commit}/SHA256SUMS",
    params(("commit" = String, Path, description = "40 hex digits")),
    responses((status = 200, description = "The checksums, whole", content_type = "text/plain"))
)]
async fn release_sums(
    State(core): State<Arc<Core>>,
    target: Target,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let (shelf, commit) = (core.releases.shelf(), target.id("commit")?);
    serve::metadata(
        &shelf,
        commit,
        Named::Release,
        TEXT,
        Metadata::sums_bytes,
        &headers,
    )
}

/// A file of one release.
#[utoipa::path(get, path = "/api/v1/sandbox-node/install/releases/{commit}/artifacts/{filename}",
    params(
        ("commit" = String, Path, description = "40 hex digits"),
        ("filename" = String, Path, description = "As the manifest names it")
    ),
    responses(
        (status = 200, description = "The file", content_type = "application/octet-stream"),
        (status = 206, description = "The range that was asked for", content_type = "application/octet-stream"),
        (status = 302, description = "It is found elsewhere"),
        (status = 416, description = "The range is behind the file's end")
    )
)]
async fn release_artifact(
    State(core): State<Arc<Core>>,
    Extension(urgency): Extension<Urgency>,
    target: Target,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let (shelf, commit) = (core.releases.shelf(), target.id("commit")?);
    serve::artifact(
        sending(&core, urgency),
        shelf,
        commit,
        target.text("filename"),
        Named::Release,
        &headers,
    )
    .await
}
