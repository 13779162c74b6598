//! A scrape of a program's metrics, taken apart.

use std::{collections::BTreeMap, net::SocketAddr};

use reqwest::StatusCode;

/// The text of one scrape.
#[derive(Debug, Clone)]
pub struct Scrape(pub String);

/// One line with a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

impl Scrape {
    /// Asks the program that answers scrapes at `address`.
    ///
    /// # Panics
    /// When it does not answer as Prometheus expects.
    pub async fn of(address: SocketAddr) -> Self {
        let url = format!("http://{address}/metrics");
        let answer = crate::core::client()
            .get(&url)
            .send()
            .await
            .unwrap_or_else(|e| panic!("{url}: {e}"));
        assert_eq!(answer.status(), StatusCode::OK);
        let media = answer.headers().get("content-type").and_then(|v| v.to_str().ok());
        assert_eq!(media, Some("text/plain; version=0.0.4; charset=utf-8"));
        Self(answer.text().await.unwrap_or_else(|e| panic!("{url}: {e}")))
    }

    /// Every sample, in order.
    ///
    /// # Panics
    /// When a line is none of the format.
    pub fn samples(&self) -> Vec<Sample> {
        let lines = self.0.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| sample(line).unwrap_or_else(|| panic!("no sample: {line}")))
            .collect()
    }

    /// The value of the one series of `name` with exactly `labels`.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels: BTreeMap<String, String> = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        let mut found = self
            .samples()
            .into_iter()
            .filter(|s| s.name == name && s.labels == labels);
        let value = found.next().map(|sample| sample.value);
        assert!(found.next().is_none(), "{name} {labels:?} twice");
        value
    }

    /// Whether anything is said of `name`.
    pub fn has(&self, name: &str) -> bool {
        self.samples().iter().any(|sample| sample.name == name)
    }
}

fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, text) = match series.split_once('{') {
        Some((name, rest)) => (name, rest.strip_suffix('}')?),
        None => (series, ""),
    };
    let mut labels = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = after.char_indices();
        let end = loop {
            match characters.next()? {
                (end, '"') => break end,
                (_, '\\') => value.push(match characters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.insert(label.to_owned(), value);
        rest = &after[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    Some(Sample {
        name: name.to_owned(),
        labels,
        value: value.parse().ok()?,
    })
}

/// A metric as the guide's table lists it.
pub fn guide_row(row: &oac_telemetry::Row) -> String {
    let labels: Vec<String> = row.labels.iter().map(|label| format!("`{label}`")).collect();
    format!(
        "| `{}` | {} | {} | {} |",
        row.name,
        row.kind_text(),
        labels.join(", "),
        row.help
    )
}
