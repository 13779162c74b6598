//! Strict bodies and queries: unknown, duplicate, mis-cased and unexpectedly null members are 400.

mod query;

use axum::{
    extract::{FromRequest, FromRequestParts, Request},
    http::request::Parts,
};
use oac_wire::strict::{self, Mistake};
use serde::de::DeserializeOwned;

use super::{ApiError, gate::BufferedBody};
pub use query::decode as decode_query;

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
    strict::from_slice(bytes).map_err(|error| {
        let what_to_do = match error.mistake {
            Mistake::Syntax => "send one JSON object",
            Mistake::Missing => "add it",
            Mistake::Unknown | Mistake::Duplicate => "remove it",
            Mistake::Null => "give a value or leave it out",
            Mistake::Type | Mistake::Value => "correct it",
        };
        let message = format!("{error}: {what_to_do}.");
        if error.member.is_empty() {
            ApiError::invalid_request(message)
        } else {
            ApiError::invalid_member(error.member, message)
        }
    })
}

/// A body with the member `{}` and nothing in it.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

/// The query of a route that knows no names.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoQuery {}

/// The query as a `T` whose members are texts, whole numbers, booleans, unit enums or options of them. `T` must deny
/// unknown fields.
#[derive(Debug)]
pub struct StrictQuery<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for StrictQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        decode_query(parts.uri.query().unwrap_or("")).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "decoded for its errors")]
    struct Outer {
        name: String,
        inner: Option<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "decoded for its errors")]
    struct Inner {
        count: u32,
    }

    #[test]
    fn a_body_that_breaks_a_rule_at_any_depth_is_refused_with_the_member() {
        assert!(decode::<Outer>(br#"{"name":"n","inner":{"count":1}}"#).is_ok());
        for (body, param) in [
            (
                &br#"{"name":"n","inner":{"count":1,"more":1}}"#[..],
                Some("inner.more"),
            ),
            (br#"{"name":"n","inner":{"count":null}}"#, Some("inner.count")),
            (br#"{"name":"n","inner":null}"#, Some("inner")),
            (br#"{"name":"n","inner":{}}"#, Some("inner.count")),
            (br#"{"name":"n","inner":[1]}"#, Some("inner")),
            (br#"{"name":"n","name":"n"}"#, Some("name")),
            (br#"{"Name":"n"}"#, Some("Name")),
            (br#"{"name":"n"} x"#, None),
            (b"", None),
        ] {
            let error = decode::<Outer>(body).unwrap_err();
            assert_eq!(error.status, 400);
            assert_eq!(error.param.as_deref(), param, "{}", String::from_utf8_lossy(body));
            let code = if param.is_some() {
                "invalid_request_error"
            } else {
                "invalid_request"
            };
            assert_eq!(error.code, Some(code));
        }
    }
}
