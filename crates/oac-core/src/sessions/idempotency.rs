//! `Idempotency-Key`: the same key and body replay the stored answer for 24 hours, another body conflicts
//! (sessions.md section 2).

use axum::{
    body::Body,
    http::{HeaderMap, StatusCode, header},
    response::Response,
};
use oac_model::{Digest, ProjectId};
use oac_store::{IdempotencyRow, StoreError, Tx};
use serde::Serialize;

use crate::{Core, http::ApiError, limits};

const HEADER: &str = "idempotency-key";

/// One keyed request.
#[derive(Debug, Clone)]
pub struct Keyed {
    project: ProjectId,
    /// The route and its object.
    scope: String,
    key: String,
    body: Digest,
}

impl Keyed {
    /// A request with this body to `scope`, the route and its object.
    pub fn new(project: ProjectId, scope: &str, key: &str, body: Digest) -> Self {
        Self {
            project,
            scope: scope.to_owned(),
            key: key.to_owned(),
            body,
        }
    }

    /// What no other request to the same route and object has.
    pub(super) fn key(&self) -> (ProjectId, String) {
        (self.project, self.key.clone())
    }

    /// The answer, to be stored with the write it answers.
    pub(super) fn record(&self, tx: &Tx, status: StatusCode, body: &str) -> IdempotencyRow {
        IdempotencyRow {
            project_id: self.project,
            scope: self.scope.clone(),
            key: self.key.clone(),
            body_digest: self.body,
            response: serde_json::json!({ "status": status.as_u16(), "body": body }),
            created_at: tx.now(),
        }
    }

    /// The request's key; `None` without one.
    pub(super) fn of<T: Serialize>(
        headers: &HeaderMap,
        project: ProjectId,
        scope: String,
        body: &T,
    ) -> Result<Option<Self>, ApiError> {
        let mut values = headers.get_all(HEADER).iter();
        let value = match (values.next(), values.next()) {
            (None, _) => return Ok(None),
            (Some(value), None) => value.to_str().ok(),
            (Some(_), Some(_)) => None,
        };
        let fits = |text: &&str| {
            (1..=limits::IDEMPOTENCY_KEY_BYTES).contains(&text.len())
                && text.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
        };
        let key = value.filter(fits).ok_or_else(|| {
            ApiError::invalid_member(
                "Idempotency-Key",
                "Idempotency-Key is 1 to 128 printable ASCII characters, sent once.",
            )
        })?;
        // Members in declaration order and maps in key order: equal bodies give equal text.
        let text = serde_json::to_vec(body).map_err(|error| ApiError::internal("idempotency", &error))?;
        Ok(Some(Self::new(project, &scope, key, Digest::of(text))))
    }

    /// The stored answer to this request, if it was answered before; 409 if the key named another body.
    pub(super) async fn replay(&self, core: &Core) -> Result<Option<Response>, ApiError> {
        let read = core.store.single();
        let now = read.database_time().await?;
        let Some(record) = read
            .idempotency_record(self.project, &self.scope, &self.key, now)
            .await?
        else {
            return Ok(None);
        };
        if !record.body_digest.matches(&self.body) {
            return Err(ApiError::idempotency_conflict(
                "The Idempotency-Key was used with another body: choose a new key for a new request.",
            ));
        }
        let stored = StoreError::Stored {
            column: "idempotency_records.response".to_owned(),
        };
        let status = record.response["status"]
            .as_u64()
            .and_then(|s| StatusCode::from_u16(s as u16).ok());
        let (Some(status), Some(body)) = (status, record.response["body"].as_str()) else {
            return Err(stored.into());
        };
        Ok(Some(json(status, body.to_owned())))
    }

    /// The answer of the request that was first, after [`Self::store`] said that there is one.
    pub(super) async fn first(&self, core: &Core) -> Result<Response, ApiError> {
        self.replay(core).await?.ok_or_else(|| {
            ApiError::idempotency_conflict(
                "Another request with this Idempotency-Key is being answered: try again.",
            )
        })
    }

    /// Stores the answer with the write it answers; false when another request with this key was first.
    pub(super) async fn store(&self, tx: &Tx, status: StatusCode, body: &str) -> Result<bool, StoreError> {
        let record = self.record(tx, status, body);
        Ok(tx.insert_idempotency_records(&[record]).await? == [true])
    }
}

/// A JSON answer whose text is at hand.
pub(super) fn json(status: StatusCode, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    response
}
