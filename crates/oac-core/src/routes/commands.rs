//! The commands that an operator pastes on a host (installer.md section 1), whole: whoever shows one adds nothing.

use std::sync::Arc;

use axum::{Json, extract::State};
use oac_model::{InstallationId, ProviderKind, Secret};
use oac_release::{
    command::{CommandError, Commands, Confirmation},
    index::Index,
};
use serde::Serialize;
use utoipa_axum::routes;

use crate::{
    Core,
    config::PublicUrl,
    http::{
        ApiError,
        auth::{CoreKeyAuth, Credential},
        router::{Body, Route},
        strict::{NoQuery, StrictQuery},
    },
};

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::new(Credential::CoreKey, Body::None, routes!(cleanup_commands)).refuses(&[409])]
}

/// The address that hosts are told, or the refusal that says to set one.
pub(crate) fn usable_address(core: &Core) -> Result<&PublicUrl, ApiError> {
    let address = core.config.public_url.as_ref().filter(|url| url.is_usable());
    address.ok_or_else(|| {
        ApiError::configuration_error("Set a public address other machines can reach before adding nodes")
    })
}

fn index(core: &Core) -> Option<Index> {
    core.releases.shelf().index(core.config.release_url.is_some())
}

fn failed(error: CommandError) -> ApiError {
    ApiError::internal("write a command", &error)
}

/// What makes a host a node of `installation`. `None` while this Core serves no installer, or lacks a file that nodes of
/// `provider` need.
pub(crate) fn install(
    core: &Core,
    address: &PublicUrl,
    installation: InstallationId,
    provider: ProviderKind,
    token: &Secret,
) -> Result<Option<Secret>, ApiError> {
    let Some(index) = index(core).filter(|index| index.providers.serve(provider)) else {
        return Ok(None);
    };
    let commands = Commands::new(address.as_str(), &index);
    commands
        .map(|commands| commands.install(installation, provider, token))
        .transpose()
        .map_err(failed)
}

/// What gives a host back, pasted there.
#[derive(Serialize, utoipa::ToSchema)]
struct CleanupCommands {
    /// For a host whose node was removed, or that never became one: one line.
    command: String,
    /// The same without asking Core, for a host whose node enrolled with an address that is gone.
    forced_command: String,
}

/// The commands that give a host back. They are the same for every host of the installation.
#[utoipa::path(
    get,
    path = "/core/v1/sandbox/cleanup-commands",
    responses((status = 200, body = CleanupCommands))
)]
async fn cleanup_commands(
    State(core): State<Arc<Core>>,
    _: CoreKeyAuth,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
) -> Result<Json<CleanupCommands>, ApiError> {
    let installation = core.store.read().await?.deployment().await?.installation_id;
    let address = usable_address(&core)?;
    let index = index(&core);
    let commands = index
        .as_ref()
        .and_then(|index| Commands::new(address.as_str(), index));
    let commands = commands.ok_or_else(|| {
        ApiError::configuration_error(
            "This console serves no node installer: publish a release that holds it.",
        )
    })?;
    let uninstall = |confirmation| commands.uninstall(installation, confirmation).map_err(failed);
    Ok(Json(CleanupCommands {
        command: uninstall(Confirmation::Needed)?,
        forced_command: uninstall(Confirmation::Waived)?,
    }))
}
