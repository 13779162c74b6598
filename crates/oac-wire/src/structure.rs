//! The structure of a request or response without its values: member sets, JSON types, integer forms and nulls at every
//! depth. It decides, after a failed typed decode, whether a frame closes the connection or only its operation is
//! invalid. It reads along and keeps nothing, because a peer chooses how much there is.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, Error as _, MapAccess, SeqAccess, Unexpected, Visitor},
};
use serde_json::value::RawValue;

use crate::{
    opaque,
    shape::{Member, Shape},
    strict::{self, StrictError},
};

/// Whether the frame `text` of type `kind` has the structure of `shape`.
pub(crate) fn check(text: &[u8], kind: &str, shape: &'static Shape) -> Result<(), StrictError> {
    strict::frame_from_slice_seed(text, kind, Conform(shape))
}

#[derive(Clone, Copy)]
struct Conform(&'static Shape);

impl<'de> DeserializeSeed<'de> for Conform {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        match self.0 {
            Shape::Text(_) | Shape::Words(_) => d.deserialize_str(self),
            Shape::Integer(_) => d.deserialize_i64(self),
            Shape::Number => d.deserialize_f64(self),
            Shape::Bool => d.deserialize_bool(self),
            Shape::Opaque => {
                let raw = <&RawValue>::deserialize(d)?;
                opaque::check_structure(raw.get()).map_err(D::Error::custom)
            }
            Shape::Nullable(_) => d.deserialize_newtype_struct("Nullable", self),
            Shape::List(_) => d.deserialize_seq(self),
            Shape::Object(object) => d.deserialize_struct(object.name, &[], self),
        }
    }
}

impl<'de> Visitor<'de> for Conform {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Shape::Text(_) | Shape::Words(_) => "a string",
            Shape::Integer(_) => "a plain integer in signed 64 bits",
            Shape::Number => "a number",
            Shape::Bool => "a boolean",
            Shape::Opaque | Shape::Object(_) => "an object",
            Shape::Nullable(_) => "a value or null",
            Shape::List(_) => "an array",
        })
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        match self.0 {
            Shape::Text(_) | Shape::Words(_) => Ok(()),
            _ => Err(E::invalid_type(Unexpected::Str(text), &self)),
        }
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        match self.0 {
            Shape::Integer(_) | Shape::Number => Ok(()),
            _ => Err(E::invalid_type(Unexpected::Signed(value), &self)),
        }
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        match self.0 {
            Shape::Integer(_) if i64::try_from(value).is_ok() => Ok(()),
            Shape::Integer(_) => Err(E::invalid_value(Unexpected::Unsigned(value), &self)),
            Shape::Number => Ok(()),
            _ => Err(E::invalid_type(Unexpected::Unsigned(value), &self)),
        }
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        match self.0 {
            Shape::Number => Ok(()),
            _ => Err(E::invalid_type(Unexpected::Float(value), &self)),
        }
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        match self.0 {
            Shape::Bool => Ok(()),
            _ => Err(E::invalid_type(Unexpected::Bool(value), &self)),
        }
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_option(self)
    }

    fn visit_none<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        match self.0 {
            Shape::Nullable(inner) => Conform(inner).deserialize(d),
            _ => Err(D::Error::custom("only a nullable member is an option")),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let Shape::List(item) = self.0 else {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        };
        while access.next_element_seed(Conform(item))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let Shape::Object(object) = self.0 else {
            return Err(A::Error::invalid_type(Unexpected::Map, &self));
        };
        // No object of the protocol has as many members as this has bits: see the test.
        let mut seen = 0u32;
        while let Some(index) = access.next_key_seed(Key(object.members))? {
            if seen & 1 << index != 0 {
                return Err(A::Error::duplicate_field(object.members[index].name));
            }
            seen |= 1 << index;
            access.next_value_seed(Conform(object.members[index].shape))?;
        }
        let missing = |(index, member): &(usize, &Member)| member.required && seen & 1 << index == 0;
        match object.members.iter().enumerate().find(missing) {
            Some((_, member)) => Err(A::Error::missing_field(member.name)),
            None => Ok(()),
        }
    }
}

/// The index of a member by its name.
struct Key(&'static [Member]);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<usize, D::Error> {
        d.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Key {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member name")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<usize, E> {
        self.0
            .iter()
            .position(|member| member.name == name)
            .ok_or_else(|| E::unknown_field(name, &[]))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::check;
    use crate::{
        CoreFrame, FrameError, NodeFrame,
        codec::FRAMES,
        strict::{self, Mistake},
    };

    /// Every path to a member of an object below `value`, as JSON pointers.
    fn members(value: &Value, at: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                for (name, inner) in object {
                    let path = format!("{at}/{name}");
                    // What opaque data holds is nobody's business.
                    if name != "data" {
                        members(inner, &path, found);
                    }
                    found.push(path);
                }
            }
            Value::Array(items) => {
                for (index, inner) in items.iter().enumerate() {
                    members(inner, &format!("{at}/{index}"), found);
                }
            }
            _ => {}
        }
    }

    fn parent<'v>(value: &'v mut Value, path: &str) -> (&'v mut serde_json::Map<String, Value>, String) {
        let (above, name) = path.rsplit_once('/').unwrap();
        let object = value.pointer_mut(above).unwrap().as_object_mut().unwrap();
        (object, name.to_owned())
    }

    /// What closes, if the frame closes for its structure.
    fn closes_for_structure(sender: &str, text: &str) -> Option<Mistake> {
        let error = match sender {
            "node" => NodeFrame::decode(text.as_bytes()).err(),
            _ => CoreFrame::decode(text.as_bytes()).err(),
        };
        match error {
            Some(FrameError::Malformed(error)) if error.mistake != Mistake::Value => Some(error.mistake),
            _ => None,
        }
    }

    // req: P-006, P-008
    // inv: INV-P1
    #[test]
    fn every_member_is_as_required_as_the_surface_says() {
        let mut tried = 0;
        for line in include_str!("../corpus/frames.jsonl").lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            let frame: Value = serde_json::from_str(row["frame"].as_str().unwrap()).unwrap();
            let kind = frame["type"].as_str().unwrap();
            let known = FRAMES.iter().find(|f| f.kind == kind).unwrap();
            let mut paths = Vec::new();
            members(&frame, "", &mut paths);
            for path in paths
                .iter()
                .filter(|p| !matches!(p.as_str(), "/type" | "/version"))
            {
                for change in ["absent", "null", "beside", "mis-cased"] {
                    // Opaque data is read by its own reader, whose mistakes are not told apart.
                    if change == "null" && path.ends_with("/data") {
                        continue;
                    }
                    let mut changed = frame.clone();
                    let (object, name) = parent(&mut changed, path);
                    match change {
                        "absent" => drop(object.remove(&name)),
                        "null" => drop(object.insert(name, Value::Null)),
                        "beside" => drop(object.insert("surprise".to_owned(), Value::from(1))),
                        _ => {
                            let value = object.remove(&name).unwrap();
                            object.insert(name.to_uppercase(), value);
                        }
                    }
                    let text = changed.to_string();
                    let structure = check(text.as_bytes(), kind, known.shape);
                    let decoded = closes_for_structure(known.sender, &text);
                    assert_eq!(
                        structure.is_err(),
                        decoded.is_some(),
                        "{path} {change}: {structure:?}, {decoded:?}"
                    );
                    tried += 1;
                }
            }
        }
        assert!(tried > 2_000, "{tried}");
        // A change that always closes shows that the comparison can fail.
        let beside = r#"{"version":1,"type":"retention","control":null}"#;
        assert!(closes_for_structure("node", beside).is_some());
        assert!(strict::frame_type(beside.as_bytes()).is_ok());
    }
}
