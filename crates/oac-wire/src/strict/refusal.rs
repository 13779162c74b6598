//! Why a strict read failed, in words that hold no value of the document.

use std::{
    cell::{Cell, RefCell},
    fmt,
};

/// What kind of rule a document breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// Not one JSON document in UTF-8, or a number no JSON reader can hold.
    Syntax,
    Missing,
    Unknown,
    Duplicate,
    /// `null` where only a value may stand.
    Null,
    /// Another JSON type, or a number that is not a plain integer.
    Type,
    /// The right JSON type, but not a value of the member.
    Value,
}

/// Why a document was refused. Holds the member's path (empty for the document itself) and no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrictError {
    pub mistake: Mistake,
    /// Dotted path such as `reference.tenant_id` or `args[3]`.
    pub member: String,
    /// What would have been right, or where the syntax ends; empty when the mistake says it all.
    pub detail: String,
}

impl StrictError {
    /// A value that `rule` does not allow; the member's path is put in front by [`Self::within`].
    pub(crate) fn broken(rule: impl fmt::Display) -> Self {
        Self {
            mistake: Mistake::Value,
            member: String::new(),
            detail: rule.to_string(),
        }
    }

    /// The same mistake, seen from the object that holds `member`.
    pub(crate) fn within(mut self, member: &str) -> Self {
        let joint = if self.member.is_empty() || self.member.starts_with('[') {
            ""
        } else {
            "."
        };
        self.member.insert_str(0, joint);
        self.member.insert_str(0, member);
        self
    }
}

impl fmt::Display for StrictError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = match self.mistake {
            Mistake::Syntax => {
                f.write_str("not one valid JSON document")?;
                return if self.detail.is_empty() {
                    Ok(())
                } else {
                    write!(f, ": {}", self.detail)
                };
            }
            Mistake::Missing => "is missing",
            Mistake::Unknown => "is not a known member",
            Mistake::Duplicate => "stands twice",
            Mistake::Null => "must not be null",
            Mistake::Type => "has the wrong JSON type",
            Mistake::Value => "has a value that is not allowed",
        };
        if self.member.is_empty() {
            write!(f, "the document {said}")?;
        } else {
            write!(f, "{} {said}", self.member)?;
        }
        if self.detail.is_empty() {
            Ok(())
        } else {
            write!(f, " (expected: {})", self.detail)
        }
    }
}

impl std::error::Error for StrictError {}

pub(super) enum Segment {
    Member(String),
    Item(usize),
}

/// How the decoder came to the failing member: noted on the way back from it, so that a good document costs nothing.
#[derive(Default)]
pub(super) struct Track {
    /// Innermost first.
    path: RefCell<Vec<Segment>>,
    /// Set where the mistake is known exactly; the rest is read from the error's wording.
    pub(super) mistake: Cell<Option<Mistake>>,
}

impl Track {
    /// An error passes this place on its way out.
    pub(super) fn pass(&self, segment: Segment) {
        self.path.borrow_mut().push(segment);
    }

    pub(super) fn explain(&self, error: &serde_json::Error) -> StrictError {
        let text = error.to_string();
        let named = |start: &str| {
            text.strip_prefix(start)?
                .split_once('`')
                .map(|(name, _)| name.to_owned())
        };
        let (mistake, name) = if let Some(mistake) = self.mistake.get() {
            (mistake, None)
        } else if error.is_syntax() || error.is_eof() {
            (Mistake::Syntax, None)
        } else if let Some(name) = named("missing field `") {
            (Mistake::Missing, Some(name))
        } else if let Some(name) = named("unknown field `") {
            (Mistake::Unknown, Some(name))
        } else if text.starts_with("unknown field") {
            (Mistake::Unknown, None)
        } else if let Some(name) = named("duplicate field `") {
            (Mistake::Duplicate, Some(name))
        } else if text.starts_with("invalid type: null") {
            (Mistake::Null, None)
        } else if text.starts_with("invalid type") {
            (Mistake::Type, None)
        } else {
            (Mistake::Value, None)
        };
        let detail = match mistake {
            Mistake::Syntax => text.clone(),
            Mistake::Type | Mistake::Value => expectation(&text),
            _ => String::new(),
        };
        let mut member = String::new();
        for segment in self.path.borrow().iter().rev() {
            match segment {
                Segment::Member(name) => {
                    if !member.is_empty() {
                        member.push('.');
                    }
                    member.push_str(name);
                }
                Segment::Item(index) => member.push_str(&format!("[{index}]")),
            }
        }
        if let Some(name) = name {
            if !member.is_empty() {
                member.push('.');
            }
            member.push_str(&name);
        }
        // A member name comes from whoever wrote the document; it must not fill a log.
        let member: String = member
            .chars()
            .filter(|c| !c.is_control())
            .take(MEMBER_CHARS)
            .collect();
        StrictError {
            mistake,
            member,
            detail,
        }
    }
}

/// What an error's wording expects, without any value: an author's text stands last, behind the refused value.
fn expectation(text: &str) -> String {
    let position = |tail: &str| {
        tail.bytes()
            .all(|b| b.is_ascii_digit() || b" column".contains(&b))
    };
    let text = match text.rsplit_once(" at line ") {
        Some((said, tail)) if position(tail) => said,
        _ => text,
    };
    let authored = ["expected ", "invalid ", "unknown variant "]
        .iter()
        .any(|s| text.starts_with(s));
    let Some((_, expected)) = text.rsplit_once("expected ").filter(|_| authored) else {
        return String::new();
    };
    match expected {
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a plain integer in signed 64 bits".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => "a plain integer of at least 0".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a sequence" => "an array".to_owned(),
        "any valid JSON value" | "a map" => "an object".to_owned(),
        _ if expected.starts_with("struct ") || expected.starts_with("tuple struct ") => {
            "an object".to_owned()
        }
        _ => expected
            .chars()
            .filter(|c| !c.is_control())
            .take(MEMBER_CHARS)
            .collect(),
    }
}

/// Longest member path an error shows, in characters.
const MEMBER_CHARS: usize = 160;
