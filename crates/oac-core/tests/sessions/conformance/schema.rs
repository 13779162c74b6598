//! The part of JSON Schema that Core's description uses: whether a value fits, and values that do and do not. A keyword
//! that is not known here fails the test. Stricter than the standard in one way: a member that is not described does
//! not fit an object that describes any.

use oac_peer::Random;
use serde_json::{Map, Value, json};

const KNOWN: [&str; 22] = [
    "$ref",
    "additionalProperties",
    "allOf",
    "contentMediaType",
    "contentSchema",
    "default",
    "description",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "oneOf",
    "pattern",
    "properties",
    "propertyNames",
    "required",
    "type",
];

/// Texts that programs stumble over. All of them are texts by the description, and some are refused for what they say.
const TEXTS: [&str; 16] = [
    "",
    " ",
    "a",
    "node",
    "/workspace",
    "x\0y",
    "a\nb",
    "\u{feff}",
    "\u{202e}txt.exe",
    "ünïcödé",
    "🦀",
    "'; DROP TABLE sessions; --",
    "%00%ff",
    "../../etc/passwd",
    "{\"a\":1}",
    "sha256:abababababababababababababababababababababababababababababababab",
];

/// An OpenAPI document, for what its references name.
pub struct Schemas<'a>(pub &'a Value);

impl Schemas<'_> {
    fn resolve<'s>(&'s self, schema: &'s Value) -> &'s Value {
        let unknown = schema.as_object().into_iter().flat_map(Map::keys);
        let unknown: Vec<_> = unknown.filter(|key| !KNOWN.contains(&key.as_str())).collect();
        assert!(unknown.is_empty(), "teach this test the keywords {unknown:?}");
        match schema["$ref"].as_str() {
            Some(reference) => {
                let pointer = reference.trim_start_matches('#');
                self.resolve(self.0.pointer(pointer).expect(reference))
            }
            None => schema,
        }
    }

    /// Where and how `value` does not fit `schema`.
    pub fn misfit(&self, schema: &Value, value: &Value) -> Option<String> {
        let schema = self.resolve(schema);
        if let Some(choices) = schema["oneOf"].as_array() {
            let misfits: Vec<_> = choices.iter().map(|choice| self.misfit(choice, value)).collect();
            let fitting = misfits.iter().filter(|misfit| misfit.is_none()).count();
            return (fitting != 1).then(|| format!("{fitting} of its choices: {misfits:?}"));
        }
        if let Some(allowed) = schema["enum"].as_array() {
            return (!allowed.contains(value)).then(|| format!(" is {value}, not one of {allowed:?}"));
        }
        let merged;
        let schema = match schema["allOf"].as_array() {
            Some(parts) => {
                merged = self.merge(parts);
                &merged
            }
            None => schema,
        };
        if !types(schema).any(|name| is_type(name, value)) && !schema["type"].is_null() {
            return Some(format!(" is {value}, not {}", schema["type"]));
        }
        match value {
            Value::String(text) if schema["contentSchema"].is_object() => {
                assert_eq!(schema["contentMediaType"], "application/json");
                match serde_json::from_str(text) {
                    Ok(document) => self.misfit(&schema["contentSchema"], &document),
                    Err(error) => Some(format!(" is {text:?}, no JSON: {error}")),
                }
            }
            Value::String(text) => misfit_of_text(schema, text),
            Value::Number(_) => {
                let number = value.as_f64().unwrap_or_default();
                let below = schema["minimum"].as_f64().is_some_and(|least| number < least);
                let above = schema["maximum"].as_f64().is_some_and(|most| number > most);
                (below || above).then(|| format!(" is {value}, out of bounds"))
            }
            Value::Array(items) => {
                let count = items.len() as u64;
                if schema["minItems"].as_u64().is_some_and(|least| count < least)
                    || schema["maxItems"].as_u64().is_some_and(|most| count > most)
                {
                    return Some(format!(" has {count} items"));
                }
                let mut items = items.iter().enumerate();
                items.find_map(|(at, item)| {
                    let misfit = self.misfit(&schema["items"], item)?;
                    Some(format!("[{at}]{misfit}"))
                })
            }
            Value::Object(members) => self.misfit_of_object(schema, members),
            Value::Null | Value::Bool(_) => None,
        }
    }

    fn misfit_of_object(&self, schema: &Value, members: &Map<String, Value>) -> Option<String> {
        let required = schema["required"].as_array().into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            if !members.contains_key(name) {
                return Some(format!(" lacks {name}"));
            }
        }
        let described = schema["properties"].as_object();
        let more = &schema["additionalProperties"];
        members.iter().find_map(|(name, member)| {
            let misfit = match described.and_then(|described| described.get(name)) {
                Some(schema) => self.misfit(schema, member),
                None if more.is_object() => self.misfit(more, member),
                None if described.is_none() && more.is_null() => None,
                None => Some(" is not described".to_owned()),
            };
            misfit.map(|misfit| format!(".{name}{misfit}"))
        })
    }

    /// All members of all parts.
    fn merge(&self, parts: &[Value]) -> Value {
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for part in parts {
            let part = self.resolve(part);
            let nested;
            let part = match part["allOf"].as_array() {
                Some(parts) => {
                    nested = self.merge(parts);
                    &nested
                }
                None => part,
            };
            properties.extend(part["properties"].as_object().cloned().unwrap_or_default());
            required.extend(part["required"].as_array().cloned().unwrap_or_default());
        }
        json!({ "type": "object", "properties": properties, "required": required })
    }

    /// A value that fits.
    pub fn fitting(&self, schema: &Value, random: &mut Random) -> Value {
        let schema = self.resolve(schema);
        if let Some(choices) = schema["oneOf"].as_array() {
            return self.fitting(&choices[random.below(choices.len() as u64) as usize], random);
        }
        if let Some(allowed) = schema["enum"].as_array() {
            return allowed[random.below(allowed.len() as u64) as usize].clone();
        }
        match types(schema).next().unwrap_or("object") {
            "string" => json!(fitting_text(schema, random)),
            "integer" | "number" => fitting_number(schema, random),
            "boolean" => json!(random.one_in(2)),
            "array" => {
                let least = schema["minItems"].as_u64().unwrap_or(0);
                let count = least + random.below(4);
                (0..count)
                    .map(|_| self.fitting(&schema["items"], random))
                    .collect()
            }
            "object" => {
                let mut object = Map::new();
                let required = schema["required"].as_array();
                for (name, member) in schema["properties"].as_object().into_iter().flatten() {
                    let must = required.is_some_and(|required| required.contains(&json!(name)));
                    if must || random.one_in(2) {
                        object.insert(name.clone(), self.fitting(member, random));
                    }
                }
                if schema["additionalProperties"].is_object() {
                    for _ in 0..random.below(4) {
                        let name = text(random);
                        object.insert(name, self.fitting(&schema["additionalProperties"], random));
                    }
                }
                Value::Object(object)
            }
            other => panic!("teach this test the type {other}"),
        }
    }

    /// A value that does not fit; `None` when none was found.
    pub fn unfitting(&self, schema: &Value, random: &mut Random) -> Option<Value> {
        (0..20).find_map(|_| {
            let mut value = self.fitting(schema, random);
            break_somewhere(&mut value, random);
            self.misfit(schema, &value).map(|_| value)
        })
    }
}

fn types(schema: &Value) -> impl Iterator<Item = &str> {
    let one = schema["type"].as_str();
    let many = schema["type"].as_array().into_iter().flatten();
    one.into_iter().chain(many.filter_map(Value::as_str))
}

fn is_type(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        other => panic!("teach this test the type {other}"),
    }
}

fn misfit_of_text(schema: &Value, text: &str) -> Option<String> {
    let length = text.chars().count() as u64;
    let short = schema["minLength"].as_u64().is_some_and(|least| length < least);
    let long = schema["maxLength"].as_u64().is_some_and(|most| length > most);
    let fits = match schema["format"].as_str() {
        None | Some("binary" | "password") => true,
        Some("uuid") => text
            .parse::<oac_model::SessionId>()
            .is_ok_and(|id| id.to_string() == text),
        Some("date-time") => text.parse::<oac_model::Time>().is_ok(),
        Some("byte") => oac_wire::B64::decode(text.as_bytes()).is_some(),
        Some(other) => panic!("teach this test the format {other}"),
    };
    (short || long || !fits).then(|| format!(" is {text:?}, not as described"))
}

/// Any text.
fn text(random: &mut Random) -> String {
    match random.below(8) {
        0 => "x".repeat(random.below(300) as usize),
        1 => {
            let any = (0..random.below(12)).filter_map(|_| char::from_u32(random.below(0x11_0000) as u32));
            any.collect()
        }
        _ => TEXTS[random.below(TEXTS.len() as u64) as usize].to_owned(),
    }
}

fn fitting_text(schema: &Value, random: &mut Random) -> String {
    match schema["format"].as_str() {
        Some("uuid") => oac_model::SessionId::random().to_string(),
        Some("date-time") => "2026-11-30T00:00:00Z".to_owned(),
        Some("byte") => ["", "aGk=", "AAAA"][random.below(3) as usize].to_owned(),
        _ if schema["pattern"].is_string() => format!("{:o}", random.below(0o10000)),
        _ => loop {
            let text = text(random);
            if misfit_of_text(schema, &text).is_none() {
                break text;
            }
        },
    }
}

fn fitting_number(schema: &Value, random: &mut Random) -> Value {
    let least = schema["minimum"].as_i64().unwrap_or(i64::MIN);
    let most = schema["maximum"].as_i64().unwrap_or(i64::MAX);
    let near = least.max(0).saturating_add(random.below(4) as i64).min(most);
    match random.below(8) {
        0 => json!(least),
        1 => json!(most),
        // Beyond what most integers hold, and fitting all the same.
        2 if schema["maximum"].is_null() => json!(u64::MAX),
        _ => json!(near),
    }
}

/// Changes one thing, at any depth, that a careless caller would get wrong.
fn break_somewhere(value: &mut Value, random: &mut Random) {
    let deeper = random.one_in(2);
    match value {
        Value::Object(members) if !members.is_empty() && deeper => {
            let at = random.below(members.len() as u64) as usize;
            if let Some(member) = members.values_mut().nth(at) {
                break_somewhere(member, random);
            }
        }
        Value::Array(items) if !items.is_empty() && deeper => {
            let at = random.below(items.len() as u64) as usize;
            break_somewhere(&mut items[at], random);
        }
        Value::Object(members) if !members.is_empty() && random.one_in(2) => {
            let at = random.below(members.len() as u64) as usize;
            let name = members.keys().nth(at).cloned().unwrap_or_default();
            members.remove(&name);
        }
        Value::Object(members) => {
            members.insert("zzz".to_owned(), json!(1));
        }
        value => {
            let others = [
                json!(null),
                json!(true),
                json!(-1),
                json!(0.5),
                json!(u64::MAX),
                json!("zzz"),
                json!([]),
                json!({}),
            ];
            *value = others[random.below(others.len() as u64) as usize].clone();
        }
    }
}

#[test]
fn what_fits_and_what_does_not_is_told_apart() {
    let document = json!({ "components": { "schemas": {
        "Name": { "type": "string", "minLength": 1, "maxLength": 3 },
        "Base": { "type": "object", "required": ["id"], "properties": { "id": { "type": "integer", "minimum": 1 } } },
    } } });
    let schemas = Schemas(&document);
    let schema = json!({
        "allOf": [
            { "$ref": "#/components/schemas/Base" },
            { "type": "object", "required": ["name"], "properties": {
                "name": { "$ref": "#/components/schemas/Name" },
                "more": { "oneOf": [{ "type": "null" }, { "type": "array", "items": { "enum": ["a"] } }] },
                "map": { "type": "object", "additionalProperties": { "type": "string", "format": "uuid" } },
            } },
        ],
    });
    let fits = |value: Value| schemas.misfit(&schema, &value).is_none();
    assert!(fits(json!({ "id": 1, "name": "abc" })));
    assert!(fits(json!({ "id": 1, "name": "ä", "more": null, "map": {} })));
    let id = oac_model::SessionId::random().to_string();
    assert!(fits(
        json!({ "id": 1, "name": "a", "more": ["a"], "map": { "any": id } })
    ));
    for unfit in [
        json!({ "id": 1 }),
        json!({ "id": 0, "name": "a" }),
        json!({ "id": "1", "name": "a" }),
        json!({ "id": 1.5, "name": "a" }),
        json!({ "id": 1, "name": "" }),
        json!({ "id": 1, "name": "abcd" }),
        json!({ "id": 1, "name": "a", "other": 1 }),
        json!({ "id": 1, "name": "a", "more": ["b"] }),
        json!({ "id": 1, "name": "a", "map": { "any": "thing" } }),
        json!([]),
    ] {
        assert!(!fits(unfit.clone()), "{unfit}");
    }
}
