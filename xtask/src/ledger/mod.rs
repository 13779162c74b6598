//! What is required, what ran, and what that proves.

pub(crate) mod catalogue;
pub(crate) mod junit;
pub(crate) mod proof;
pub(crate) mod table;
