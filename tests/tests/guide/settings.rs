//! Every key of Core's configuration is explained, and no other.

use std::{collections::BTreeSet, path::Path};

use oac_core::config::{Config, ConfigError};

use super::section;

/// A key that no configuration has.
const STRANGE: &str = "strange";

/// What is wrong with `text` as a configuration.
fn refusal(text: &str) -> ConfigError {
    Config::parse(text, Path::new("config.toml")).expect_err(text)
}

/// The keys that are known where the first line of `place` is, as the refusal of a strange one names them. `None` if no
/// keys belong there.
fn known(place: &str) -> Option<Vec<String>> {
    let ConfigError::Syntax { source, .. } = refusal(&format!("{place}{STRANGE} = 1")) else {
        panic!("{place}: a strange key is taken");
    };
    let (_, expected) = source
        .message()
        .strip_prefix(&format!("unknown field `{STRANGE}`"))?
        .split_once("expected ")?;
    Some(
        expected
            .split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect(),
    )
}

fn is_built(key: &str, is_table: bool) -> bool {
    let text = if is_table {
        format!("[{key}]")
    } else {
        format!("{key} = \"/x\"")
    };
    let parsed = Config::parse(&text, Path::new("config.toml"));
    !matches!(parsed, Err(ConfigError::NotBuilt { .. }))
}

#[test]
fn the_table_of_settings_has_every_key_that_core_reads_and_none_that_it_refuses() {
    let mut keys = BTreeSet::new();
    for key in known("").unwrap() {
        let inner = known(&format!("[{key}]\n"));
        if !is_built(&key, inner.is_some()) {
            continue;
        }
        match inner {
            Some(inner) => keys.extend(inner.iter().map(|inner| format!("{key}.{inner}"))),
            None => _ = keys.insert(key),
        }
    }
    assert!(
        keys.contains("listen") && keys.contains("tls.key_file"),
        "{keys:?}"
    );
    let text = section("set-up-core.md", "## Configuration");
    let rows = text.split("| |").skip(1).filter_map(|row| row.split('|').next());
    let told: BTreeSet<String> = rows
        .filter(|names| names.trim_start().starts_with('`'))
        .flat_map(|names| names.split(','))
        .map(|name| name.trim().trim_matches('`').to_owned())
        .collect();
    assert_eq!(told, keys);
}
