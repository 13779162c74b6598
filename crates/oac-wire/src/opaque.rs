//! `retained.data`: an object kept as the exact bytes it arrived in (INV-P30).

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::value::RawValue;

use crate::{
    limits,
    shape::{Checked, Shape, Wire},
    strict::StrictError,
};

/// A JSON object of at most 64 KiB as the exact bytes it arrived in. Members inside are distinct; nulls are allowed.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Opaque(pub Box<RawValue>);

impl<'de> Deserialize<'de> for Opaque {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(d)?;
        check(raw.get()).map_err(D::Error::custom)?;
        Ok(Self(raw))
    }
}

impl PartialEq for Opaque {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}
impl Eq for Opaque {}

impl Wire for Opaque {
    const SHAPE: &'static Shape = &Shape::Opaque;

    fn check(&self) -> Checked {
        check(self.0.get()).map_err(|said| StrictError::broken(said.trim_start_matches("expected ")))
    }
}

fn check(text: &str) -> Result<(), &'static str> {
    if text.len() > limits::OPAQUE_BYTES {
        return Err("expected an object of at most 65536 bytes");
    }
    check_structure(text)
}

/// What section 2 asks of `text` at every depth, whatever its size: an object, members distinct, strings that are
/// Unicode, numbers that are finite. `text` is one JSON value, as the reader of a raw value has established.
///
/// A peer chooses depth and number of members, so this neither recurses nor keeps more than eight bytes of each.
pub(crate) fn check_structure(text: &str) -> Result<(), &'static str> {
    if !text.starts_with('{') {
        return Err("expected an object");
    }
    let bytes = text.as_bytes();
    // A key stands as a hash in the upper half, so that equal ones are neighbours once sorted, and its place below.
    let mut keys: Vec<u64> = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    let mut at = 0;
    let mut key_next = false;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'{' => {
                open.push(Open {
                    first_key: keys.len() as u32,
                    arrays: 0,
                });
                key_next = true;
            }
            b'}' => {
                let object = open.pop().ok_or("expected an object")?;
                let first = object.first_key as usize;
                distinct(text, &mut keys[first..])?;
                keys.truncate(first);
                key_next = false;
            }
            b'[' => {
                if let Some(object) = open.last_mut() {
                    object.arrays += 1;
                }
                key_next = false;
            }
            b']' => {
                if let Some(object) = open.last_mut() {
                    object.arrays = object.arrays.saturating_sub(1);
                }
            }
            b',' => key_next = open.last().is_some_and(|object| object.arrays == 0),
            b'"' => {
                let string = string_at(text, at).ok_or("expected strings of Unicode text")?;
                if key_next {
                    keys.push(u64::from(hash(&string.decoded)) << 32 | at as u64);
                    key_next = false;
                }
                at = string.end;
                continue;
            }
            b'-' | b'0'..=b'9' => {
                let end = bytes[at..]
                    .iter()
                    .position(|b| !matches!(b, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9'))
                    .map_or(bytes.len(), |n| at + n);
                if !text[at..end].parse::<f64>().is_ok_and(f64::is_finite) {
                    return Err("expected finite numbers");
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// An object not yet closed, and how many arrays are open within it. A frame has less than 2^32 bytes.
struct Open {
    first_key: u32,
    arrays: u32,
}

struct Text<'a> {
    decoded: Cow<'a, str>,
    /// Behind the closing quote.
    end: usize,
}

/// The string whose opening quote is at `start`; `None` when an escape names half a character.
fn string_at(text: &str, start: usize) -> Option<Text<'_>> {
    let bytes = text.as_bytes();
    let mut at = start + 1;
    let mut escaped = false;
    loop {
        match bytes.get(at)? {
            b'"' => break,
            b'\\' => {
                escaped = true;
                at += 2;
            }
            _ => at += 1,
        }
    }
    let decoded = if escaped {
        Cow::Owned(serde_json::from_str(&text[start..=at]).ok()?)
    } else {
        Cow::Borrowed(&text[start + 1..at])
    };
    Some(Text { decoded, end: at + 1 })
}

/// FNV-1a. Keys of equal hash are compared, so a peer that makes collisions only costs time to sort its own frame.
fn hash(text: &str) -> u32 {
    text.bytes()
        .fold(0x811c_9dc5, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
}

fn distinct(text: &str, keys: &mut [u64]) -> Result<(), &'static str> {
    let key = |entry: u64| {
        let place = (entry & u64::from(u32::MAX)) as usize;
        string_at(text, place).map_or(Cow::Borrowed(""), |s| s.decoded)
    };
    keys.sort_unstable();
    for group in keys.chunk_by_mut(|a, b| a >> 32 == b >> 32) {
        if group.len() > 1 {
            group.sort_unstable_by(|a, b| key(*a).cmp(&key(*b)));
            if group.windows(2).any(|pair| key(pair[0]) == key(pair[1])) {
                return Err("expected each member once");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: P-007
    #[test]
    fn members_of_opaque_data_are_distinct_at_every_depth_however_they_are_spelled() {
        for good in [
            "{}",
            r#"{"a":null,"b":{"a":[{"a":1},{"a":2}]},"c":[[],{},"a","a"]}"#,
            r#"{"a":"\ud83d\ude00","\"":1,"\\":2,"":3}"#,
            r#"{"a":-0,"b":1e308,"c":18446744073709551616,"d":1e-400}"#,
            r#"{ "a" : { "b" : 1 } , "b" : [ 1 , 2 ] , "c":"{\"a\":1,\"a\":2}" }"#,
            r#"{"a":{"x":1},"b":"a","c":["b","c",{"a":0}],"d":"a"}"#,
        ] {
            assert_eq!(check_structure(good), Ok(()), "{good}");
        }
        for bad in [
            "[]",
            "null",
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"x":[{"y":{"a":1,"b":[1,2],"a":2}}]}"#,
            r#"{"x":[1,[2,3]],"y":1,"x":2}"#,
            r#"{"":1,"":2}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"\udc00":1}"#,
            r#"{"a":1e400}"#,
            r#"{"a":[-1e999]}"#,
        ] {
            assert!(check_structure(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn depth_and_number_of_members_cost_no_stack_and_little_memory() {
        let depth = 20_000;
        let deep = format!("{}1{}", r#"{"a":["#.repeat(depth), "]}".repeat(depth));
        assert_eq!(check_structure(&deep), Ok(()));
        let wide: Vec<String> = (0..20_000).map(|i| format!(r#""{i}":0"#)).collect();
        assert_eq!(check_structure(&format!("{{{}}}", wide.join(","))), Ok(()));
        assert!(check_structure(&format!("{{{},\"77\":1}}", wide.join(","))).is_err());
    }
}
