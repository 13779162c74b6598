//! The one place where the link's JSON is read and written.

use oac_wire::strict;
use serde::{Serialize, de::DeserializeOwned};

/// Strict decoding of one document.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    strict::from_slice(bytes).ok()
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_else(|error| unreachable!("link messages are plain data: {error}"))
}
