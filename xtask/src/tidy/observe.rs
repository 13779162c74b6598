//! The dashboard and the alert rules ask only for what Core and nodes say of themselves, and the guide explains each
//! alert and each event of the log.
//!
//! The guide's tables of metrics are held equal to the programs' by the programs' own tests, so they are read here, and
//! xtask stays apart from the product.

mod events;
mod promql;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::workspace::read;
use promql::{Metrics, Said};

const GUIDE: &str = "docs/observe.md";
const ALERTS: &str = "docs/observe/alerts.yml";
const DASHBOARD: &str = "docs/observe/dashboard.json";

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let guide = read(&root.join(GUIDE))?;
    let metrics = metrics(&guide);
    let mut problems = alerts(&metrics, &guide, &read(&root.join(ALERTS))?);
    problems.extend(dashboard(&metrics, &read(&root.join(DASHBOARD))?)?);
    problems.extend(events::check(root, files, &guide)?);
    Ok(problems)
}

/// The metrics of the guide's tables, by name.
fn metrics(guide: &str) -> Metrics {
    let mut metrics = Metrics::new();
    for line in guide.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", name, kind, labels, meaning, ""] = cells[..] else {
            continue;
        };
        let Some(name) = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')) else {
            continue;
        };
        if !matches!(kind, "counter" | "gauge" | "histogram") {
            continue;
        }
        let labels = labels.split(',').map(|label| label.trim().trim_matches('`'));
        let said = Said {
            labels: labels
                .filter(|label| !label.is_empty())
                .map(str::to_owned)
                .collect(),
            grows: kind != "gauge",
            meaning: meaning.to_owned(),
        };
        if kind == "histogram" {
            let mut bucket = said.clone();
            bucket.labels.insert("le".to_owned());
            metrics.insert(format!("{name}_bucket"), bucket);
            metrics.insert(format!("{name}_sum"), said.clone());
            metrics.insert(format!("{name}_count"), said);
        } else {
            metrics.insert(name.to_owned(), said);
        }
    }
    metrics
}

/// Each rule asks for what there is, and the guide has a row for it.
fn alerts(metrics: &Metrics, guide: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut alert = "";
    let mut rules = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("- alert: ") {
            alert = name;
            rules.insert(name, false);
        } else if let Some(expression) = line.strip_prefix("expr: ") {
            rules.insert(alert, true);
            if let Err(error) = promql::check(metrics, expression) {
                problems.push(format!("{ALERTS}: {alert}: {error}: `{expression}`"));
            }
        }
    }
    for (alert, has_expression) in &rules {
        if !has_expression {
            problems.push(format!("{ALERTS}: {alert} has no `expr` on one line"));
        }
    }
    let explained: BTreeSet<&str> = guide
        .lines()
        .filter_map(|line| {
            line.strip_prefix("| `Oac")
                .and_then(|_| line[3..].split('`').next())
        })
        .collect();
    let named: BTreeSet<&str> = rules.into_keys().collect();
    problems.extend(differing(GUIDE, "the alert", &explained, ALERTS, &named));
    if named.is_empty() {
        problems.push(format!("{ALERTS} has no rule that can be read"));
    }
    problems
}

/// What is in one of two places only.
fn differing(
    here: &str,
    what: &str,
    one: &BTreeSet<&str>,
    there: &str,
    other: &BTreeSet<&str>,
) -> Vec<String> {
    let only = |from: &BTreeSet<&str>, to: &BTreeSet<&str>, lacks: &str| -> Vec<String> {
        let missing = from.difference(to);
        missing
            .map(|name| format!("{lacks} lacks {what} `{name}`"))
            .collect()
    };
    [only(one, other, there), only(other, one, here)].concat()
}

/// Each panel's expressions ask for what there is, and its legend names labels that they leave.
fn dashboard(metrics: &Metrics, text: &str) -> Result<Vec<String>> {
    let document: Value = serde_json::from_str(text).with_context(|| format!("{DASHBOARD} is no JSON"))?;
    let mut problems = Vec::new();
    let mut checked = 0;
    for panel in document["panels"].as_array().into_iter().flatten() {
        let title = panel["title"].as_str().unwrap_or("a panel without a title");
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap_or("");
            checked += 1;
            match promql::check(metrics, expression) {
                Err(error) => problems.push(format!("{DASHBOARD}: {title}: {error}: `{expression}`")),
                Ok(left) => {
                    for label in shown(target["legendFormat"].as_str().unwrap_or("")) {
                        if !left.contains(label) {
                            problems.push(format!(
                                "{DASHBOARD}: {title}: the legend names `{label}`, which the expression does not leave"
                            ));
                        }
                    }
                }
            }
        }
    }
    if checked == 0 {
        problems.push(format!("{DASHBOARD} has no panel that asks for anything"));
    }
    Ok(problems)
}

/// The labels of a legend, each in double braces.
fn shown(legend: &str) -> impl Iterator<Item = &str> {
    legend
        .split("{{")
        .skip(1)
        .filter_map(|rest| rest.split_once("}}").map(|(label, _)| label.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUIDE: &str = "\
| metric | kind | labels | meaning |
| --- | --- | --- | --- |
| `x_nodes` | gauge | `status` | Nodes: offline, ready. |
| `x_seconds` | histogram | `route` | Time. |

| `OacGone` | look |
";

    #[test]
    fn a_rule_or_panel_that_asks_for_what_there_is_not_is_a_problem() {
        let known = metrics(GUIDE);
        assert_eq!(known.len(), 4);
        let rule = |name: &str, expression: &str| format!("  - alert: {name}\n    expr: {expression}\n");
        let good = rule("OacGone", "x_nodes{status=\"offline\"} > 0");
        assert_eq!(alerts(&known, GUIDE, &good), Vec::<String>::new());
        for bad in [
            rule("OacGone", "x_node > 0"),
            rule("OacOther", "x_nodes > 0"),
            "  - alert: OacGone\n".to_owned(),
            String::new(),
        ] {
            assert!(!alerts(&known, GUIDE, &bad).is_empty(), "{bad}");
        }
        let panel = |expression: &str, legend: &str| {
            let target = serde_json::json!({ "expr": expression, "legendFormat": legend });
            serde_json::json!({ "panels": [{ "title": "t", "targets": [target] }] }).to_string()
        };
        assert!(
            dashboard(&known, &panel("sum by (status) (x_nodes)", "{{status}}"))
                .unwrap()
                .is_empty()
        );
        for bad in [
            panel("sum(x_nodes)", "{{status}}"),
            panel("sum(x_nodes", ""),
            "{}".to_owned(),
        ] {
            assert!(!dashboard(&known, &bad).unwrap().is_empty(), "{bad}");
        }
    }
}
