//! The conformance suite on the scripted engine and on the real one, and the report with which Docker is registered.

use oac_provider::{conformance, conformance::report};

use crate::world::DockerWorld;

conformance! { mod scripted_engine: [every, host, engine], DockerWorld::scripted().await }
conformance! { mod docker_engine: [every, host, engine], DockerWorld::real().await }

/// Where the tests above run.
const RUNS: [&str; 2] = ["scripted engine", "Docker Engine"];

#[test]
fn the_report_that_docker_is_registered_with_is_that_of_the_suite_run_here() {
    let kind = oac_model::ProviderKind::Docker;
    let declared = oac_provider::declarations_of(kind).unwrap();
    let report = report(declared, &RUNS);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/conformance.txt");
    if std::env::var_os("OAC_WRITE_CONFORMANCE").is_some() {
        std::fs::write(file, &report).unwrap();
    }
    let registered = std::fs::read_to_string(file).unwrap();
    assert_eq!(
        registered, report,
        "run this test with OAC_WRITE_CONFORMANCE=1 and review the difference"
    );
}
