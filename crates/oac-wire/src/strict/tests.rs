use std::collections::BTreeMap;

use super::*;
use crate::Nullable;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inner {
    count: i64,
    #[serde(default)]
    note: Option<String>,
    when: Nullable<i64>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    One,
    Two,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outer {
    kind: Kind,
    inner: Inner,
    #[serde(default)]
    list: Vec<Inner>,
    #[serde(default)]
    map: BTreeMap<String, i64>,
}

fn refuse(text: &str) -> (Mistake, String) {
    let error = from_str::<Outer>(text).unwrap_err();
    (error.mistake, error.member)
}

// inv: INV-P1
#[test]
fn every_rule_holds_at_every_depth_and_the_error_names_the_member() {
    use Mistake::*;
    let good = r#" {"kind":"two","inner":{"count":1,"when":null},"list":[{"count":2,"when":3,"note":"n"}],"map":{"a":1}} "#;
    let outer: Outer = from_str(good).unwrap();
    assert_eq!(outer.list[0].note.as_deref(), Some("n"));
    let cases: &[(&str, Mistake, &str)] = &[
        ("", Syntax, ""),
        ("\u{feff}{}", Syntax, ""),
        ("{}", Missing, "kind"),
        ("[]", Type, ""),
        ("null", Null, ""),
        (r#"{"kind":"two","inner":{"count":1,"when":null}} x"#, Syntax, ""),
        (r#"{"kind":"two","inner":{"count":1,"when":null},}"#, Syntax, ""),
        (r#"{"kind":"two","inner":{"count":1}}"#, Missing, "inner.when"),
        (
            r#"{"kind":"two","inner":{"Count":1,"when":null}}"#,
            Unknown,
            "inner.Count",
        ),
        (
            r#"{"kind":"two","inner":{"count":1,"count":1,"when":null}}"#,
            Duplicate,
            "inner.count",
        ),
        (
            r#"{"kind":"two","inner":{"count":1.0,"when":null}}"#,
            Type,
            "inner.count",
        ),
        (
            r#"{"kind":"two","inner":{"count":1e3,"when":null}}"#,
            Type,
            "inner.count",
        ),
        (
            r#"{"kind":"two","inner":{"count":-0,"when":null}}"#,
            Type,
            "inner.count",
        ),
        (
            r#"{"kind":"two","inner":{"count":01,"when":null}}"#,
            Syntax,
            "inner.count",
        ),
        (
            r#"{"kind":"two","inner":{"count":9223372036854775808,"when":null}}"#,
            Value,
            "inner.count",
        ),
        (
            r#"{"kind":"two","inner":{"count":"1","when":null}}"#,
            Type,
            "inner.count",
        ),
        (
            r#"{"kind":"two","inner":{"count":1,"when":null,"note":null}}"#,
            Null,
            "inner.note",
        ),
        (
            r#"{"kind":"two","inner":{"count":null,"when":null}}"#,
            Null,
            "inner.count",
        ),
        (r#"{"kind":"two","inner":[1,"n",null]}"#, Type, "inner"),
        (
            r#"{"kind":{"two":null},"inner":{"count":1,"when":null}}"#,
            Type,
            "kind",
        ),
        (r#"{"kind":"Two","inner":{"count":1,"when":null}}"#, Value, "kind"),
        (r#"{"kind":null,"inner":{"count":1,"when":null}}"#, Null, "kind"),
        (
            r#"{"kind":"two","inner":{"count":1,"when":null},"list":[{"count":1,"when":1},{"count":1,"when":""}]}"#,
            Type,
            "list[1].when",
        ),
        (
            r#"{"kind":"two","inner":{"count":1,"when":null},"map":{"a":1,"a":1}}"#,
            Duplicate,
            "map.a",
        ),
        (
            r#"{"kind":"two","inner":{"count":1,"when":null},"map":{"a":null}}"#,
            Null,
            "map.a",
        ),
        (
            r#"{"kind":"two","inner":{"count":1,"when":null},"list":null}"#,
            Null,
            "list",
        ),
        (
            "{\"kind\":\"t\\ud800\",\"inner\":{\"count\":1,\"when\":null}}",
            Syntax,
            "kind",
        ),
    ];
    for (text, mistake, member) in cases {
        assert_eq!(refuse(text), (*mistake, (*member).to_owned()), "{text}");
    }
}

#[test]
fn a_generic_value_refuses_duplicates_at_every_depth_but_keeps_nulls() {
    assert!(from_str::<serde_json::Value>(r#"{"a":[{"b":null}]}"#).is_ok());
    let error = from_str::<serde_json::Value>(r#"{"a":[{"b":1,"b":2}]}"#).unwrap_err();
    assert_eq!(
        (error.mistake, error.member.as_str()),
        (Mistake::Duplicate, "a[0].b")
    );
}

// inv: INV-P2
#[test]
fn a_frame_holds_version_one_and_its_type_exactly_once_in_any_place() {
    let read =
        |text: &str| frame_from_slice::<Inner>(text.as_bytes(), "inner").map_err(|e| (e.mistake, e.member));
    assert!(read(r#"{"version":1,"type":"inner","count":1,"when":null}"#).is_ok());
    assert!(read(r#"{"count":1,"when":null,"type":"inner","version":1}"#).is_ok());
    for (text, mistake, member) in [
        (
            r#"{"type":"inner","count":1,"when":null}"#,
            Mistake::Missing,
            "version",
        ),
        (r#"{"version":1,"count":1,"when":null}"#, Mistake::Missing, "type"),
        (
            r#"{"version":2,"type":"inner","count":1,"when":null}"#,
            Mistake::Value,
            "version",
        ),
        (
            r#"{"version":1,"version":1,"type":"inner","count":1,"when":null}"#,
            Mistake::Duplicate,
            "version",
        ),
        (
            r#"{"version":1,"type":"inner","type":"inner","count":1,"when":null}"#,
            Mistake::Duplicate,
            "type",
        ),
        (
            r#"{"version":1,"type":"other","count":1,"when":null}"#,
            Mistake::Value,
            "type",
        ),
        (
            r#"{"version":1,"type":"inner","count":1,"when":null,"x":0}"#,
            Mistake::Unknown,
            "x",
        ),
    ] {
        assert_eq!(read(text).unwrap_err(), (mistake, member.to_owned()), "{text}");
    }
}

#[test]
fn an_error_never_holds_a_value() {
    for text in [
        r#"{"kind":"sesame","inner":{"count":1,"when":null}}"#,
        r#"{"kind":"two","inner":{"count":"sesame","when":null}}"#,
        r#"{"kind":"two","inner":{"count":1,"when":"sesame"}}"#,
    ] {
        let error = from_str::<Outer>(text).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("sesame"), "{error}");
    }
}
