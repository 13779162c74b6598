//! A crate depends only on crates above it in the list of the workspace's architecture; backends not on each other.

use crate::workspace::Metadata;

/// Top to bottom. A crate that is not listed here is a problem: its place has to be decided.
const ORDER: &[&str] = &[
    "oac-model",
    "oac-proxy",
    "oac-dial",
    "oac-telemetry",
    "oac-wire",
    "oac-peer",
    "oac-lifecycle",
    "oac-records",
    "oac-release",
    "oac-provider",
    "oac-generations",
    "oac-provider-docker",
    "oac-provider-microsandbox",
    "oac-provider-e2b",
    "oac-link",
    "oac-store",
    "oac-core",
    "oac-node",
    "oac-install",
    "oac-runtime",
    "oac-cli",
    "oac-testkit",
    "oac-world",
    "oac-tests",
];

/// Groups whose members never depend on each other, whatever the order says.
const APART: &[&[&str]] = &[
    &[
        "oac-provider-docker",
        "oac-provider-microsandbox",
        "oac-provider-e2b",
    ],
    &["oac-core", "oac-node", "oac-install", "oac-runtime"],
];

pub(super) fn check(metadata: &Metadata) -> Vec<String> {
    let mut problems = Vec::new();
    for package in &metadata.packages {
        let own: Vec<&str> = package
            .dependencies
            .iter()
            // A test may use a program or the test kit that stands below.
            .filter(|dependency| dependency.kind.as_deref() != Some("dev"))
            .map(|dependency| dependency.name.as_str())
            .filter(|name| *name == "xtask" || name.starts_with("oac-"))
            .collect();
        problems.extend(
            own.iter()
                .filter_map(|dependency| problem(&package.name, dependency)),
        );
        if package.name != "xtask" && !ORDER.contains(&package.name.as_str()) {
            problems.push(format!(
                "{} has no place in the order of crates: give it one in xtask/src/tidy/direction.rs",
                package.name
            ));
        }
    }
    problems
}

fn problem(package: &str, dependency: &str) -> Option<String> {
    if package == "xtask" || dependency == "xtask" {
        return Some(format!(
            "{package} depends on {dependency}: xtask stands apart, so that it builds in seconds"
        ));
    }
    let place = |name: &str| ORDER.iter().position(|listed| *listed == name);
    if let (Some(own), Some(other)) = (place(package), place(dependency))
        && other >= own
    {
        return Some(format!(
            "{package} depends on {dependency}, which stands below it: turn the dependency round"
        ));
    }
    let apart = APART
        .iter()
        .any(|group| group.contains(&package) && group.contains(&dependency));
    apart.then(|| format!("{package} depends on {dependency}: these two are kept apart"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: P-001
    #[test]
    fn the_frames_of_the_node_protocol_are_written_in_one_crate_that_both_ends_depend_on() {
        let metadata = crate::workspace::metadata().expect("metadata");
        for end in ["oac-peer", "oac-core", "oac-node"] {
            let package = metadata.packages.iter().find(|package| package.name == end);
            let depends = package.expect(end).dependencies.iter();
            assert!(
                depends
                    .filter(|dependency| dependency.kind.is_none())
                    .any(|dependency| dependency.name == "oac-wire"),
                "{end}"
            );
        }
        let root = crate::workspace::root();
        let files = crate::workspace::files(root).expect("files");
        let names = |file: &std::path::PathBuf| {
            let text = crate::workspace::read(&root.join(file)).expect("readable");
            ["\"heartbeat_ack\"", "\"retention\"", "\"retention_ack\""]
                .iter()
                .any(|name| text.contains(name))
        };
        let sources = files
            .iter()
            .filter(|file| {
                let has = |name: &str| file.components().any(|part| part.as_os_str() == name);
                file.starts_with("crates") && has("src") && !has("tests") && !file.ends_with("tests.rs")
            })
            .filter(|file| file.extension().is_some_and(|extension| extension == "rs"));
        let (shared, elsewhere): (Vec<_>, Vec<_>) = sources
            .filter(|file| names(file))
            .partition(|file| file.starts_with("crates/oac-wire"));
        assert!(!shared.is_empty());
        assert_eq!(elsewhere, Vec::<&std::path::PathBuf>::new());
    }

    #[test]
    fn dependencies_point_upwards_and_backends_stand_apart() {
        assert_eq!(problem("oac-core", "oac-store"), None);
        assert_eq!(problem("oac-wire", "oac-model"), None);
        assert!(problem("oac-model", "oac-wire").is_some());
        assert!(problem("oac-store", "oac-core").is_some());
        assert!(problem("oac-provider-microsandbox", "oac-provider-docker").is_some());
        assert!(problem("oac-node", "oac-core").is_some());
        assert!(problem("xtask", "oac-testkit").is_some());
    }
}
