//! Senders run the receiver's validator on every outgoing frame (protocol.md section 2).

use std::{fs, path::Path};

use oac_model::DiagnosticCode;
use oac_wire::{
    CoreFrame, NodeFrame, Nullable,
    frames::{Arguments, GenerationStatus, Hello, Request, ResponseResult, Token},
    shapes::Opaque,
};
use serde_json::value::RawValue;

fn frame(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/frames.jsonl");
    let rows = fs::read_to_string(path).unwrap();
    let row = rows
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .find(|row| row["name"] == name);
    row.unwrap()["frame"].as_str().unwrap().to_owned()
}

fn hello(name: &str) -> Hello {
    match NodeFrame::decode(frame(name).as_bytes()).unwrap() {
        NodeFrame::Hello(hello) => *hello,
        other => panic!("{other:?}"),
    }
}

fn request(name: &str) -> Request {
    match CoreFrame::decode(frame(name).as_bytes()).unwrap() {
        CoreFrame::Request(request) => *request,
        other => panic!("{other:?}"),
    }
}

fn refuses_hello(name: &str, spoil: impl Fn(&mut Hello)) -> String {
    let mut frame = hello(name);
    assert!(NodeFrame::Hello(Box::new(frame.clone())).encode().is_ok());
    spoil(&mut frame);
    NodeFrame::Hello(Box::new(frame))
        .encode()
        .unwrap_err()
        .to_string()
}

fn refuses_arguments(name: &str, spoil: impl Fn(&mut Arguments)) -> String {
    let mut frame = request(name);
    assert!(CoreFrame::Request(Box::new(frame.clone())).encode().is_ok());
    spoil(&mut frame.body.as_mut().unwrap().arguments);
    CoreFrame::Request(Box::new(frame))
        .encode()
        .unwrap_err()
        .to_string()
}

#[test]
fn a_number_that_json_cannot_hold_is_never_sent_as_null() {
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let said = refuses_hello("hello", |h| h.health.effective_cpu_cores = Nullable(Some(number)));
        assert!(said.contains("health.effective_cpu_cores"), "{said}");
        let said = refuses_hello("hello", |h| h.health.cpu_utilization = Nullable(Some(number)));
        assert!(said.contains("health.cpu_utilization"), "{said}");
        let mut response = match NodeFrame::decode(frame("response sample").as_bytes()).unwrap() {
            NodeFrame::Response(response) => response,
            other => panic!("{other:?}"),
        };
        if let Ok(Some(ResponseResult::Sample(sample))) = &mut response.result {
            sample.cpu_usage_seconds_total = Nullable(Some(number));
        }
        assert!(NodeFrame::Response(response).encode().is_err());
    }
}

// inv: INV-P16
#[test]
fn a_node_sends_no_report_that_core_would_close_for() {
    let said = refuses_hello("hello of a managing node", |h| h.health.provider_ready = true);
    assert!(said.contains("provider_ready is false"), "{said}");
    let said = refuses_hello("hello of a managing node", |h| h.generation_management = None);
    assert!(said.contains("generation_management"), "{said}");
    let said = refuses_hello("hello of a managing node", |h| {
        let statuses = h.health.generations.as_mut().unwrap();
        let first = statuses[0].clone();
        statuses.resize(9, first);
    });
    assert!(said.contains("health.generations"), "{said}");
    let said = refuses_hello("hello of a managing node", |h| {
        let statuses: &mut Vec<GenerationStatus> = h.health.generations.as_mut().unwrap();
        statuses[0].diagnostic = Some(DiagnosticCode::HostUnsupported.into());
    });
    assert!(said.contains("health.generations[0]"), "{said}");
    let said = refuses_hello("hello", |h| {
        h.health.diagnostic = Some(Token("No such".to_owned()))
    });
    assert!(
        said.contains("health.diagnostic") && !said.contains("No such"),
        "{said}"
    );
}

#[test]
fn core_sends_no_request_that_a_node_would_answer_invalid() {
    let said = refuses_arguments("command", |a| {
        if let Arguments::Command(command) = a {
            command.args.clear();
        }
    });
    assert!(said.contains("command.args"), "{said}");
    let said = refuses_arguments("create", |a| {
        if let Arguments::Create(bootstrap) = a {
            bootstrap.reference.allocation_id = "55555555-5555-4555-8555-555555555555".parse().unwrap();
        }
    });
    assert!(
        said.contains("names the reference") || said.contains("equals reference"),
        "{said}"
    );
    for text in ["[]", r#"{"a":1,"a":2}"#, "1", r#"{"a":"\ud800"}"#] {
        let said = refuses_arguments("delete_retained", |a| {
            if let Arguments::DeleteRetained(retained) = a {
                retained.data = Opaque(RawValue::from_string(text.to_owned()).unwrap());
            }
        });
        assert!(said.contains("retained.data"), "{said}");
    }
    let mut late = request("info");
    late.sequence = 0;
    assert!(CoreFrame::Request(Box::new(late)).encode().is_err());
}

// inv: INV-P27
#[test]
fn a_well_formed_unknown_diagnostic_is_read_as_provider_unavailable_and_a_malformed_one_closes() {
    let of = |text: &str| hello_with_diagnostic(text).map(|h| h.health.diagnostic.and_then(|t| t.code()));
    assert_eq!(
        of("host_unsupported"),
        Some(Some(DiagnosticCode::HostUnsupported))
    );
    for unknown in ["x", "no_such_code", "kvm_missing_7", &"z".repeat(64)] {
        assert_eq!(
            of(unknown),
            Some(Some(DiagnosticCode::ProviderUnavailable)),
            "{unknown}"
        );
    }
    assert_eq!(of(""), Some(None));
    for malformed in ["Host_unsupported", "a-b", "a b", &"z".repeat(65)] {
        assert_eq!(of(malformed), None, "{malformed}");
    }
}

fn hello_with_diagnostic(text: &str) -> Option<Hello> {
    let ready = r#""provider_ready":true"#;
    let frame = frame("hello").replace(ready, &format!(r#""provider_ready":false,"diagnostic":"{text}""#));
    match NodeFrame::decode(frame.as_bytes()) {
        Ok(NodeFrame::Hello(hello)) => Some(*hello),
        _ => None,
    }
}
