//! What the headers of a file request ask for. A condition that is not evaluated is refused, never passed over.

use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use oac_link::files::{ByteRange, DIGEST_HEADER, is_version, read_digest};
use oac_model::Digest;

use crate::http::ApiError;

/// The only value of a header; `Err` when it is repeated or no text.
fn only(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(drop),
        (Some(_), Some(_)) => Err(()),
    }
}

/// One range of bytes. Several, or another unit, mean the whole file, as HTTP allows.
pub(super) fn range(headers: &HeaderMap) -> Option<ByteRange> {
    only(headers, header::RANGE).ok()?.and_then(ByteRange::parse)
}

/// `None` without the header; the version it names, or none for a value that no answer of Core gave.
pub(super) fn if_range(headers: &HeaderMap) -> Option<Option<String>> {
    let text = only(headers, header::IF_RANGE).unwrap_or(Some(""))?;
    let version = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .filter(|version| is_version(version));
    Some(version.map(str::to_owned))
}

/// The body's length, which must be known before and within the limit.
pub(super) fn length(headers: &HeaderMap) -> Result<u64, ApiError> {
    let length = only(headers, header::CONTENT_LENGTH)
        .ok()
        .flatten()
        .filter(|_| !headers.contains_key(header::TRANSFER_ENCODING))
        .and_then(|text| text.parse::<u64>().ok())
        .ok_or_else(|| {
            ApiError::new(
                StatusCode::LENGTH_REQUIRED,
                Some("invalid_request"),
                "The body's length is not stated: send Content-Length.",
            )
        })?;
    let limit = oac_link::limits::PUT_FILE_BYTES;
    if length > limit {
        return Err(ApiError::body_too_large(limit as usize));
    }
    Ok(length)
}

/// `If-None-Match: *`.
pub(super) fn only_new(headers: &HeaderMap) -> Result<bool, ApiError> {
    for unsupported in [
        header::IF_MATCH,
        header::IF_UNMODIFIED_SINCE,
        header::CONTENT_RANGE,
    ] {
        refuse(headers, unsupported)?;
    }
    match only(headers, header::IF_NONE_MATCH) {
        Ok(None) => Ok(false),
        Ok(Some("*")) => Ok(true),
        _ => Err(ApiError::invalid_request(
            "If-None-Match is supported with the value * alone: send that or leave it out.",
        )),
    }
}

/// For a request that takes no condition.
pub(super) fn no_conditions(headers: &HeaderMap) -> Result<(), ApiError> {
    for unsupported in [
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_UNMODIFIED_SINCE,
    ] {
        refuse(headers, unsupported)?;
    }
    Ok(())
}

fn refuse(headers: &HeaderMap, name: HeaderName) -> Result<(), ApiError> {
    if headers.contains_key(&name) {
        return Err(ApiError::invalid_request(format!(
            "The header {name} is not supported here: leave it out."
        )));
    }
    Ok(())
}

/// The SHA-256 of `Content-Digest`.
pub(super) fn digest(headers: &HeaderMap) -> Result<Option<Digest>, ApiError> {
    let malformed = || {
        ApiError::invalid_request(
            "Content-Digest is malformed: send sha-256=:…: with the base64 of the digest.",
        )
    };
    let mut found = None;
    for value in headers.get_all(HeaderName::from_static(DIGEST_HEADER)) {
        let text = value.to_str().map_err(|_| malformed())?;
        found = read_digest(text).map_err(|_| malformed())?.or(found);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, values: &[&'static str]) -> HeaderMap {
        values
            .iter()
            .map(|value| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn only_a_version_that_an_answer_gave_continues_it() {
        assert_eq!(if_range(&HeaderMap::new()), None);
        assert_eq!(
            if_range(&with("if-range", &["\"a-1\""])),
            Some(Some("a-1".into()))
        );
        for other in [
            "W/\"a-1\"",
            "Sat, 29 Oct 1994 19:43:31 GMT",
            "\"\"",
            "a-1",
            "\"a b\"",
        ] {
            assert_eq!(if_range(&with("if-range", &[other])), Some(None), "{other}");
        }
        assert_eq!(if_range(&with("if-range", &["\"a\"", "\"b\""])), Some(None));
    }

    #[test]
    fn a_condition_that_is_not_evaluated_is_refused() {
        assert!(only_new(&with("if-none-match", &["*"])).unwrap());
        for (name, value) in [
            ("if-none-match", "\"a\""),
            ("if-match", "*"),
            ("if-unmodified-since", "Sat, 29 Oct 1994 19:43:31 GMT"),
            ("content-range", "bytes 0-1/2"),
        ] {
            assert_eq!(only_new(&with(name, &[value])).unwrap_err().status, 400, "{name}");
        }
        assert_eq!(
            no_conditions(&with("if-none-match", &["*"])).unwrap_err().status,
            400
        );
    }
}
