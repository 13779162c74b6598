//! Query strings as typed values.

use std::{cell::RefCell, collections::HashSet, fmt};

use serde::{
    Deserializer,
    de::{DeserializeOwned, IntoDeserializer, Visitor, value::MapDeserializer},
    forward_to_deserialize_any,
};
use url::form_urlencoded;

use crate::http::ApiError;

/// Decodes a query string; each name at most once, numbers written plainly.
pub fn decode<T: DeserializeOwned>(text: &str) -> Result<T, ApiError> {
    // A text that is not UTF-8 would be decoded as another one.
    let is_text = oac_link::files::decode(text).is_some_and(|bytes| std::str::from_utf8(&bytes).is_ok());
    if !is_text {
        return Err(refuse(None, "is not UTF-8 in percent-encoding: encode it so"));
    }
    let mut seen = HashSet::new();
    let mut pairs = Vec::new();
    for (name, value) in form_urlencoded::parse(text.as_bytes()) {
        if !seen.insert(name.to_string()) {
            return Err(refuse(
                Some(name.to_string()),
                "stands twice in the query: give it once",
            ));
        }
        pairs.push((name.into_owned(), Text(value.into_owned())));
    }
    // Errors that name nothing belong to the name read last.
    let last = RefCell::new(None);
    let tracked = pairs.into_iter().inspect(|(name, _): &(String, Text)| {
        last.replace(Some(name.clone()));
    });
    T::deserialize(MapDeserializer::new(tracked))
        .map_err(|error: Refusal| refuse(error.name.or_else(|| last.take()), error.said))
}

fn refuse(name: Option<String>, said: &str) -> ApiError {
    match name {
        Some(name) => ApiError::invalid_member(name.clone(), format!("{name} {said}.")),
        None => ApiError::invalid_request(format!("The query {said}.")),
    }
}

#[derive(Debug)]
struct Refusal {
    name: Option<String>,
    said: &'static str,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.said)
    }
}

impl std::error::Error for Refusal {}

impl serde::de::Error for Refusal {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self {
            name: None,
            said: "has a value that is not allowed: correct it",
        }
    }

    fn unknown_field(field: &str, _: &'static [&'static str]) -> Self {
        Self {
            name: Some(field.to_owned()),
            said: "is not a known query name: remove it",
        }
    }

    fn missing_field(field: &'static str) -> Self {
        Self {
            name: Some(field.to_owned()),
            said: "is missing in the query: add it",
        }
    }
}

/// One value. Its errors name nothing: [`decode`] knows which name was being read.
struct Text(String);

impl<'de> IntoDeserializer<'de, Refusal> for Text {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

impl Text {
    /// A plain decimal number: no sign, no leading zero.
    fn number(&self) -> Option<u64> {
        let plain = self.0.bytes().all(|b| b.is_ascii_digit()) && (self.0 == "0" || !self.0.starts_with('0'));
        plain.then(|| self.0.parse().ok()).flatten()
    }
}

macro_rules! numbers {
    ($($method:ident),*) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
            let Some(number) = self.number() else {
                return Err(Refusal { name: None, said: "is not a plain whole number: correct it" });
            };
            visitor.visit_u64(number)
        }
    )* };
}

impl<'de> Deserializer<'de> for Text {
    type Error = Refusal;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        visitor.visit_string(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        visitor.visit_enum(self.0.into_deserializer())
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match self.0.as_str() {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => Err(Refusal {
                name: None,
                said: "is neither true nor false: correct it",
            }),
        }
    }

    numbers! { deserialize_u8, deserialize_u16, deserialize_u32, deserialize_u64, deserialize_i8, deserialize_i16,
    deserialize_i32, deserialize_i64 }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
        ignored_any
    }
}

#[cfg(test)]
mod tests {
    use oac_model::{Generation, NodeId};
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Range {
        Short,
        Long,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Query {
        node_id: Option<NodeId>,
        generation: Option<Generation>,
        range: Option<Range>,
        limit: Option<u32>,
        all: Option<bool>,
    }

    const ID: &str = "11111111-1111-4111-8111-111111111111";

    #[test]
    fn a_query_is_read_by_type() {
        let query: Query =
            decode(&format!("node_id={ID}&generation=3&range=long&limit=10&all=true")).unwrap();
        assert_eq!(query.node_id, Some(ID.parse().unwrap()));
        assert_eq!(
            (query.generation.map(Generation::get), query.limit, query.all),
            (Some(3), Some(10), Some(true))
        );
        assert_eq!(query.range, Some(Range::Long));
        assert!(decode::<Query>("").is_ok());
    }

    #[test]
    fn unknown_mis_cased_repeated_and_unreadable_names_are_refused_by_name() {
        for (text, param) in [
            ("other=1", "other"),
            ("Limit=1", "Limit"),
            ("limit=1&limit=1", "limit"),
            ("limit=", "limit"),
            ("limit=01", "limit"),
            ("limit=+1", "limit"),
            ("limit=-1", "limit"),
            ("limit=1.0", "limit"),
            ("limit=4294967296", "limit"),
            ("generation=0", "generation"),
            ("generation=99999999999999999999", "generation"),
            ("node_id=x", "node_id"),
            ("range=Long", "range"),
            ("all=1", "all"),
        ] {
            let error = decode::<Query>(text).unwrap_err();
            assert_eq!(
                (error.status.as_u16(), error.param.as_deref()),
                (400, Some(param)),
                "{text}"
            );
        }
    }

    #[test]
    fn a_missing_required_name_is_refused_by_name() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "decoded for its error")]
        struct Required {
            node_id: NodeId,
        }
        assert_eq!(
            decode::<Required>("").unwrap_err().param.as_deref(),
            Some("node_id")
        );
    }
}
