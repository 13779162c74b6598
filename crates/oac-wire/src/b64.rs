use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Bytes that travel as standard, padded, canonical base64 (protocol.md section 2, `b64`).
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct B64(pub Vec<u8>);

impl B64 {
    /// The bytes of base64 `text`; `None` unless standard, padded and canonical.
    pub fn decode(text: &[u8]) -> Option<Self> {
        base64_simd::STANDARD.decode_to_vec(text).ok().map(Self)
    }

    pub fn encode(&self) -> String {
        base64_simd::STANDARD.encode_to_string(&self.0)
    }
}

impl fmt::Debug for B64 {
    /// The length alone: the bytes are commands' input and output.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "B64({} bytes)", self.0.len())
    }
}

impl From<Vec<u8>> for B64 {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl Serialize for B64 {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.encode())
    }
}

impl<'de> Deserialize<'de> for B64 {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl de::Visitor<'_> for TextVisitor {
            type Value = B64;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("standard padded base64")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<B64, E> {
                B64::decode(text.as_bytes()).ok_or_else(|| E::custom("expected standard padded base64"))
            }
        }
        d.deserialize_str(TextVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_padded_base64_is_decoded() {
        assert_eq!(B64::decode(b"aGk="), Some(B64(b"hi".to_vec())));
        for bad in ["aGk", "aGl=", "aGk=\n", " aGk=", "aG-_", "aGk==", "="] {
            assert_eq!(B64::decode(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
