//! The corpora: every codec change runs them (style.md, practice 8).
//!
//! A row is complete: `name`, the `rule` it is about, what is `expect`ed, `direction` and `frame`. It is expected that a
//! frame is taken (`accept`), that it is taken and its operation read as unconfirmed (`unconfirmed`), that its request is
//! answered `invalid` (`request`), or that the connection closes (`frame`). The rows can be given to `oac-wire-check`.

use std::{collections::BTreeSet, fs, path::Path};

use oac_wire::{CoreFrame, Direction, FrameError, NodeFrame, Verdict, frames::Arguments, judge, limits};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    rule: String,
    expect: String,
    direction: String,
    frame: String,
}

impl Row {
    fn direction(&self) -> Direction {
        Direction::from_text(&self.direction).unwrap()
    }
}

fn rows(file: &str) -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(format!("{file}.jsonl"));
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn frame(name: &str) -> String {
    rows("frames")
        .into_iter()
        .find(|row| row.name == name)
        .unwrap()
        .frame
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Accept => "accept",
        Verdict::Unconfirmed(_) => "unconfirmed",
        Verdict::Frame(_) => "frame",
        Verdict::Request(_) => "request",
    }
}

/// A frame that is taken is what its sender would have written, as far as meaning goes.
fn assert_returns(row: &Row) {
    match row.direction() {
        Direction::NodeToCore => {
            let frame = NodeFrame::decode(row.frame.as_bytes()).unwrap();
            let text = frame
                .encode()
                .unwrap_or_else(|error| panic!("{}: {error}", row.name));
            assert_eq!(NodeFrame::decode(text.as_bytes()).unwrap(), frame, "{}", row.name);
        }
        Direction::CoreToNode => {
            let frame = CoreFrame::decode(row.frame.as_bytes()).unwrap();
            let text = frame
                .encode()
                .unwrap_or_else(|error| panic!("{}: {error}", row.name));
            assert_eq!(CoreFrame::decode(text.as_bytes()).unwrap(), frame, "{}", row.name);
        }
    }
}

/// The receiver's verdict, the sender's way back, and the other receiver, which takes no frame of this direction.
fn run(file: &str) {
    let mut names = BTreeSet::new();
    let mut wrong = Vec::new();
    for row in rows(file) {
        assert!(names.insert(row.name.clone()), "two rows are named {}", row.name);
        assert!(!row.rule.is_empty(), "{} says no rule", row.name);
        let verdict = judge(row.direction(), row.frame.as_bytes());
        if word(&verdict) != row.expect {
            wrong.push(format!(
                "{file}: {} ({}): expected {}, got {verdict:?}",
                row.name, row.rule, row.expect
            ));
            continue;
        }
        if row.expect == "accept" {
            assert_returns(&row);
        }
        if row.expect != "frame" {
            let other = match row.direction() {
                Direction::NodeToCore => Direction::CoreToNode,
                Direction::CoreToNode => Direction::NodeToCore,
            };
            let verdict = judge(other, row.frame.as_bytes());
            assert!(matches!(verdict, Verdict::Frame(_)), "{}: {verdict:?}", row.name);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

// req: P-020, P-021, P-031, P-038, P-040, P-041, P-042, P-043, P-059, P-074
#[test]
fn every_frame_of_the_protocol_is_taken_by_its_receiver_and_returns() {
    run("frames");
}

// req: P-004, P-005
// inv: INV-P2
#[test]
fn a_frame_of_another_version_type_or_direction_closes() {
    run("types");
}

// req: P-003, P-006, P-007
// inv: INV-P1
#[test]
fn a_frame_is_one_json_object_in_exact_form_at_every_depth() {
    run("encoding");
}

// inv: INV-P1, INV-P27
#[test]
fn texts_have_the_form_of_their_type() {
    run("forms");
}

// req: P-006, P-007, P-008
// inv: INV-P1
#[test]
fn a_wrong_member_set_type_or_null_closes_in_every_object_of_every_frame() {
    run("structure");
}

// req: P-020, P-024, P-032, P-039
// inv: INV-P16
#[test]
fn a_value_out_of_bounds_in_a_control_frame_closes() {
    run("control");
}

#[test]
fn a_value_out_of_bounds_in_a_request_makes_it_invalid_and_closes_nothing() {
    run("requests");
}

// inv: INV-P18
#[test]
fn a_value_out_of_bounds_in_a_result_leaves_the_outcome_unconfirmed() {
    run("responses");
}

#[test]
fn a_malformed_frame_is_refused_whatever_its_bytes() {
    let good = frame("heartbeat").into_bytes();
    for at in 0..good.len() {
        for byte in [0x80, 0xc3, 0xff, 0x00] {
            let mut bytes = good.clone();
            bytes[at] = byte;
            assert!(NodeFrame::decode(&bytes).is_err(), "{byte:#x} at {at}");
        }
        assert!(NodeFrame::decode(&good[..at]).is_err(), "cut at {at}");
    }
}

// inv: INV-P20, INV-P25
#[test]
fn no_reason_repeats_a_value_of_the_frame() {
    let create = frame("create");
    for (from, to) in [
        (r#""link_url":"wss:"#, r#""link_url":"open-sesame:"#),
        (r#""credential":""#, r#""credential":"open sesame "#),
        (r#""session_id":""#, r#""session_id":"expected sesame"#),
        (r#""credential":""#, r#""credential":5,"sesame":""#),
        (
            r#""network_access":"public""#,
            r#""network_access":"x, expected sesame at line 1 column 2""#,
        ),
        (r#""workspace":null"#, r#""workspace":"expected sesame""#),
        (
            r#""version":1,"link_url""#,
            r#""version":"expected sesame","link_url""#,
        ),
        (r#""allowed_domains":[]"#, r#""allowed_domains":["sesame"]"#),
    ] {
        let text = create.replacen(from, to, 1);
        assert_ne!(text, create, "{from}");
        let verdict = judge(Direction::CoreToNode, text.as_bytes());
        assert_ne!(verdict, Verdict::Accept, "{to}");
        let said = format!("{verdict:?}").replace("sesame is not a known member", "");
        assert!(!said.contains("sesame"), "{said}");
        let error = CoreFrame::decode(text.as_bytes());
        assert!(!format!("{error:?}").contains("open"), "{error:?}");
    }
}

#[test]
fn reasons_name_the_member_and_the_rule() {
    let create = frame("create");
    let status = frame("hello of a managing node");
    for (frame, from, to, reason) in [
        (
            &create,
            r#""timeout_ms":30000"#,
            r#""timeout_ms":0"#,
            "timeout_ms has a value that is not allowed (expected: 1..120000)",
        ),
        (
            &create,
            r#""session_id":""#,
            r#""session_id":"x"#,
            "bootstrap.session_id has a value that is not allowed (expected: a lowercase hyphenated nonzero UUID)",
        ),
        (
            &create,
            r#""kind":"allocation""#,
            r#""kind":"session""#,
            "bootstrap.link.resource.kind has a value that is not allowed (expected: `allocation`)",
        ),
        (
            &create,
            r#""kind":"allocation","#,
            "",
            "bootstrap.link.resource.kind is missing",
        ),
        (
            &create,
            r#""operation":"create""#,
            r#""operation":"kill""#,
            "bootstrap is not a known member (expected: no argument of kill)",
        ),
        (
            &status,
            r#""generation":2"#,
            r#""generation":0"#,
            "health.generations[1].generation has a value that is not allowed (expected: an integer from 1 to 9223372036854775807)",
        ),
        (
            &status,
            r#""generation":2"#,
            r#""generation":2.0"#,
            "health.generations[1].generation has the wrong JSON type (expected: a plain integer in signed 64 bits)",
        ),
        (
            &status,
            r#""max_active":2"#,
            r#""max_active":3"#,
            "identity has a value that is not allowed (expected: max_retained is at least max_active)",
        ),
        (
            &status,
            r#""max_active":2"#,
            r#""max_active":02"#,
            "not one valid JSON document: invalid number at line 1 column 386",
        ),
    ] {
        let text = frame.replacen(from, to, 1);
        assert_ne!(text, *frame, "{from}");
        let direction = if frame == &create {
            Direction::CoreToNode
        } else {
            Direction::NodeToCore
        };
        match judge(direction, text.as_bytes()) {
            Verdict::Frame(said) | Verdict::Request(said) => assert_eq!(said, reason),
            other => panic!("{other:?}"),
        }
    }
}

fn padded(frame: &str, bytes: usize) -> String {
    let mut text = frame.to_owned();
    text.extend(std::iter::repeat_n(' ', bytes - frame.len()));
    text
}

// req: P-009, P-010
#[test]
fn a_frame_at_its_limit_is_taken_and_one_byte_more_is_not() {
    for (name, limit) in [
        ("heartbeat", limits::CONTROL_FRAME_BYTES),
        ("hello", limits::CONTROL_FRAME_BYTES),
        ("retention", limits::CONTROL_FRAME_BYTES),
        ("response info", limits::REQUEST_FRAME_BYTES),
    ] {
        let frame = frame(name);
        assert!(NodeFrame::decode(padded(&frame, limit).as_bytes()).is_ok());
        let refused = NodeFrame::decode(padded(&frame, limit + 1).as_bytes()).unwrap_err();
        let bytes = limit + 1;
        assert_eq!(refused, FrameError::TooLarge { bytes, limit }, "{name}");
    }
    for (name, limit) in [
        ("welcome", limits::CONTROL_FRAME_BYTES),
        ("heartbeat_ack", limits::CONTROL_FRAME_BYTES),
        ("retention_ack", limits::CONTROL_FRAME_BYTES),
        ("create", limits::REQUEST_FRAME_BYTES),
    ] {
        let frame = frame(name);
        assert!(CoreFrame::decode(padded(&frame, limit).as_bytes()).is_ok());
        let refused = CoreFrame::decode(padded(&frame, limit + 1).as_bytes()).unwrap_err();
        let bytes = limit + 1;
        assert_eq!(refused, FrameError::TooLarge { bytes, limit }, "{name}");
    }
}

#[test]
fn the_largest_standard_input_passes_and_one_byte_more_is_invalid() {
    let text = frame("command");
    let CoreFrame::Request(mut request) = CoreFrame::decode(text.as_bytes()).unwrap() else {
        panic!("a request")
    };
    for (bytes, fits) in [(limits::STDIN_BYTES, true), (limits::STDIN_BYTES + 1, false)] {
        if let Arguments::Command(command) = &mut request.body.as_mut().unwrap().arguments {
            command.stdin = Some(vec![b'x'; bytes].into());
        }
        let encoded = CoreFrame::Request(request.clone()).encode();
        assert_eq!(encoded.is_ok(), fits);
        if let Ok(text) = encoded {
            let again = CoreFrame::decode(text.as_bytes()).unwrap();
            assert_eq!(again, CoreFrame::Request(request.clone()));
        }
    }
    let wide = oac_wire::B64(vec![b'x'; limits::STDIN_BYTES + 1]).encode();
    let wide = text.replace("aGk=", &wide);
    assert_eq!(word(&judge(Direction::CoreToNode, wide.as_bytes())), "request");
}

#[test]
fn arguments_and_output_have_a_mebibyte_and_no_byte_more() {
    let command = frame("command");
    for (more, expected) in [(0, "accept"), (1, "request")] {
        let args = format!(
            r#"["cat","{}","{}"]"#,
            "x".repeat(1 << 19),
            "y".repeat((1 << 19) - 3 + more)
        );
        let text = command.replace(r#"["cat","-"]"#, &args);
        assert_eq!(word(&judge(Direction::CoreToNode, text.as_bytes())), expected);
    }
    let response = frame("response command");
    for (more, expected) in [(0, "accept"), (1, "unconfirmed")] {
        let output = oac_wire::B64(vec![b'x'; limits::OUTPUT_BYTES + more]).encode();
        for member in ["stdout", "stderr"] {
            let value = if member == "stdout" { "" } else { "aGk=" };
            let text = response.replace(
                &format!(r#""{member}":"{value}""#),
                &format!(r#""{member}":"{output}""#),
            );
            assert_ne!(text, response);
            assert_eq!(
                word(&judge(Direction::NodeToCore, text.as_bytes())),
                expected,
                "{member}"
            );
        }
    }
}

// inv: INV-P30
#[test]
fn opaque_data_returns_byte_for_byte() {
    let data = r#"{ "b" : 1.50, "a":[ null,"\u0041ä\/" ], "c":1E3, "":-0 }"#;
    let sent = frame("delete_retained").replace(r#"{"x":null}"#, data);
    let encoded = CoreFrame::decode(sent.as_bytes()).unwrap().encode().unwrap();
    assert!(encoded.contains(data), "{encoded}");
    let state = frame("response state").replace(r#"{"x":null}"#, data);
    let encoded = NodeFrame::decode(state.as_bytes()).unwrap().encode().unwrap();
    assert_eq!(encoded.matches(data).count(), 2, "{encoded}");
}
