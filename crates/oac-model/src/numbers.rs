//! Numbers with a range of their own: `pos`, 1..2^63−1 (protocol.md section 2).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A number outside 1..2^63−1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected an integer from 1 to 9223372036854775807")]
pub struct OutOfRange;

macro_rules! positive {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(i64);

        impl $name {
            pub const FIRST: Self = Self(1);

            /// As the database and the wire hold it; always at least 1.
            pub fn get(self) -> i64 {
                self.0
            }

            /// The next higher number; `None` after 2^63−1.
            pub fn next(self) -> Option<Self> {
                self.0.checked_add(1).map(Self)
            }
        }

        impl TryFrom<i64> for $name {
            type Error = OutOfRange;
            fn try_from(value: i64) -> Result<Self, OutOfRange> {
                if value >= 1 { Ok(Self(value)) } else { Err(OutOfRange) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_i64(self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                Self::try_from(i64::deserialize(d)?).map_err(D::Error::custom)
            }
        }
    )* };
}

positive! {
    /// A deployment generation; never reused within an installation.
    Generation,
    /// Core's current ownership of the installation; fences every connection and write.
    OwnerEpoch,
}
