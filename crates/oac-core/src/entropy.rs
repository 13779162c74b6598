//! New keys, tokens and credentials: 256 random bits each (core.md section 1).

use oac_model::Secret;

/// What a Core key begins with.
pub const CORE_KEY_PREFIX: &str = "oac_core_";
/// What a Project API key begins with.
pub const PROJECT_KEY_PREFIX: &str = "oac_key_";

/// `prefix` and 64 hex digits of fresh randomness from the operating system.
pub fn secret(prefix: &str) -> Result<Secret, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(Secret::from_entropy(prefix, bytes))
}
