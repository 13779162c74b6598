//! The two texts that setup writes. Pure.

use std::path::Path;

use oac_model::account::NAME as ACCOUNT;

use super::{First, STATE};

/// The service that runs `program`. It may listen on ports below 1024, and has no other power over the host.
pub(super) fn service(program: &Path) -> String {
    let program = escaped(&program.to_string_lossy());
    format!(
        "\
[Unit]
Description=oac Core
Wants=network-online.target
After=network-online.target postgresql.service
StartLimitIntervalSec=0

[Service]
Type=exec
User={ACCOUNT}
WorkingDirectory={STATE}
ExecStart=:\"{program}\" run
Restart=always
RestartSec=2s
AmbientCapabilities=CAP_NET_BIND_SERVICE
CapabilityBoundingSet=CAP_NET_BIND_SERVICE
NoNewPrivileges=yes
ProtectSystem=full
PrivateTmp=yes
LimitNOFILE=1048576
UMask=0077

[Install]
WantedBy=multi-user.target
"
    )
}

/// As a word in double quotes of a unit: what systemd would read as more than itself is escaped.
fn escaped(text: &str) -> String {
    let mut word = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '%' => word.push_str("%%"),
            '"' | '\\' => word.extend(['\\', c]),
            c => word.push(c),
        }
    }
    word
}

/// The first configuration.
pub(super) fn configuration(first: &First) -> String {
    let mut text = String::from("# What may stand here: the guide's page on setting up Core.\n");
    if !first.listen.is_empty() {
        let all: Vec<String> = first
            .listen
            .iter()
            .map(|address| format!("\"{address}\""))
            .collect();
        text.push_str(&format!("listen = [{}]\n", all.join(", ")));
    }
    match &first.public_url {
        Some(url) => text.push_str(&format!("public_url = \"{url}\"\n")),
        None => text.push_str("# Nodes need it: public_url = \"http://192.0.2.10:8080\"\n"),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, DEFAULT_PATH};

    #[test]
    fn the_first_configuration_is_one_that_core_takes() {
        let parse = |first: &First| Config::parse(&configuration(first), Path::new(DEFAULT_PATH)).unwrap();
        let plain = parse(&First::default());
        assert!(plain.public_url.is_none());
        let first = First {
            public_url: Some("http://192.0.2.10:8080".parse().unwrap()),
            listen: vec!["192.0.2.10:8080".parse().unwrap(), "[::1]:8080".parse().unwrap()],
        };
        let told = parse(&first);
        assert_eq!(told.listen, first.listen);
        assert_eq!(told.public_url, first.public_url);
    }

    #[test]
    fn a_path_stands_in_the_unit_as_one_word_that_is_only_itself() {
        let text = service(Path::new("/opt/a b/100%/\"x\\y/oac-core"));
        assert!(
            text.contains("ExecStart=:\"/opt/a b/100%%/\\\"x\\\\y/oac-core\" run\n"),
            "{text}"
        );
    }
}
