//! Frames made from frames: members, values, lists and bytes changed at random, with a liking for edges.

use super::{
    random::Random,
    reference::json::{Json, Value},
};

/// Numbers as they are written.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "8",
    "9",
    "32",
    "33",
    "64",
    "65",
    "255",
    "256",
    "1024",
    "120000",
    "120001",
    "1000000",
    "1000001",
    "9007199254740991",
    "9007199254740992",
    "9223372036854775807",
    "-9223372036854775808",
    "4294967297",
    "-0",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "1.0",
    "1e0",
    "1E+0",
    "0.5",
    "-0.0",
    "1e-400",
    "1e308",
    "1e309",
    "1e400",
    "-1e400",
    "1.7976931348623157e308",
    "1.7976931348623159e308",
    "0.1e1",
    "100000000000000000000000000000000",
    "01",
    "+1",
    "1.",
    ".5",
    "1e",
    "NaN",
];

const TEXTS: &[&str] = &[
    "",
    "x",
    "running",
    "absent",
    "ready",
    "failed",
    "docker",
    "microsandbox",
    "e2b",
    "public",
    "restricted",
    "none",
    "managed",
    "allocation",
    "disabled",
    "create",
    "info",
    "kill",
    "command",
    "new_compute",
    "suspend",
    "unsupported",
    "Suspend",
    "GetInfo",
    "hello",
    "request",
    "response",
    "11111111-1111-4111-8111-111111111111",
    "22222222-2222-4222-8222-222222222222",
    "00000000-0000-0000-0000-000000000000",
    "AAAAAAAA-AAAA-4AAA-8AAA-AAAAAAAAAAAA",
    "abababababababababababababababababababababababababababababababab",
    "2026-01-02T03:04:05Z",
    "2026-01-02T03:04:05.000000001Z",
    "2016-12-31T23:59:60Z",
    "1969-12-31T23:59:59Z",
    "2024-02-29T00:00:00Z",
    "2025-02-29T00:00:00Z",
    "9999-12-31T23:59:59.999999999Z",
    "aGk=",
    "aGl=",
    "aGk",
    "AAAA",
    "=",
    "/",
    "/a/b",
    "a/b",
    "/a/../b",
    "a\0b",
    "a b",
    "\u{85}",
    "\u{7f}",
    "\n",
    "ä",
    "😀",
    "\u{feff}",
    "\u{a0}",
    "ws://h/api/v1/sandbox-link",
    "wss://[::1]:1/api/v1/sandbox-link",
    "http://h/api/v1/sandbox-link",
    "ws://h:0/api/v1/sandbox-link",
    "core.example",
    "-a",
    "a_b",
];

const NAMES: &[&str] = &[
    "version",
    "type",
    "id",
    "sequence",
    "connection_id",
    "owner_epoch",
    "health",
    "identity",
    "generations",
    "diagnostic",
    "generation",
    "specification_digest",
    "state",
    "keep",
    "reference",
    "compute",
    "command",
    "info",
    "sample",
    "unsupported",
    "error_code",
    "retained",
    "stdin",
    "workspace",
    "data",
    "a",
    "",
    "ID",
    "Version",
];

/// The first of them are plain integers of signed 64 bits.
const PLAIN: usize = 22;

/// How many bytes a mutated frame may have.
const MOST: usize = 200_000;

pub(crate) fn mutate(random: &mut Random, seed: &Json, other: &Json) -> Vec<u8> {
    let mut json = seed.clone();
    for _ in 0..*random.pick(&[1, 1, 1, 2, 3, 5]) {
        change(random, &mut json, other);
    }
    let mut out = Vec::new();
    write(random, &json, &mut out);
    if random.one_in(16) {
        bytes(random, &mut out);
    }
    out.truncate(MOST);
    out
}

/// Changes at the level of bytes, also of what is no JSON.
pub(crate) fn bytes(random: &mut Random, out: &mut Vec<u8>) {
    for _ in 0..1 + random.below(3) {
        let at = random.below(out.len() + 1);
        let end = (at + random.below(12)).min(out.len());
        match random.below(6) {
            0 => out.truncate(at),
            1 => drop(out.drain(at..end)),
            2 => {
                let copy = out[at..end].to_vec();
                out.splice(at..at, copy);
            }
            3 if at < out.len() => out[at] ^= 1 << random.below(8),
            4 => out.insert(at, *random.pick(b"\"\\{}[],:0-e. \t\n\0\x7f\xff\xc3\xef")),
            _ => {
                let pieces: [&[u8]; 11] = [
                    b"null",
                    b"\\u0000",
                    b"\\ud800",
                    b"\\u0061",
                    b"\xef\xbb\xbf",
                    b"[[[[",
                    b"{\"a\":",
                    b"1e400",
                    b"//",
                    b"\xc2\x85",
                    b"}",
                ];
                let piece = *random.pick(&pieces);
                out.splice(at..at, piece.iter().copied());
            }
        }
    }
}

fn place<'j>(random: &mut Random, mut json: &'j mut Json) -> &'j mut Json {
    loop {
        let children = match &json.value {
            Value::List(items) => items.len(),
            Value::Object(members) => members.len(),
            _ => 0,
        };
        if children == 0 || random.one_in(8) {
            return json;
        }
        let index = random.below(children);
        json = match &mut json.value {
            Value::List(items) => &mut items[index],
            Value::Object(members) => &mut members[index].1,
            _ => unreachable!("a value without children was returned above"),
        };
    }
}

fn change(random: &mut Random, root: &mut Json, other: &Json) {
    let foreign = place(random, &mut other.clone()).clone();
    let json = place(random, root);
    match &mut json.value {
        Value::Object(members) if !members.is_empty() && !random.one_in(4) => {
            let index = random.below(members.len());
            match random.below(8) {
                0 => drop(members.remove(index)),
                1 => {
                    let copy = members[index].clone();
                    members.insert(random.below(members.len() + 1), copy);
                }
                2 => members[index].0 = (*random.pick(NAMES)).to_owned(),
                3 => members[index].0 = capitalised(&members[index].0),
                4 => members.push(((*random.pick(NAMES)).to_owned(), foreign)),
                5 => {
                    let to = random.below(members.len());
                    members.swap(index, to);
                }
                6 => members[index].1 = value(random),
                _ => {
                    // Two places of one frame that are to be equal stay equal only half the time.
                    let from = random.below(members.len());
                    members[index].1 = members[from].1.clone();
                }
            }
        }
        Value::List(items) if !random.one_in(4) => match random.below(4) {
            0 if !items.is_empty() => drop(items.remove(random.below(items.len()))),
            1 => items.push(foreign),
            2 if !items.is_empty() => {
                let item = items[random.below(items.len())].clone();
                let to = *random.pick(&[1, 2, 8, 9, 64, 65, 1024, 1025]);
                if to * (item.place.len() + 2) < MOST {
                    *items = vec![item; to];
                }
            }
            _ => items.push(value(random)),
        },
        Value::Text(text) if !random.one_in(10) => *text = changed_text(random, text),
        Value::Number(written) if !random.one_in(10) => {
            *written = match written.parse::<i64>() {
                Ok(n) if random.one_in(2) => n.wrapping_add(random.below(5) as i64 - 2).to_string(),
                _ if random.one_in(2) => (*random.pick(&NUMBERS[..PLAIN])).to_owned(),
                _ => (*random.pick(NUMBERS)).to_owned(),
            }
        }
        Value::Bool(flag) if !random.one_in(10) => *flag = !*flag,
        other => {
            *other = if random.one_in(2) {
                foreign.value
            } else {
                value(random).value
            }
        }
    }
}

fn capitalised(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map_or_else(
        || "_".to_owned(),
        |first| first.to_uppercase().chain(chars).collect(),
    )
}

fn changed_text(random: &mut Random, text: &str) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    match random.below(5) {
        0 => (*random.pick(TEXTS)).to_owned(),
        1 => {
            let bytes = *random.pick(&[
                31, 32, 33, 63, 64, 65, 127, 128, 129, 253, 254, 255, 256, 257, 4096, 4097,
            ]);
            let unit = *random.pick(&["x", "_", "0", "ä"]);
            unit.repeat(bytes / unit.len())
        }
        2 => {
            chars.insert(
                random.below(chars.len() + 1),
                *random.pick(&['x', '0', ' ', '\0', 'A', '/', '.', '-', '=', 'ä']),
            );
            chars.into_iter().collect()
        }
        3 if !chars.is_empty() => {
            chars.remove(random.below(chars.len()));
            chars.into_iter().collect()
        }
        _ => text.to_uppercase(),
    }
}

fn value(random: &mut Random) -> Json {
    let value = match random.below(8) {
        0 => Value::Null,
        1 => Value::Bool(random.one_in(2)),
        2 | 3 => Value::Number((*random.pick(NUMBERS)).to_owned()),
        4 | 5 => Value::Text((*random.pick(TEXTS)).to_owned()),
        6 => {
            let depth = *random.pick(&[0, 1, 2, 30, 127, 128, 129, 600]);
            let mut json = leaf(Value::Number("1".to_owned()));
            for _ in 0..depth {
                json = leaf(if random.one_in(2) {
                    Value::List(vec![json])
                } else {
                    Value::Object(vec![("a".to_owned(), json)])
                });
            }
            json.value
        }
        _ => Value::Object(
            (0..random.below(4))
                .map(|_| ((*random.pick(NAMES)).to_owned(), value(random)))
                .collect(),
        ),
    };
    leaf(value)
}

fn leaf(value: Value) -> Json {
    Json { value, place: 0..0 }
}

fn space(random: &mut Random, out: &mut Vec<u8>) {
    if random.one_in(60) {
        out.push(*random.pick(b" \t\n\r"));
    }
}

fn write(random: &mut Random, json: &Json, out: &mut Vec<u8>) {
    space(random, out);
    match &json.value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(flag) => out.extend_from_slice(flag.to_string().as_bytes()),
        Value::Number(written) => out.extend_from_slice(written.as_bytes()),
        Value::Text(text) => write_text(random, text, out),
        Value::List(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(random, item, out);
            }
            out.push(b']');
        }
        Value::Object(members) => {
            out.push(b'{');
            for (index, (name, value)) in members.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_text(random, name, out);
                space(random, out);
                out.push(b':');
                write(random, value, out);
            }
            out.push(b'}');
        }
    }
    space(random, out);
}

fn write_text(random: &mut Random, text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let escaping = random.one_in(20);
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend_from_slice(format!("\\{c}").as_bytes()),
            c if c < ' ' || (escaping && random.one_in(3)) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
                }
            }
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}
