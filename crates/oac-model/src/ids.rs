//! One list of id newtypes. Text form: canonical lowercase hyphenated UUID, never the nil UUID
//! (protocol.md section 2, `uuid`).

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// Text that is not a canonical lowercase hyphenated nonzero UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a lowercase hyphenated nonzero UUID")]
pub struct ParseIdError;

fn parse_canonical(text: &str) -> Result<Uuid, ParseIdError> {
    let id = Uuid::try_parse(text).map_err(|_| ParseIdError)?;
    let mut buffer = Uuid::encode_buffer();
    if id.is_nil() || id.hyphenated().encode_lower(&mut buffer) != text {
        return Err(ParseIdError);
    }
    Ok(id)
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// A fresh random id, from the operating system. For shells; pure code takes ids as arguments.
            pub fn random() -> Self {
                Self(Uuid::new_v4())
            }

            /// The id with these bytes; `None` for the nil UUID.
            pub fn from_uuid(id: Uuid) -> Option<Self> {
                (!id.is_nil()).then_some(Self(id))
            }

            pub fn as_uuid(&self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0.hyphenated())
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                parse_canonical(text).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct IdVisitor;
                impl serde::de::Visitor<'_> for IdVisitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a lowercase hyphenated nonzero UUID")
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(|_| E::invalid_value(serde::de::Unexpected::Str("text"), &self))
                    }
                }
                d.deserialize_str(IdVisitor)
            }
        }
    )* };
}

ids! {
    /// The installation: one database, one Core (with standbys).
    InstallationId,
    /// A Project, which is the tenant of its Sessions' allocations.
    ProjectId,
    /// A Session's durable execution place.
    EnvironmentId,
    /// One Core-owned lease of compute for an Environment.
    AllocationId,
    SessionId,
    InputId,
    TurnId,
    /// What stands for a Session's open files or ports while any is.
    FileOperationId,
    PlacementId,
    NodeId,
    /// An enrollment token's public name.
    EnrollmentId,
    /// One accepted node connection; presence is fenced to it.
    ConnectionId,
    /// One `request` frame.
    RequestId,
    /// One Core operation row; for suspend and resume also the checkpoint's name.
    OperationId,
    CoreKeyId,
    ProjectKeyId,
    ConsoleSessionId,
    /// One start of `oac-runtime`.
    InstanceId,
    /// One accepted sandbox link.
    LinkId,
    /// One boot of a host's kernel.
    BootId,
    /// A checkpoint or workspace store, named by its marker.
    StoreId,
    AuditId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_form_of_a_nonzero_uuid_is_an_id() {
        let good = "11111111-1111-4111-8111-11111111111a";
        assert_eq!(good.parse::<NodeId>().unwrap().to_string(), good);
        for bad in [
            "11111111-1111-4111-8111-11111111111A",
            "11111111111141118111111111111111",
            "{11111111-1111-4111-8111-111111111111}",
            "urn:uuid:11111111-1111-4111-8111-111111111111",
            "00000000-0000-0000-0000-000000000000",
            "",
            " 11111111-1111-4111-8111-111111111111",
        ] {
            assert_eq!(bad.parse::<NodeId>(), Err(ParseIdError), "{bad:?}");
            assert!(serde_json::from_value::<NodeId>(bad.into()).is_err(), "{bad:?}");
        }
    }
}
