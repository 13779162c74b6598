//! The objects a path names.

use std::str::FromStr;

use axum::{
    extract::{FromRequestParts, RawPathParams},
    http::request::Parts,
};

use super::ApiError;

/// The path's variable segments. Reading one is a step of its own, because a name that can name nothing is answered
/// 404 only after body and query were found well-formed.
#[derive(Debug)]
pub struct Target(Vec<(String, String)>);

impl Target {
    /// The segment `{name}` as an id; 404 for text that is no id.
    ///
    /// # Panics
    /// When the route's path has no `{name}`: an error in the code.
    pub fn id<T: FromStr>(&self, name: &str) -> Result<T, ApiError> {
        self.text(name).parse().map_err(|_| ApiError::not_found())
    }

    /// The segment `{name}`, percent-decoded.
    pub fn text(&self, name: &str) -> &str {
        match self.0.iter().find(|(key, _)| key == name) {
            Some((_, value)) => value,
            None => panic!("the route has no segment {name}"),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Target {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let params = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|_| ApiError::not_found())?;
        Ok(Self(
            params.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        ))
    }
}
