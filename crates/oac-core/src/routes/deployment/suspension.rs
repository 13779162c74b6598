//! When idle sandboxes are suspended, and for how long they are kept (core.md section 5).

use std::sync::Arc;

use axum::{Json, extract::State};
use oac_model::ProviderKind;
use serde::Deserialize;
use serde_json::json;

use super::{SafeDeployment, Write};
use crate::{
    Core,
    http::{
        ApiError,
        auth::{Audited, CoreKeyAuth},
        strict::{NoQuery, StrictJson, StrictQuery},
    },
};

const IDLE_SECONDS: std::ops::RangeInclusive<i64> = 60..=86_400;
const RETENTION_SECONDS: std::ops::RangeInclusive<i64> = 3_600..=2_592_000;

/// The suspension policy, both members.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SuspensionPolicy {
    /// A sandbox idle this long is suspended.
    #[schema(minimum = 60, maximum = 86_400)]
    idle_seconds: i64,
    /// A suspended sandbox is kept this long.
    #[schema(minimum = 3_600, maximum = 2_592_000)]
    retention_seconds: i64,
}

fn within(param: &str, value: i64, range: &std::ops::RangeInclusive<i64>) -> Result<u32, ApiError> {
    u32::try_from(value)
        .ok()
        .filter(|_| range.contains(&value))
        .ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            ApiError::invalid_member(param, format!("{param} must be {least} to {most}: correct it."))
        })
}

/// Saves the suspension policy; sandboxes and generation stay. 409 `sandbox_deployment_conflict` unless the backend is
/// microsandbox, which alone suspends.
#[utoipa::path(
    patch,
    path = "/core/v1/sandbox/deployment/suspension",
    request_body = SuspensionPolicy,
    responses((status = 200, body = SafeDeployment))
)]
pub(super) async fn change_suspension(
    State(core): State<Arc<Core>>,
    auth: CoreKeyAuth,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    StrictJson(policy): StrictJson<SuspensionPolicy>,
) -> Result<Json<SafeDeployment>, ApiError> {
    let idle = within("idle_seconds", policy.idle_seconds, &IDLE_SECONDS)?;
    let retention = within("retention_seconds", policy.retention_seconds, &RETENTION_SECONDS)?;
    let write = Write::begin(&core).await?;
    let Write { tx, row } = &write;
    if row.resetting() {
        return Err(ApiError::reset_in_progress());
    }
    if row.provider != Some(ProviderKind::Microsandbox) {
        return Err(ApiError::deployment_conflict(
            "Only microsandbox suspends sandboxes: there is no policy to change.",
        ));
    }
    if (row.idle_seconds, row.retention_seconds) != (idle, retention) {
        tx.save_suspension(idle, retention).await?;
        let shape =
            |idle: u32, retention: u32| json!({ "idle_seconds": idle, "retention_seconds": retention });
        let details = json!({
            "from": shape(row.idle_seconds, row.retention_seconds),
            "to": shape(idle, retention),
        });
        let entry = Audited::new("sandbox_deployment", row.installation_id, "suspension_change");
        auth.audit(tx, entry.details(details)).await?;
    }
    write.commit(&core).await
}
