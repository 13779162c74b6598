//! Enough of Prometheus' query language to read every expression of the dashboard and the alert rules, and to say which
//! labels each leaves. What is beyond it is refused, so that nothing goes unchecked.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter::Peekable,
};

/// What the guide says of one series.
#[derive(Debug, Clone)]
pub(super) struct Said {
    pub(super) labels: BTreeSet<String>,
    /// A counter or part of a histogram, of which a rate may be taken.
    pub(super) grows: bool,
    pub(super) meaning: String,
}

pub(super) type Metrics = BTreeMap<String, Said>;

/// Labels that Prometheus adds to everything it scrapes.
const TARGET: [&str; 2] = ["instance", "job"];
const AGGREGATIONS: [&str; 6] = ["avg", "count", "max", "min", "sum", "topk"];
/// Labels whose values are words of the metric's meaning.
const WORDED: [&str; 6] = ["answer", "diagnostic", "kind", "outcome", "state", "status"];

#[derive(Debug, Clone, PartialEq)]
enum Token {
    /// A name, a number or a duration.
    Word(String),
    Text(String),
    Sign(&'static str),
}

const SIGNS: [&str; 19] = [
    "==", "!=", "<=", ">=", "=~", "!~", "<", ">", "=", "+", "-", "*", "/", "(", ")", "{", "}", "[", "]",
];

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.' | '$');
        if word(first) {
            let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        } else if let Some(after) = rest.strip_prefix('"') {
            let (inside, after) = after.split_once('"').ok_or("a text does not end")?;
            tokens.push(Token::Text(inside.to_owned()));
            rest = after;
        } else if let Some(after) = rest.strip_prefix(',') {
            tokens.push(Token::Sign(","));
            rest = after;
        } else if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            tokens.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        } else {
            return Err(format!("`{first}` is not understood"));
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

/// The labels that `expression` leaves, or what is wrong with it.
pub(super) fn check(metrics: &Metrics, expression: &str) -> Result<BTreeSet<String>, String> {
    let mut reader = Reader {
        metrics,
        tokens: tokens(expression)?.into_iter().peekable(),
    };
    let left = reader.expression()?;
    match reader.tokens.next() {
        None if left.range => Err("a range of time is no value".to_owned()),
        None => Ok(left.labels),
        Some(token) => Err(format!("{token:?} stands where the expression should end")),
    }
}

/// What a part of an expression gives.
struct Given {
    labels: BTreeSet<String>,
    /// Of a plain selector: over a range of time, and whether it only grows.
    range: bool,
    grows: bool,
}

impl Given {
    fn plain(labels: BTreeSet<String>) -> Self {
        Self {
            labels,
            range: false,
            grows: false,
        }
    }
}

struct Reader<'a> {
    metrics: &'a Metrics,
    tokens: Peekable<std::vec::IntoIter<Token>>,
}

impl Reader<'_> {
    fn expression(&mut self) -> Result<Given, String> {
        let mut left = self.operand()?;
        loop {
            let joins = match self.tokens.peek() {
                Some(Token::Sign(sign)) => {
                    ["==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/"].contains(sign)
                }
                Some(Token::Word(word)) => ["and", "or", "unless"].contains(&word.as_str()),
                _ => false,
            };
            if !joins {
                return Ok(left);
            }
            self.tokens.next();
            let right = self.operand()?;
            if left.range || right.range {
                return Err("a range of time is compared".to_owned());
            }
            // A number has no labels; of two series the left one's stay.
            left = if left.labels.is_empty() { right } else { left };
        }
    }

    fn operand(&mut self) -> Result<Given, String> {
        match self.tokens.next() {
            Some(Token::Sign("(")) => {
                let inside = self.expression()?;
                self.sign(")")?;
                Ok(inside)
            }
            Some(Token::Word(word)) if word.starts_with(|c: char| c.is_ascii_digit()) => {
                word.parse::<f64>()
                    .map_err(|_| format!("`{word}` is no number"))?;
                Ok(Given::plain(BTreeSet::new()))
            }
            Some(Token::Word(word)) => match self.tokens.peek() {
                _ if AGGREGATIONS.contains(&word.as_str()) => self.aggregation(&word),
                Some(Token::Sign("(")) => self.function(&word),
                _ => self.selector(&word),
            },
            other => Err(format!("{other:?} stands where a value should")),
        }
    }

    fn aggregation(&mut self, name: &str) -> Result<Given, String> {
        let mut by = None;
        if self.tokens.peek() == Some(&Token::Word("by".to_owned())) {
            self.tokens.next();
            by = Some(self.names()?);
        }
        self.sign("(")?;
        if name == "topk" {
            self.operand()?;
            self.sign(",")?;
        }
        let inside = self.expression()?;
        self.sign(")")?;
        if inside.range {
            return Err(format!("{name} of a range of time"));
        }
        let by = match by {
            // The series stay as they are.
            None if name == "topk" => inside.labels.clone(),
            by => by.unwrap_or_default(),
        };
        match by.difference(&inside.labels).next() {
            Some(label) => Err(format!("nothing there has the label `{label}`")),
            None => Ok(Given::plain(by)),
        }
    }

    fn function(&mut self, name: &str) -> Result<Given, String> {
        self.sign("(")?;
        if name == "histogram_quantile" {
            self.operand()?;
            self.sign(",")?;
        }
        let mut inside = self.expression()?;
        self.sign(")")?;
        match name {
            "rate" | "increase" if !inside.range => Err(format!("{name} needs a range of time")),
            "rate" | "increase" if !inside.grows => Err(format!("{name} of what may shrink")),
            "rate" | "increase" => Ok(Given::plain(inside.labels)),
            "absent" => Ok(Given::plain(BTreeSet::new())),
            "histogram_quantile" if !inside.labels.remove("le") => Err("a quantile without `le`".to_owned()),
            "histogram_quantile" => Ok(Given::plain(inside.labels)),
            _ => Err(format!("the function `{name}` is not known here")),
        }
    }

    fn selector(&mut self, name: &str) -> Result<Given, String> {
        let said = self
            .metrics
            .get(name)
            .ok_or_else(|| format!("there is no metric `{name}`"))?;
        let mut labels = said.labels.clone();
        labels.extend(TARGET.map(str::to_owned));
        if self.tokens.next_if_eq(&Token::Sign("{")).is_some() {
            loop {
                self.matcher(name, &labels, &said.meaning)?;
                if self.tokens.next_if_eq(&Token::Sign(",")).is_none() {
                    break;
                }
            }
            self.sign("}")?;
        }
        let range = self.tokens.next_if_eq(&Token::Sign("[")).is_some();
        if range {
            match self.tokens.next() {
                Some(Token::Word(time)) if time == "$__rate_interval" || is_duration(&time) => {
                    self.sign("]")?
                }
                other => return Err(format!("{other:?} is no duration")),
            }
        }
        Ok(Given {
            labels,
            range,
            grows: said.grows,
        })
    }

    fn matcher(&mut self, metric: &str, labels: &BTreeSet<String>, meaning: &str) -> Result<(), String> {
        let label = self.word()?;
        if !labels.contains(&label) {
            return Err(format!("`{metric}` has no label `{label}`"));
        }
        let sign = self.tokens.next();
        if !matches!(sign, Some(Token::Sign("=" | "!=" | "=~" | "!~"))) {
            return Err(format!("{sign:?} compares no label"));
        }
        let Some(Token::Text(text)) = self.tokens.next() else {
            return Err(format!("`{label}` is compared with no text"));
        };
        let words: BTreeSet<&str> = meaning
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .collect();
        let number = text.bytes().all(|b| b.is_ascii_digit());
        for value in text
            .split('|')
            .filter(|_| WORDED.contains(&label.as_str()) && !number)
        {
            if !words.contains(value) {
                return Err(format!("the meaning of `{metric}` does not name `{value}`"));
            }
        }
        Ok(())
    }

    fn names(&mut self) -> Result<BTreeSet<String>, String> {
        self.sign("(")?;
        let mut names = BTreeSet::new();
        loop {
            names.insert(self.word()?);
            if self.tokens.next_if_eq(&Token::Sign(",")).is_none() {
                break;
            }
        }
        self.sign(")")?;
        Ok(names)
    }

    fn word(&mut self) -> Result<String, String> {
        match self.tokens.next() {
            Some(Token::Word(word)) => Ok(word),
            other => Err(format!("{other:?} stands where a name should")),
        }
    }

    fn sign(&mut self, sign: &'static str) -> Result<(), String> {
        match self.tokens.next() {
            Some(Token::Sign(found)) if found == sign => Ok(()),
            other => Err(format!("{other:?} stands where `{sign}` should")),
        }
    }
}

fn is_duration(text: &str) -> bool {
    text.strip_suffix(['s', 'm', 'h', 'd'])
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(labels: &[&str], grows: bool) -> Said {
        Said {
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            grows,
            meaning: "Nodes by status: offline, not_ready.".to_owned(),
        }
    }

    fn read(expression: &str) -> Result<Vec<String>, String> {
        let metrics = Metrics::from([
            ("nodes".to_owned(), said(&["status", "zone"], false)),
            ("asked_total".to_owned(), said(&["route"], true)),
            ("took_bucket".to_owned(), said(&["route", "le"], true)),
        ]);
        check(&metrics, expression).map(|labels| labels.into_iter().collect())
    }

    #[test]
    fn what_an_expression_leaves_is_known() {
        for (expression, left) in [
            ("nodes", &["instance", "job", "status", "zone"][..]),
            ("max(nodes) < 1 or absent(nodes)", &[]),
            (
                "sum by (status) (nodes{status=~\"offline|not_ready\",zone!=\"a\"}) > 0",
                &["status"],
            ),
            ("sum(nodes) / sum(nodes) > 0.9", &[]),
            ("topk(3, sum by (route) (rate(asked_total[5m])))", &["route"]),
            (
                "histogram_quantile(0.95, sum by (le, route) (rate(took_bucket[$__rate_interval])))",
                &["route"],
            ),
            (
                "(nodes{job=\"x\"} - nodes)",
                &["instance", "job", "status", "zone"],
            ),
        ] {
            assert_eq!(
                read(expression).as_deref().map_err(String::as_str),
                Ok(&left.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>()[..]),
                "{expression}"
            );
        }
    }

    #[test]
    fn what_cannot_be_right_is_refused() {
        for expression in [
            "",
            "node",
            "nodes{state=\"offline\"}",
            "nodes{status=\"gone\"}",
            "nodes{status=offline}",
            "nodes{status=\"offline\"",
            "nodes[5m]",
            "rate(nodes[5m])",
            "rate(asked_total)",
            "rate(asked_total[5])",
            "sum by (le) (asked_total)",
            "sum by (route) (nodes)",
            "histogram_quantile(0.9, sum by (route) (rate(took_bucket[5m])))",
            "sum(nodes) > ",
            "sum(nodes)) > 1",
            "guess(nodes)",
            "nodes > 1x",
            "nodes ~ 1",
        ] {
            let given = read(expression);
            assert!(given.is_err(), "{expression}: {given:?}");
        }
    }
}
