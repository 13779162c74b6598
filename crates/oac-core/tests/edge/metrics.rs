//! What Core says of itself to Prometheus.

use std::{collections::BTreeMap, time::Duration};

use oac_core::metrics;
use oac_store::Side;
use oac_testkit::{
    core::{CoreOptions, TestCore},
    scrape::Scrape,
};
use reqwest::Method;
use serde_json::json;

use crate::golden::NOBODY;

/// A scrape that reads the database again.
pub(crate) async fn fresh(core: &TestCore) -> Scrape {
    core.core().hub.clock().skip(Duration::from_secs(5));
    core.scrape().await
}

#[tokio::test]
async fn an_owner_says_so_and_counts_what_it_answers_by_route_and_never_by_what_was_asked_for() {
    let core = TestCore::start().await;
    core.deploy(1, 512).await;
    let node = core.enroll(&json!({ "max_active": 3, "max_retained": 3 })).await;
    let secret = "a_name_that_is_nowhere_told";
    let asked = [
        (Method::GET, format!("/v1/sessions/{NOBODY}"), 404),
        (
            Method::GET,
            format!("/v1/sessions/{NOBODY}/ports/80/{secret}"),
            404,
        ),
        (Method::GET, format!("/{secret}"), 404),
        (Method::PUT, "/healthz".to_owned(), 405),
    ];
    for (method, path, status) in asked {
        let answer = core.application(method, &path, None).await;
        assert_eq!(answer.status.as_u16(), status, "{path}");
    }
    let strange = Method::from_bytes(secret.as_bytes()).unwrap();
    core.application(strange, "/healthz", None).await;

    let scrape = core.scrape().await;
    assert_eq!(scrape.value("oac_core_owner", &[]), Some(1.0));
    assert_eq!(scrape.value("oac_core_owner_epoch", &[]), Some(1.0));
    assert_eq!(scrape.value("oac_core_store_up", &[]), Some(1.0));
    assert_eq!(scrape.value("oac_core_links", &[]), Some(0.0));
    assert_eq!(scrape.value("oac_core_cleanup_oldest_seconds", &[]), Some(0.0));
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    assert_eq!(scrape.value("oac_core_build_info", &version), Some(1.0));
    for (status, count) in [
        ("offline", 1.0),
        ("ready", 0.0),
        ("not_ready", 0.0),
        ("cordoned", 0.0),
    ] {
        assert_eq!(scrape.value("oac_core_nodes", &[("status", status)]), Some(count));
    }
    let id = node.node_id.to_string();
    for (kind, slots) in [
        ("active", 0.0),
        ("retained", 0.0),
        ("max_active", 3.0),
        ("max_retained", 3.0),
    ] {
        let labels = [("node", id.as_str()), ("kind", kind)];
        assert_eq!(scrape.value("oac_core_node_slots", &labels), Some(slots));
    }
    let requests = |route: &str, method: &str, status: &str| {
        let labels = [("route", route), ("method", method), ("status", status)];
        scrape.value("oac_core_http_requests_total", &labels)
    };
    assert_eq!(requests("/v1/sessions/{session_id}", "GET", "404"), Some(1.0));
    assert_eq!(
        requests("/v1/sessions/{session_id}/ports/{port}/{path}", "GET", "404"),
        Some(1.0)
    );
    assert_eq!(requests("none", "GET", "404"), Some(1.0));
    assert_eq!(requests("/healthz", "PUT", "405"), Some(1.0));
    assert_eq!(requests("/healthz", "other", "405"), Some(1.0));
    assert_eq!(
        scrape.value("oac_core_http_seconds_count", &[("route", "/healthz")]),
        Some(2.0)
    );
    assert!(!scrape.0.contains(secret) && !scrape.0.contains(NOBODY));
}

// inv: INV-C14
#[tokio::test]
async fn a_scrape_has_only_what_the_table_lists_and_no_credential_and_no_session() {
    let core = TestCore::start().await;
    core.deploy(1, 512).await;
    let node = core.enroll(&json!({})).await;
    let token = core.enrollment_token(&json!({})).await;
    let body = json!({ "name": "nightly" });
    core.application(Method::POST, "/v1/sessions", Some(&body)).await;
    let secrets = [&core.core_key, &core.project_key, &node.credential, &token];
    let paths = [
        "/core/v1/projects",
        "/v1/sessions",
        "/api/v1/sandbox-node/configuration",
    ];
    for path in paths {
        for credential in secrets {
            core.call(Method::GET, path, Some(credential), None).await;
        }
    }
    let scrape = fresh(&core).await;
    let mut known = BTreeMap::new();
    for row in metrics::table() {
        for (name, labels) in row.series() {
            let labels: Vec<String> = labels.into_iter().map(str::to_owned).collect();
            assert!(known.insert(name, labels).is_none(), "{} twice", row.name);
        }
        assert!(row.name.starts_with("oac_core_"), "{}", row.name);
        assert_eq!(
            row.name.ends_with("_total"),
            row.kind_text() == "counter",
            "{}",
            row.name
        );
    }
    for sample in scrape.samples() {
        let labels = known.get(&sample.name).unwrap_or_else(|| panic!("{sample:?}"));
        let mut listed = labels.clone();
        listed.sort();
        assert_eq!(
            sample.labels.keys().cloned().collect::<Vec<_>>(),
            listed,
            "{sample:?}"
        );
    }
    for secret in secrets {
        let text = secret.expose().rsplit('_').next().unwrap();
        assert!(text.len() == 64 && !scrape.0.contains(text));
    }
    assert!(!scrape.0.contains("nightly") && !scrape.0.contains(&core.project_id.to_string()));
}

#[tokio::test]
async fn what_a_silent_database_would_have_said_is_left_out_and_the_scrape_says_so() {
    let core = TestCore::start().await;
    core.deploy(1, 512).await;
    assert_eq!(core.scrape().await.value("oac_core_store_up", &[]), Some(1.0));
    core.core().store.faults().die_at(1, Side::Before);
    let body = json!({ "name": "another" });
    core.operator(Method::POST, "/core/v1/projects", Some(&body))
        .await;
    assert!(core.core().store.faults().is_dead());
    // For a moment the last answer counts, so that two scrapers cost as much as one.
    assert!(core.scrape().await.has("oac_core_nodes"));
    let scrape = fresh(&core).await;
    assert_eq!(scrape.value("oac_core_store_up", &[]), Some(0.0));
    assert_eq!(scrape.value("oac_core_owner", &[]), Some(1.0));
    for stored in [
        "oac_core_nodes",
        "oac_core_allocations",
        "oac_core_turns",
        "oac_core_cleanup_oldest_seconds",
    ] {
        assert!(!scrape.has(stored), "{stored}");
    }
    assert!(scrape.has("oac_core_http_requests_total"));
}

#[tokio::test]
async fn pg_a_standby_says_that_it_is_one_and_shows_nothing_that_the_owner_shows() {
    let owner = TestCore::start_postgres().await;
    let options = CoreOptions {
        postgres: true,
        standby: true,
        ..CoreOptions::default()
    };
    let standby = owner.beside(options).await;
    let refused = standby.operator(Method::GET, "/core/v1/projects", None).await;
    assert_eq!(refused.status.as_u16(), 503);
    let scrape = standby.scrape().await;
    assert_eq!(scrape.value("oac_core_owner", &[]), Some(0.0));
    assert_eq!(scrape.value("oac_core_owner_epoch", &[]), Some(0.0));
    let labels = [
        ("route", "/core/v1/projects"),
        ("method", "GET"),
        ("status", "503"),
    ];
    assert_eq!(scrape.value("oac_core_http_requests_total", &labels), Some(1.0));
    assert!(!scrape.has("oac_core_nodes") && !scrape.has("oac_core_store_up"));
    let scrape = owner.scrape().await;
    assert_eq!(scrape.value("oac_core_owner", &[]), Some(1.0));
    assert!(scrape.has("oac_core_nodes"));
}

#[tokio::test]
async fn scrapes_are_answered_only_where_and_for_as_long_as_the_configuration_says() {
    let mut core = TestCore::start().await;
    let address = core.metrics_address().unwrap();
    let answer = core.call(Method::GET, "/metrics", None, None).await;
    assert_eq!(answer.status.as_u16(), 404, "the service itself shows none");
    let config = oac_core::config::Config {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        metrics_listen: Some(address),
        ..core.core().config.clone()
    };
    let taken = oac_core::run::start(config.clone()).await.err().unwrap();
    assert!(taken.to_string().contains("`metrics_listen`"), "{taken}");
    core.stop().await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    let config = oac_core::config::Config {
        metrics_listen: None,
        ..config
    };
    let running = oac_core::run::start(config).await.unwrap();
    assert_eq!(running.metrics_address, None);
    running.stop().await;
}

/// The guide's table of metrics, which is this program's.
#[test]
fn the_guide_lists_every_metric_with_its_kind_labels_and_meaning() {
    let guide = include_str!("../../../../docs/observe.md");
    let listed: Vec<&str> = guide
        .lines()
        .filter(|line| line.starts_with("| `oac_core_"))
        .collect();
    let expected: Vec<String> = metrics::table()
        .iter()
        .map(oac_testkit::scrape::guide_row)
        .collect();
    assert_eq!(listed, expected, "the guide's table is:\n{}", expected.join("\n"));
}
