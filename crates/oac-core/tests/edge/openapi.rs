//! The API's description. The first test is also the generator of `docs/openapi.json`: `cargo xtask tidy` runs it.

use std::path::Path;

use oac_core::http::router;
use oac_testkit::core::TestCore;
use reqwest::Method;
use serde_json::Value;

/// Set to write the file instead of comparing it.
const WRITE: &str = "OAC_WRITE_GENERATED";

#[test]
fn the_checked_in_openapi_document_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let current = oac_core::openapi_document().to_pretty_json().unwrap() + "\n";
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &current).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == current,
        "docs/openapi.json is out of date: run cargo xtask tidy --write"
    );
}

#[tokio::test]
async fn the_served_document_is_3_1_names_every_route_and_needs_no_credential() {
    let core = TestCore::start().await;
    let document = core
        .call(Method::GET, "/openapi.json", None, None)
        .await
        .expect(200);
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1."));
    let mut names = Vec::new();
    for route in router::table() {
        let (method, path) = route.name();
        let methods = match method {
            router::ANY => vec!["get", "post", "put", "patch", "delete", "head", "options"],
            method => vec![method],
        };
        for method in methods {
            let operation = &document["paths"][path][method.to_lowercase()];
            assert!(operation.is_object(), "{method} {path}");
            let mut refusals: Vec<String> = route.refusals().iter().map(u16::to_string).collect();
            if refusals.is_empty() {
                refusals.push("default".to_owned());
            }
            for status in refusals {
                let refusal = &operation["responses"][&status];
                assert_eq!(
                    refusal["$ref"], "#/components/responses/Refusal",
                    "{method} {path} {status}"
                );
            }
            let open = operation.get("security").is_none();
            assert_eq!(open, route.credential.as_str() == "open", "{method} {path}");
            names.push(operation["operationId"].as_str().unwrap().to_owned());
        }
    }
    let refusal = &document["components"]["responses"]["Refusal"]["content"]["application/json"]["schema"];
    assert_eq!(refusal["$ref"], "#/components/schemas/ErrorEnvelope");
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "operation ids are distinct");
    assert_references(&document, &document);
}

// req: P-176
#[test]
fn the_readiness_codes_of_the_document_are_those_of_the_one_list() {
    let document: Value =
        serde_json::from_str(&oac_core::openapi_document().to_pretty_json().unwrap()).unwrap();
    let schemas = &document["components"]["schemas"];
    let codes: Vec<&str> = oac_model::DiagnosticCode::ALL
        .iter()
        .map(|code| code.as_str())
        .collect();
    assert_eq!(schemas["ReadinessCode"]["enum"], serde_json::json!(codes));
    for shape in ["Node", "NodeRollout"] {
        let member = &schemas[shape]["properties"]["diagnostic"];
        assert_eq!(member["$ref"], "#/components/schemas/ReadinessCode", "{shape}");
    }
}

/// Every `$ref` names something.
fn assert_references(value: &Value, document: &Value) {
    match value {
        Value::Object(object) => {
            if let Some(Value::String(reference)) = object.get("$ref") {
                let pointer = reference.trim_start_matches('#');
                assert!(document.pointer(pointer).is_some(), "{reference} names nothing");
            }
            object.values().for_each(|v| assert_references(v, document));
        }
        Value::Array(items) => items.iter().for_each(|v| assert_references(v, document)),
        _ => {}
    }
}
