//! The one place where the link's JSON is read and written.

use serde::{Serialize, de::DeserializeOwned};

/// Strict decoding of one document; the reason is dropped because it may quote a value.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes).ok()
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_else(|error| unreachable!("link messages are plain data: {error}"))
}
