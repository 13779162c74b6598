use serde::{Deserialize, Serialize};

/// A member written `|null` in the design: it must be present, and `null` is one of its values.
/// `Option` members are the `?` ones: they may be absent and are never `null`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename = "Nullable")]
pub struct Nullable<T>(pub Option<T>);

impl<T> Default for Nullable<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> From<Option<T>> for Nullable<T> {
    fn from(value: Option<T>) -> Self {
        Self(value)
    }
}
