//! Text that must never be seen: keys, tokens and credentials (INV-C14, INV-P25, INV-S12).

use std::fmt;

use secrecy::{ExposeSecret, SecretString};

use crate::Digest;

/// A secret. `Debug` and `Display` print `***`; the text is zeroed when dropped. Stores hold `digest()` only.
#[derive(Clone)]
pub struct Secret(SecretString);

/// A node's credential, 32..256 bytes without whitespace.
pub type NodeSecret = Secret;

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(SecretString::from(text.into()))
    }

    /// `prefix` and 64 hex digits of 256 random bits supplied by the caller.
    pub fn from_entropy(prefix: &str, entropy: [u8; 32]) -> Self {
        Self::new(format!("{prefix}{}", hex::encode(entropy)))
    }

    /// The text itself, for the one place that sends or writes it.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// What a database may hold of it.
    pub fn digest(&self) -> Digest {
        Digest::of(self.expose())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.digest().matches(&other.digest())
    }
}
impl Eq for Secret {}

/// Reading a secret from a strict document is allowed; writing one is not, so there is no `Serialize`.
impl<'de> serde::Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // inv: INV-C14
    #[test]
    fn a_secret_prints_as_stars() {
        let secret = Secret::from_entropy("oac_core_", [7; 32]);
        assert_eq!(
            format!("{secret} {secret:?} {:?}", Some(&secret)),
            "*** *** Some(***)"
        );
        assert_eq!(secret.expose().len(), "oac_core_".len() + 64);
        assert_eq!(secret, Secret::new(secret.expose()));
        assert_ne!(secret, Secret::from_entropy("oac_core_", [8; 32]));
    }
}
