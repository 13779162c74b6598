//! SHA-256 digests and commit names, in the text forms of protocol.md sections 2 and 13.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

/// Text that is not the digest or commit form it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected {0}")]
pub struct ParseDigestError(&'static str);

fn lower_hex<const N: usize>(text: &str, expected: &'static str) -> Result<[u8; N], ParseDigestError> {
    let mut bytes = [0; N];
    if text.bytes().any(|b| b.is_ascii_uppercase()) || hex::decode_to_slice(text, &mut bytes).is_err() {
        return Err(ParseDigestError(expected));
    }
    Ok(bytes)
}

macro_rules! hex_type {
    ($(#[$doc:meta])* $name:ident, $bytes:literal, $prefix:literal, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; $bytes]);

        impl $name {
            pub fn from_bytes(bytes: [u8; $bytes]) -> Self {
                Self(bytes)
            }

            pub fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                f.write_str(&hex::encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl FromStr for $name {
            type Err = ParseDigestError;
            fn from_str(text: &str) -> Result<Self, ParseDigestError> {
                let digits = text.strip_prefix($prefix).ok_or(ParseDigestError($expected))?;
                lower_hex(digits, $expected).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = String::deserialize(d)?;
                text.parse().map_err(D::Error::custom)
            }
        }
    };
}

hex_type!(
    /// A SHA-256 digest; text form `hex64`, 64 lowercase hex digits.
    Digest, 32, "", "64 lowercase hex digits"
);
hex_type!(
    /// An image's config or manifest digest; text form `sha256:` and 64 lowercase hex digits.
    ImageDigest, 32, "sha256:", "sha256: and 64 lowercase hex digits"
);
hex_type!(
    /// A source commit; text form 40 lowercase hex digits.
    SourceCommit, 20, "", "40 lowercase hex digits"
);

impl Digest {
    /// SHA-256 of `bytes`.
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Equality in constant time, for digests of secrets.
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl ImageDigest {
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self(*Digest::of(bytes).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_lowercase_hex_is_a_digest() {
        let good = "ab".repeat(32);
        assert_eq!(good.parse::<Digest>().unwrap().to_string(), good);
        for bad in [
            "AB".repeat(32),
            "ab".repeat(31),
            "ab".repeat(33),
            format!("{}g", "a".repeat(63)),
            String::new(),
        ] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
        assert!(good.parse::<ImageDigest>().is_err());
        assert!(format!("sha256:{good}").parse::<ImageDigest>().is_ok());
        assert!("a".repeat(40).parse::<SourceCommit>().is_ok());
        assert!("a".repeat(41).parse::<SourceCommit>().is_err());
    }
}
