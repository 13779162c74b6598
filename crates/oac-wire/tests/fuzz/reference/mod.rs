//! A second opinion on frames, written from the tables of protocol.md alone: slow, plain, and without the codec's code.
//!
//! One walk over the document notes two things: whether its *structure* is that of the tables (members, types, nulls,
//! integer forms), and whether its *values* are in bounds. Who wins is decided at the end.

mod forms;
mod frames;
pub(crate) mod json;
mod operations;

use forms::{decoded_length, is_control, nanoseconds, of};
use json::{Json, Value};
use oac_wire::Direction;

/// The outcomes of protocol.md section 7, "Node's order", and of a response's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Accept,
    Unconfirmed,
    Request,
    Frame,
}

const MIB: usize = 1 << 20;

pub(crate) fn judge(direction: Direction, bytes: &[u8]) -> Outcome {
    if bytes.len() > 72 * MIB {
        return Outcome::Frame;
    }
    let Some(document) = json::parse(bytes) else {
        return Outcome::Frame;
    };
    let mut look = Look {
        text: bytes,
        structure: true,
        bounds: true,
    };
    look.frame(direction, &document)
}

/// What has been seen so far. Every method goes on after a mistake, so that a later, worse one is seen as well.
struct Look<'a> {
    text: &'a [u8],
    structure: bool,
    bounds: bool,
}

/// The members of an object of right member set.
struct Members<'j>(&'j [(String, Json)]);

impl<'j> Members<'j> {
    fn get(&self, name: &str) -> Option<&'j Json> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, json)| json)
    }

    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

const POS: std::ops::RangeInclusive<i64> = 1..=i64::MAX;
const NAT: std::ops::RangeInclusive<i64> = 0..=i64::MAX;
const SIZE: std::ops::RangeInclusive<i64> = 0..=9_007_199_254_740_991;
const SIZE_FROM_1: std::ops::RangeInclusive<i64> = 1..=9_007_199_254_740_991;

impl<'a> Look<'a> {
    fn broken(&mut self) {
        self.structure = false;
    }

    fn allow(&mut self, holds: bool) {
        self.bounds &= holds;
    }

    fn sound(&self) -> bool {
        self.structure && self.bounds
    }

    fn object<'j>(&mut self, json: &'j Json, must: &[&str], may: &[&str]) -> Members<'j> {
        let Value::Object(members) = &json.value else {
            self.broken();
            return Members(&[]);
        };
        let known = |name: &String| must.contains(&name.as_str()) || may.contains(&name.as_str());
        let complete = must.iter().all(|m| members.iter().any(|(name, _)| name == m));
        if !complete || !members.iter().all(|(name, _)| known(name)) {
            self.broken();
        }
        Members(members)
    }

    /// The member, unless it is absent; a missing mandatory one has been noted with the member set.
    fn member<'j>(&mut self, members: &Members<'j>, name: &str, look: impl FnOnce(&mut Self, &'j Json)) {
        if let Some(json) = members.get(name) {
            look(self, json);
        }
    }

    fn nullable<'j>(&mut self, members: &Members<'j>, name: &str, look: impl FnOnce(&mut Self, &'j Json)) {
        if let Some(json) = members.get(name)
            && !matches!(json.value, Value::Null)
        {
            look(self, json);
        }
    }

    fn text<'j>(&mut self, json: &'j Json) -> Option<&'j str> {
        match &json.value {
            Value::Text(text) => Some(text),
            _ => {
                self.broken();
                None
            }
        }
    }

    fn flag(&mut self, json: &Json) -> Option<bool> {
        match json.value {
            Value::Bool(flag) => Some(flag),
            _ => {
                self.broken();
                None
            }
        }
    }

    fn integer(&mut self, json: &Json, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        let Value::Number(written) = &json.value else {
            self.broken();
            return None;
        };
        let plain = written != "-0" && !written.contains(['.', 'e', 'E']);
        let Some(value) = written.parse::<i64>().ok().filter(|_| plain) else {
            self.broken();
            return None;
        };
        self.allow(range.contains(&value));
        Some(value)
    }

    fn number(&mut self, json: &Json, fits: impl Fn(f64) -> bool) {
        match &json.value {
            Value::Number(written) => self.allow(written.parse().is_ok_and(fits)),
            _ => self.broken(),
        }
    }

    fn list<'j>(&mut self, json: &'j Json, length: std::ops::RangeInclusive<usize>) -> &'j [Json] {
        match &json.value {
            Value::List(items) => {
                self.allow(length.contains(&items.len()));
                items
            }
            _ => {
                self.broken();
                &[]
            }
        }
    }

    fn form(&mut self, json: &Json, fits: impl Fn(&str) -> bool) {
        if let Some(text) = self.text(json) {
            self.allow(fits(text));
        }
    }

    fn uuid(&mut self, json: &Json) {
        self.form(json, |t| {
            let groups: Vec<&str> = t.split('-').collect();
            let lengths: Vec<usize> = groups.iter().map(|g| g.len()).collect();
            let hex = groups
                .iter()
                .all(|g| g.chars().all(|c| "0123456789abcdef".contains(c)));
            lengths == [8, 4, 4, 4, 12] && hex && t.chars().any(|c| c != '0' && c != '-')
        });
    }

    fn hex64(&mut self, json: &Json) {
        self.form(json, |t| {
            t.len() == 64 && t.chars().all(|c| "0123456789abcdef".contains(c))
        });
    }

    /// Nanoseconds since the year 0, for comparing.
    fn time(&mut self, json: &Json) -> Option<u128> {
        let text = self.text(json)?;
        let nanos = nanoseconds(text);
        self.allow(nanos.is_some());
        nanos
    }

    fn token(&mut self, json: &Json) -> bool {
        self.form(json, |t| {
            t.len() <= 64 && of(t, |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        });
        matches!(&json.value, Value::Text(t) if !t.is_empty())
    }

    fn short_text(&mut self, json: &Json, most: usize) {
        self.form(json, |t| {
            (1..=most).contains(&t.len()) && !t.chars().any(is_control)
        });
    }

    fn state_word(&mut self, json: &Json, most: usize) {
        self.form(json, |t| {
            (1..=most).contains(&t.len()) && of(t, |c| c.is_ascii_lowercase() || c == '_')
        });
    }

    fn one_of(&mut self, json: &Json, words: &[&str]) {
        self.form(json, |t| words.contains(&t));
    }

    fn base64(&mut self, json: &Json, most: usize) {
        self.form(json, |t| decoded_length(t).is_some_and(|n| n <= most));
    }
}

fn member_of<'j>(json: &'j Json, name: &str) -> Option<&'j Json> {
    match &json.value {
        Value::Object(members) => Members(members).get(name),
        _ => None,
    }
}

fn has(json: &Json, name: &str) -> bool {
    member_of(json, name).is_some()
}

fn text_at<'j>(json: &'j Json, name: &str) -> Option<&'j str> {
    match &member_of(json, name)?.value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

fn integer_at(json: &Json, name: &str) -> Option<i64> {
    match &member_of(json, name)?.value {
        Value::Number(written) => written.parse().ok(),
        _ => None,
    }
}
