//! The golden corpus and the reject corpus: every codec change runs them (style.md, practice 8).

use std::{fs, path::Path};

use oac_wire::{CoreFrame, FrameError, NodeFrame, frames::Arguments, limits};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    direction: String,
    frame: String,
    #[serde(default)]
    stage: String,
}

fn corpus(file: &str) -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(file);
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Where the frame is refused: `""` nowhere, `frame`, `request` or `result`; and the frame again.
fn judge(case: &Case) -> (&'static str, Option<String>) {
    if case.direction == "node->core" {
        match NodeFrame::decode(case.frame.as_bytes()) {
            Err(_) => ("frame", None),
            Ok(NodeFrame::Response(r)) if r.result.is_err() => ("result", None),
            Ok(frame) => ("", Some(frame.encode().unwrap())),
        }
    } else {
        match CoreFrame::decode(case.frame.as_bytes()) {
            Err(_) => ("frame", None),
            Ok(CoreFrame::Request(r)) if r.body.is_err() => ("request", None),
            Ok(frame) => ("", Some(frame.encode().unwrap())),
        }
    }
}

// req: P-003, P-004, P-020, P-021, P-031, P-038, P-039, P-040, P-041, P-042, P-043, P-059, P-074
#[test]
fn every_frame_of_the_accept_corpus_is_accepted_and_survives_a_round_trip() {
    for case in corpus("accept.jsonl") {
        let (stage, encoded) = judge(&case);
        assert_eq!(stage, "", "{}", case.name);
        let again = Case {
            frame: encoded.clone().unwrap(),
            ..case
        };
        assert_eq!(judge(&again), ("", encoded), "{}", again.name);
    }
}

// req: P-004, P-005, P-006, P-007, P-008, P-020, P-024, P-032, P-039
// inv: INV-P1, INV-P2, INV-P16
#[test]
fn every_frame_of_the_reject_corpus_is_refused_at_its_stage() {
    for case in corpus("reject.jsonl") {
        assert_eq!(judge(&case).0, case.stage, "{}: {}", case.name, case.frame);
    }
}

// inv: INV-P20
#[test]
fn no_refusal_repeats_a_value_of_the_frame() {
    let frame =
        r#"{"version":1,"type":"heartbeat","connection_id":"open-sesame","owner_epoch":1,"health":{}}"#;
    let error = NodeFrame::decode(frame.as_bytes()).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("sesame"), "{error}");
}

fn padded(frame: &str, bytes: usize) -> String {
    let mut text = frame.to_owned();
    text.extend(std::iter::repeat_n(' ', bytes - frame.len()));
    text
}

// req: P-009, P-010
#[test]
fn a_frame_at_its_limit_is_taken_and_one_byte_more_is_not() {
    let accept = corpus("accept.jsonl");
    let named = |name: &str| accept.iter().find(|c| c.name == name).unwrap().frame.clone();
    for (frame, limit) in [
        (named("heartbeat"), limits::CONTROL_FRAME_BYTES),
        (named("hello"), limits::CONTROL_FRAME_BYTES),
        (named("retention"), limits::CONTROL_FRAME_BYTES),
        (named("response info"), limits::REQUEST_FRAME_BYTES),
    ] {
        assert!(NodeFrame::decode(padded(&frame, limit).as_bytes()).is_ok());
        let refused = NodeFrame::decode(padded(&frame, limit + 1).as_bytes()).unwrap_err();
        assert_eq!(
            refused,
            FrameError::TooLarge {
                bytes: limit + 1,
                limit
            }
        );
    }
    for (frame, limit) in [
        (named("welcome"), limits::CONTROL_FRAME_BYTES),
        (named("heartbeat_ack"), limits::CONTROL_FRAME_BYTES),
        (named("retention_ack"), limits::CONTROL_FRAME_BYTES),
        (named("create"), limits::REQUEST_FRAME_BYTES),
    ] {
        assert!(CoreFrame::decode(padded(&frame, limit).as_bytes()).is_ok());
        let refused = CoreFrame::decode(padded(&frame, limit + 1).as_bytes()).unwrap_err();
        assert_eq!(
            refused,
            FrameError::TooLarge {
                bytes: limit + 1,
                limit
            }
        );
    }
}

#[test]
fn the_largest_standard_input_passes_and_one_byte_more_is_invalid() {
    let accept = corpus("accept.jsonl");
    let frame = &accept.iter().find(|c| c.name == "command").unwrap().frame;
    let CoreFrame::Request(mut request) = CoreFrame::decode(frame.as_bytes()).unwrap() else {
        panic!("a request")
    };
    for (bytes, fits) in [(limits::STDIN_BYTES, true), (limits::STDIN_BYTES + 1, false)] {
        if let Arguments::Command(command) = &mut request.body.as_mut().unwrap().arguments {
            command.stdin = Some(vec![b'x'; bytes].into());
        }
        let encoded = CoreFrame::Request(request.clone()).encode();
        assert_eq!(encoded.is_ok(), fits);
        if let Ok(text) = encoded {
            assert_eq!(
                CoreFrame::decode(text.as_bytes()).unwrap(),
                CoreFrame::Request(request.clone())
            );
        }
    }
}

// inv: INV-P30
#[test]
fn opaque_data_returns_byte_for_byte() {
    let accept = corpus("accept.jsonl");
    let frame = accept
        .iter()
        .find(|c| c.name == "delete_retained")
        .unwrap()
        .frame
        .clone();
    let spaced = frame.replace(r#""data":{"x":null}"#, r#""data":{ "b" : 1.50, "a":[ null ] }"#);
    assert_ne!(frame, spaced);
    let encoded = CoreFrame::decode(spaced.as_bytes()).unwrap().encode().unwrap();
    assert!(encoded.contains(r#"{ "b" : 1.50, "a":[ null ] }"#), "{encoded}");
}
