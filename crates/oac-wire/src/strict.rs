//! Strict JSON for every document oac reads: frames, HTTP bodies, records and bootstrap files.
//!
//! The rules are protocol.md section 2. `serde` derives with `deny_unknown_fields` already refuse unknown and mis-cased
//! members, fractions and exponents in integers, and trailing data. This wrapper closes what derives leave open, at
//! every depth: `null` for an optional member, duplicate keys of maps, arrays in place of objects, and enums written
//! as objects. Errors name the member and the kind of mistake, never a value, so they are safe to log and to answer.
//!
//! Refused alternative: decoding to a generic value first and checking that. It costs a copy of every 50 MiB input.

mod refusal;

use std::{borrow::Cow, cell::RefCell, collections::HashSet, fmt, marker::PhantomData};

pub use refusal::{Mistake, StrictError};
use refusal::{Segment, Track};
use serde::{
    Deserialize,
    de::{
        self, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess,
        Visitor,
    },
};

/// Decodes exactly one JSON document, with only JSON white space around it.
pub fn from_slice<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, StrictError> {
    read(bytes, None, PhantomData)
}

/// Like [`from_slice`].
pub fn from_str<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, StrictError> {
    read(text.as_bytes(), None, PhantomData)
}

/// Decodes a frame: an object that also holds `version` 1 and `type` `kind`, each once, besides the members of `T`.
pub(crate) fn frame_from_slice<'de, T: Deserialize<'de>>(
    bytes: &'de [u8],
    kind: &str,
) -> Result<T, StrictError> {
    read(bytes, Some(kind), PhantomData)
}

/// Like [`frame_from_slice`], into whatever `seed` makes of it.
pub(crate) fn frame_from_slice_seed<'de, S: DeserializeSeed<'de>>(
    bytes: &'de [u8],
    kind: &str,
    seed: S,
) -> Result<S::Value, StrictError> {
    read(bytes, Some(kind), seed)
}

/// The `type` of a frame, read no further than it stands; nothing else of the frame is checked.
pub(crate) fn frame_type(bytes: &[u8]) -> Result<Cow<'_, str>, StrictError> {
    let found = RefCell::new(None);
    match read(bytes, None, FindType { found: &found }) {
        Ok(()) => Err(StrictError {
            mistake: Mistake::Missing,
            member: "type".to_owned(),
            detail: String::new(),
        }),
        Err(error) => found.into_inner().ok_or(error),
    }
}

/// Stops, with an error, at the member `type` of an object.
struct FindType<'f, 'de> {
    found: &'f RefCell<Option<Cow<'de, str>>>,
}

impl<'de> DeserializeSeed<'de> for FindType<'_, 'de> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_struct("frame", &[], self)
    }
}

impl<'de> Visitor<'de> for FindType<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Key<'de>>()? {
            if key.0 == "type" {
                let kind: Key<'de> = map.next_value()?;
                self.found.replace(Some(kind.0));
                return Err(A::Error::custom("found"));
            }
            map.next_value::<de::IgnoredAny>()?;
        }
        Ok(())
    }
}

fn read<'de, S: DeserializeSeed<'de>>(
    bytes: &'de [u8],
    frame: Option<&str>,
    seed: S,
) -> Result<S::Value, StrictError> {
    let track = Track::default();
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let root = Strict {
        inner: &mut json,
        track: &track,
        nullable: false,
        frame,
    };
    let decoded = seed
        .deserialize(root)
        .and_then(|value| json.end().map(|()| value));
    decoded.map_err(|error| track.explain(&error))
}

struct Strict<'t, D> {
    inner: D,
    track: &'t Track,
    /// `null` is legal here, because a `Nullable` asked.
    nullable: bool,
    /// The frame type, at the root of a frame.
    frame: Option<&'t str>,
}

#[derive(Clone, Copy, PartialEq)]
enum Expect {
    Free,
    Object,
    Optional,
    Nullable,
    Variant,
}

struct Check<'t, V> {
    visitor: V,
    track: &'t Track,
    expect: Expect,
    frame: Option<&'t str>,
}

impl<'t, D> Strict<'t, D> {
    fn check<V>(&self, visitor: V, expect: Expect) -> Check<'t, V> {
        Check {
            visitor,
            track: self.track,
            expect,
            frame: self.frame,
        }
    }
}

macro_rules! forward_deserialize {
    ($($method:ident)*) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            let check = self.check(visitor, Expect::Free);
            self.inner.$method(check)
        }
    )* };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<'_, D> {
    type Error = D::Error;

    forward_deserialize! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_unit deserialize_seq deserialize_map deserialize_identifier
        deserialize_ignored_any
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let check = self.check(
            visitor,
            if self.nullable {
                Expect::Nullable
            } else {
                Expect::Optional
            },
        );
        self.inner.deserialize_option(check)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        // A raw value takes its text from the reader itself, which knows it by this name.
        if name.starts_with("$serde_json::private") {
            return self.inner.deserialize_newtype_struct(name, visitor);
        }
        visitor.visit_newtype_struct(Strict {
            nullable: name == "Nullable",
            ..self
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let check = self.check(visitor, Expect::Object);
        self.inner.deserialize_struct(name, fields, check)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let check = self.check(visitor, Expect::Variant);
        self.inner.deserialize_str(check)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let check = self.check(visitor, Expect::Free);
        self.inner.deserialize_unit_struct(name, check)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, D::Error> {
        let check = self.check(visitor, Expect::Free);
        self.inner.deserialize_tuple(len, check)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let check = self.check(visitor, Expect::Free);
        self.inner.deserialize_tuple_struct(name, len, check)
    }
}

macro_rules! forward_visit {
    ($($method:ident: $type:ty),* $(,)?) => { $(
        fn $method<E: de::Error>(self, value: $type) -> Result<V::Value, E> {
            self.visitor.$method(value)
        }
    )* };
}

impl<V> Check<'_, V> {
    fn null<'de, E: de::Error>(self, accept: impl FnOnce(V) -> Result<V::Value, E>) -> Result<V::Value, E>
    where
        V: Visitor<'de>,
    {
        if self.expect == Expect::Optional {
            self.track.mistake.set(Some(Mistake::Null));
            return Err(E::custom("null"));
        }
        accept(self.visitor)
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Check<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    forward_visit! {
        visit_bool: bool, visit_i64: i64, visit_i128: i128, visit_u64: u64, visit_u128: u128, visit_f64: f64,
        visit_bytes: &[u8],
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<V::Value, E> {
        match self.expect {
            Expect::Variant => self.visitor.visit_enum(text.into_deserializer()),
            _ => self.visitor.visit_str(text),
        }
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<V::Value, E> {
        match self.expect {
            Expect::Variant => self.visitor.visit_enum(text.into_deserializer()),
            _ => self.visitor.visit_borrowed_str(text),
        }
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<V::Value, E> {
        match self.expect {
            Expect::Variant => self.visitor.visit_enum(text.into_deserializer()),
            _ => self.visitor.visit_string(text),
        }
    }

    fn visit_unit<E: de::Error>(self) -> Result<V::Value, E> {
        self.null(Visitor::visit_unit)
    }

    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        self.null(Visitor::visit_none)
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(Strict {
            inner,
            track: self.track,
            nullable: false,
            frame: None,
        })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_newtype_struct(Strict {
            inner,
            track: self.track,
            nullable: false,
            frame: None,
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        if self.expect == Expect::Object {
            return Err(A::Error::invalid_type(de::Unexpected::Seq, &"an object"));
        }
        self.visitor.visit_seq(Items {
            access,
            track: self.track,
            index: 0,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        let seen = (self.expect != Expect::Object).then(HashSet::new);
        let header = self.frame.map(|kind| Header {
            kind,
            version_seen: false,
            type_seen: false,
        });
        self.visitor.visit_map(Members {
            access,
            track: self.track,
            key: Cow::Borrowed(""),
            seen,
            header,
        })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(access)
    }
}

struct Items<'t, A> {
    access: A,
    track: &'t Track,
    index: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Items<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let deeper = Deeper {
            seed,
            track: self.track,
        };
        let item = self.access.next_element_seed(deeper);
        if item.is_err() {
            self.track.pass(Segment::Item(self.index));
        }
        self.index += 1;
        item
    }

    fn size_hint(&self) -> Option<usize> {
        self.access.size_hint()
    }
}

struct Header<'t> {
    kind: &'t str,
    version_seen: bool,
    type_seen: bool,
}

struct Members<'t, 'de, A> {
    access: A,
    track: &'t Track,
    /// The member whose value is next.
    key: Cow<'de, str>,
    /// Keys so far, where no derive watches for duplicates.
    seen: Option<HashSet<String>>,
    header: Option<Header<'t>>,
}

impl<'de, A: MapAccess<'de>> Members<'_, 'de, A> {
    fn fail<T>(&self, mistake: Mistake, member: &str) -> Result<T, A::Error> {
        self.track.mistake.set(Some(mistake));
        self.track.pass(Segment::Member(member.to_owned()));
        Err(A::Error::custom("refused"))
    }

    /// The value of `version` or `type`.
    fn header_value<T: Deserialize<'de>>(&mut self, member: &str) -> Result<T, A::Error> {
        let value = self.access.next_value_seed(Deeper {
            seed: PhantomData,
            track: self.track,
        });
        if value.is_err() {
            self.track.pass(Segment::Member(member.to_owned()));
        }
        value
    }

    /// Takes `version` and `type` out of a frame's root object; stands at the next other key afterwards.
    fn pass_header(&mut self) -> Result<Option<Cow<'de, str>>, A::Error> {
        loop {
            let Some(key) = self.access.next_key::<Key<'de>>()? else {
                let Some(header) = &self.header else {
                    return Ok(None);
                };
                return match (header.version_seen, header.type_seen) {
                    (false, _) => self.fail(Mistake::Missing, "version"),
                    (_, false) => self.fail(Mistake::Missing, "type"),
                    _ => Ok(None),
                };
            };
            let Some(header) = &mut self.header else {
                return Ok(Some(key.0));
            };
            match &*key.0 {
                "version" => {
                    if std::mem::replace(&mut header.version_seen, true) {
                        return self.fail(Mistake::Duplicate, "version");
                    }
                    if self.header_value::<i64>("version")? != i64::from(crate::PROTOCOL_VERSION) {
                        return self.fail(Mistake::Value, "version");
                    }
                }
                "type" => {
                    let kind = header.kind;
                    if std::mem::replace(&mut header.type_seen, true) {
                        return self.fail(Mistake::Duplicate, "type");
                    }
                    if self.header_value::<Key<'de>>("type")?.0 != kind {
                        return self.fail(Mistake::Value, "type");
                    }
                }
                _ => return Ok(Some(key.0)),
            }
        }
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Members<'_, 'de, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let Some(key) = self.pass_header()? else {
            return Ok(None);
        };
        let repeated = self
            .seen
            .as_mut()
            .is_some_and(|seen| !seen.insert(key.clone().into_owned()));
        if repeated {
            return self.fail(Mistake::Duplicate, &key);
        }
        self.key = key;
        match &self.key {
            Cow::Borrowed(text) => seed.deserialize(de::value::BorrowedStrDeserializer::new(text)),
            Cow::Owned(text) => seed.deserialize(text.as_str().into_deserializer()),
        }
        .map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let deeper = Deeper {
            seed,
            track: self.track,
        };
        let value = self.access.next_value_seed(deeper);
        if value.is_err() {
            self.track.pass(Segment::Member(self.key.clone().into_owned()));
        }
        value
    }

    fn size_hint(&self) -> Option<usize> {
        self.access.size_hint()
    }
}

/// A key, or the frame type; borrowed from the document unless it holds escapes.
struct Key<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(text.into()))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(text.to_owned().into()))
            }
        }
        d.deserialize_str(KeyVisitor)
    }
}

struct Deeper<'t, S> {
    seed: S,
    track: &'t Track,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Deeper<'_, S> {
    type Value = S::Value;
    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.seed.deserialize(Strict {
            inner,
            track: self.track,
            nullable: false,
            frame: None,
        })
    }
}

#[cfg(test)]
mod tests;
