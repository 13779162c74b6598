//! The installation's one sandbox selection (core.md section 5).

mod reset;
mod rollout;
mod suspension;
mod view;

use std::sync::Arc;

use axum::{Json, extract::State};
use oac_model::{
    ProviderKind, Resources, RuntimeRelease, Secret, Specification, SpecificationError, Workspace,
};
use oac_store::{DeploymentLock, DeploymentRow, Selection, StoreError, Tx};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa_axum::routes;

use super::shapes::{ProviderSchema, ResourcesSchema, RuntimeSchema, WorkspaceSchema};
use crate::{
    Core,
    http::{
        ApiError,
        auth::{Audited, CoreKeyAuth, Credential},
        limits,
        router::{Body, Route},
        strict::{NoQuery, StrictJson, StrictQuery},
    },
    placement,
};
pub(crate) use rollout::{NodeReadiness, ReadinessState};
pub(crate) use view::{Mode, SafeDeployment};

pub(crate) fn routes() -> Vec<Route> {
    let json = Body::Json {
        limit: limits::JSON_BODY_BYTES,
    };
    vec![
        Route::new(Credential::CoreKey, Body::None, routes!(get_deployment)),
        Route::new(Credential::CoreKey, json, routes!(create_deployment)).refuses(&[409]),
        Route::new(Credential::CoreKey, json, routes!(update_deployment)).refuses(&[409]),
        Route::new(Credential::CoreKey, json, routes!(suspension::change_suspension)).refuses(&[409]),
        Route::new(Credential::CoreKey, json, routes!(reset::reset_deployment)).refuses(&[409]),
        Route::new(Credential::CoreKey, Body::None, routes!(reset::cancel_reset)).refuses(&[409]),
    ]
}

/// A selection. Which members beside the first two belong to it depends on the provider.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct DeploymentSelection {
    /// The generation this selection is to replace; 0 initially.
    expected_generation: u64,
    #[schema(value_type = ProviderSchema)]
    provider: ProviderKind,
    #[schema(nullable = false, value_type = Option<ResourcesSchema>)]
    resources: Option<Resources>,
    #[schema(nullable = false, value_type = Option<RuntimeSchema>)]
    runtime: Option<RuntimeRelease>,
    #[schema(nullable = false, value_type = Option<WorkspaceSchema>)]
    workspace: Option<Workspace>,
    #[schema(nullable = false, value_type = Option<Object>)]
    configuration: Option<Map<String, Value>>,
    #[schema(nullable = false, value_type = Option<String>)]
    credential: Option<Secret>,
}

/// A write to the deployment under its exclusive lock.
struct Write {
    tx: Tx,
    /// As it is stored before.
    row: DeploymentRow,
}

impl Write {
    async fn begin(core: &Core) -> Result<Self, ApiError> {
        let tx = core.begin().await?;
        tx.lock_deployment(DeploymentLock::Exclusive).await?;
        let row = tx.deployment().await?;
        Ok(Self { tx, row })
    }

    /// 409 unless the caller knows the present generation.
    fn refuse_stale(&self, expected_generation: u64) -> Result<(), ApiError> {
        if i64::try_from(expected_generation) == Ok(self.row.generation) {
            Ok(())
        } else {
            Err(ApiError::generation_stale(self.row.generation))
        }
    }

    /// Commits; placement learns of it, and the caller is shown the deployment, as it is from then on: what is read for that
    /// is of every sandbox there is, and nobody waits for it.
    async fn commit(self, core: &Core) -> Result<Json<SafeDeployment>, ApiError> {
        let committed = self.tx.commit().await;
        // However it was answered: it may be stored.
        placement::refresh_deployment(core).await;
        committed?;
        let read = core.store.read().await?;
        Ok(Json(
            SafeDeployment::read(&read, &core.links, &core.config).await?,
        ))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Post,
    Put,
}

/// The current selection and what runs under it.
#[utoipa::path(get, path = "/core/v1/sandbox/deployment", responses((status = 200, body = SafeDeployment)))]
async fn get_deployment(
    State(core): State<Arc<Core>>,
    _: CoreKeyAuth,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
) -> Result<Json<SafeDeployment>, ApiError> {
    let read = core.store.read().await?;
    Ok(Json(
        SafeDeployment::read(&read, &core.links, &core.config).await?,
    ))
}

/// Selects a sandbox backend for the first time, or after a completed reset. Repeating it changes nothing.
#[utoipa::path(
    post,
    path = "/core/v1/sandbox/deployment",
    request_body = DeploymentSelection,
    responses((status = 200, body = SafeDeployment))
)]
async fn create_deployment(
    State(core): State<Arc<Core>>,
    auth: CoreKeyAuth,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    StrictJson(body): StrictJson<DeploymentSelection>,
) -> Result<Json<SafeDeployment>, ApiError> {
    select(&core, auth, Method::Post, body).await
}

/// Changes the selection while everything keeps running; nodes prepare the new generation.
#[utoipa::path(
    put,
    path = "/core/v1/sandbox/deployment",
    request_body = DeploymentSelection,
    responses((status = 200, body = SafeDeployment))
)]
async fn update_deployment(
    State(core): State<Arc<Core>>,
    auth: CoreKeyAuth,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    StrictJson(body): StrictJson<DeploymentSelection>,
) -> Result<Json<SafeDeployment>, ApiError> {
    select(&core, auth, Method::Put, body).await
}

async fn select(
    core: &Core,
    auth: CoreKeyAuth,
    method: Method,
    body: DeploymentSelection,
) -> Result<Json<SafeDeployment>, ApiError> {
    let write = Write::begin(core).await?;
    if let Some(specification) = decide(&write, method, body).await? {
        let digest = specification.digest();
        let selection = Selection {
            specification,
            configuration: json!({}),
            metadata: json!({}),
            credential_sealed: None,
        };
        let generation = write.tx.save_selection(&selection).await?;
        let details = json!({
            "provider": selection.specification.provider,
            "generation": generation,
            "specification_digest": digest,
        });
        let entry = Audited::new("sandbox_deployment", write.row.installation_id, "change");
        auth.audit(&write.tx, entry.details(details)).await?;
    }
    write.commit(core).await
}

/// The specification to be saved; `None` when it is the present one. Refusals in the order of core.md section 5.
async fn decide(
    write: &Write,
    method: Method,
    body: DeploymentSelection,
) -> Result<Option<Specification>, ApiError> {
    write.refuse_stale(body.expected_generation)?;
    let Write { tx, row: current } = write;
    if current.resetting() {
        return Err(ApiError::reset_in_progress());
    }
    let DeploymentSelection {
        provider,
        resources,
        runtime,
        workspace,
        configuration,
        credential,
        ..
    } = body;
    let specification = resources.map(|resources| Specification {
        provider,
        resources,
        runtime,
        workspace,
    });
    match current.provider {
        Some(selected) if selected != provider => {
            return Err(ApiError::reset_required(selected.as_str(), provider.as_str()));
        }
        Some(_) => {
            let asked = specification.as_ref().map(Specification::digest);
            let bare = configuration.is_none() && credential.is_none();
            if bare && asked.is_some() && asked == present_digest(tx, current).await? {
                return Ok(None);
            }
            if method == Method::Post {
                return Err(ApiError::deployment_conflict(
                    "Another configuration is saved already: change it with PUT.",
                ));
            }
        }
        None if method == Method::Put => return Err(ApiError::not_configured()),
        None => {}
    }
    if provider != ProviderKind::Docker {
        return Err(ApiError::invalid_member(
            "provider",
            format!(
                "{} is not built into this Core yet: choose docker.",
                provider.as_str()
            ),
        ));
    }
    let Some(specification) = specification else {
        return Err(invalid(
            "resources",
            "resources is missing: give cpus and memory_mib.".to_owned(),
        ));
    };
    specification.validate().map_err(|error| {
        let answer = invalid(error.member(), format!("{error}."));
        match error {
            SpecificationError::Range { min, max, .. } => {
                answer.with_details(json!({ "min": min, "max": max }))
            }
            SpecificationError::Rule { .. } => answer,
        }
    })?;
    for (param, given) in [
        ("configuration", configuration.is_some()),
        ("credential", credential.is_some()),
    ] {
        if given {
            return Err(ApiError::invalid_member(
                param,
                format!("{param} does not belong to Docker: remove it."),
            ));
        }
    }
    Ok(Some(specification))
}

fn invalid(param: &str, message: String) -> ApiError {
    ApiError::bad_request("invalid_sandbox_configuration", message).with_param(param)
}

async fn present_digest(tx: &Tx, current: &DeploymentRow) -> Result<Option<oac_model::Digest>, StoreError> {
    match current.target() {
        Some(target) => Ok(tx.generation(target).await?.map(|row| row.digest)),
        None => Ok(None),
    }
}
