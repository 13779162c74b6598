//! What an operator's request about one object begins with.

use std::sync::Arc;

use axum::{extract::FromRequestParts, http::request::Parts};

use super::{
    ApiError,
    auth::CoreKeyAuth,
    strict::{NoQuery, StrictQuery},
    target::Target,
};
use crate::Core;

/// A valid Core key, no query, and the names in the path; a handler takes its body after it.
pub(crate) struct Operator {
    pub(crate) core: Arc<Core>,
    pub(crate) auth: CoreKeyAuth,
    pub(crate) target: Target,
}

impl FromRequestParts<Arc<Core>> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, core: &Arc<Core>) -> Result<Self, ApiError> {
        let auth = CoreKeyAuth::from_request_parts(parts, core).await?;
        let StrictQuery(NoQuery {}) = StrictQuery::from_request_parts(parts, core).await?;
        let target = Target::from_request_parts(parts, core).await?;
        Ok(Self {
            core: core.clone(),
            auth,
            target,
        })
    }
}
