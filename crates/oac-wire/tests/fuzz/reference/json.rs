//! JSON read slowly and on its own: no code of the codec, and none of serde.

use std::ops::Range;

/// A value and where it stands in the text.
#[derive(Debug, Clone)]
pub(crate) struct Json {
    pub(crate) value: Value,
    pub(crate) place: Range<usize>,
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// As it is written.
    Number(String),
    Text(String),
    List(Vec<Json>),
    /// In the order of the text; names are distinct.
    Object(Vec<(String, Json)>),
}

/// The one document in `bytes`, or `None` when it breaks a rule of JSON, UTF-8 or protocol.md section 2 that concerns
/// any document: names unique, numbers finite.
pub(crate) fn parse(bytes: &[u8]) -> Option<Json> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut reader = Reader {
        text,
        bytes: text.as_bytes(),
        at: 0,
    };
    reader.skip();
    let json = reader.value()?;
    reader.skip();
    (reader.at == bytes.len()).then_some(json)
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn skip(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Option<Value> {
        let found = self.text.get(self.at..)?.starts_with(word);
        found.then(|| {
            self.at += word.len();
            value
        })
    }

    fn value(&mut self) -> Option<Json> {
        let start = self.at;
        let value = match self.peek()? {
            b'n' => self.word("null", Value::Null)?,
            b't' => self.word("true", Value::Bool(true))?,
            b'f' => self.word("false", Value::Bool(false))?,
            b'"' => Value::Text(self.string()?),
            b'[' => self.list()?,
            b'{' => self.object()?,
            _ => self.number()?,
        };
        Some(Json {
            value,
            place: start..self.at,
        })
    }

    fn list(&mut self) -> Option<Value> {
        self.take(b'[')?;
        let mut items = Vec::new();
        self.skip();
        if self.take(b']').is_some() {
            return Some(Value::List(items));
        }
        loop {
            self.skip();
            items.push(self.value()?);
            self.skip();
            if self.take(b',').is_none() {
                self.take(b']')?;
                return Some(Value::List(items));
            }
        }
    }

    fn object(&mut self) -> Option<Value> {
        self.take(b'{')?;
        let mut members: Vec<(String, Json)> = Vec::new();
        self.skip();
        if self.take(b'}').is_some() {
            return Some(Value::Object(members));
        }
        loop {
            self.skip();
            let name = self.string()?;
            if members.iter().any(|(known, _)| *known == name) {
                return None;
            }
            self.skip();
            self.take(b':')?;
            self.skip();
            members.push((name, self.value()?));
            self.skip();
            if self.take(b',').is_none() {
                self.take(b'}')?;
                return Some(Value::Object(members));
            }
        }
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Option<Value> {
        let start = self.at;
        let _ = self.take(b'-');
        let zero = self.peek()? == b'0';
        let whole = self.digits();
        if whole == 0 || (zero && whole > 1) {
            return None;
        }
        if self.take(b'.').is_some() && self.digits() == 0 {
            return None;
        }
        if self.take(b'e').or_else(|| self.take(b'E')).is_some() {
            let _ = self.take(b'+').or_else(|| self.take(b'-'));
            if self.digits() == 0 {
                return None;
            }
        }
        let written = self.text[start..self.at].to_owned();
        written
            .parse::<f64>()
            .is_ok_and(f64::is_finite)
            .then_some(Value::Number(written))
    }

    fn string(&mut self) -> Option<String> {
        self.take(b'"')?;
        let mut units: Vec<u16> = Vec::new();
        loop {
            let next = self.text[self.at..].chars().next()?;
            self.at += next.len_utf8();
            match next {
                '"' => return String::from_utf16(&units).ok(),
                '\\' => {
                    let escape = self.peek()?;
                    self.at += 1;
                    units.push(match escape {
                        b'"' | b'\\' | b'/' => u16::from(escape),
                        b'b' => 8,
                        b'f' => 12,
                        b'n' => 10,
                        b'r' => 13,
                        b't' => 9,
                        b'u' => {
                            let hex = self.text.get(self.at..self.at + 4)?;
                            if !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
                                return None;
                            }
                            self.at += 4;
                            u16::from_str_radix(hex, 16).ok()?
                        }
                        _ => return None,
                    });
                }
                control if control < ' ' => return None,
                other => units.extend_from_slice(other.encode_utf16(&mut [0; 2])),
            }
        }
    }
}
