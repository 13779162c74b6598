//! Names that people give.

use super::{ApiError, limits::NAME_BYTES};

/// A Project's, key's or node's name: not blank, at most 128 bytes, without NUL, CR and LF.
pub fn check_name(param: &str, name: &str) -> Result<(), ApiError> {
    let usable = !name.trim().is_empty() && name.len() <= NAME_BYTES && !name.contains(['\0', '\r', '\n']);
    if usable {
        Ok(())
    } else {
        Err(ApiError::invalid_name(param))
    }
}
