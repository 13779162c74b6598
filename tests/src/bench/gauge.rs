//! One quantity that has a budget of its own, beside what the same takes without oac.

use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Mebibytes,
    Kibibytes,
    /// Of one processor.
    Percent,
    Seconds,
    Millis,
    Times,
    EachSecond,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Mebibytes => "MiB",
            Self::Kibibytes => "KiB",
            Self::Percent => "% core",
            Self::Seconds => "s",
            Self::Millis => "ms",
            Self::Times => "x",
            Self::EachSecond => "/s",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Budget {
    AtMost(f64),
    AtLeast(f64),
    /// The design names none.
    None,
}

/// What was measured of oac, and of the baseline where there is one.
pub(crate) struct Gauge {
    pub name: &'static str,
    pub what: String,
    pub unit: Unit,
    pub ours: f64,
    pub baseline: Option<f64>,
    pub budget: Budget,
}

pub(crate) const HEADING: &str =
    "name        what                                                           oac     baseline   budget";

impl Gauge {
    pub(crate) fn is_held(&self) -> bool {
        match self.budget {
            Budget::AtMost(most) => self.ours <= most,
            Budget::AtLeast(least) => self.ours >= least,
            Budget::None => true,
        }
    }

    pub(crate) fn print(&self) {
        let held = if self.is_held() { "held" } else { "MISSED" };
        let budget = match self.budget {
            Budget::AtMost(most) => format!("at most {most} {held}"),
            Budget::AtLeast(least) => format!("at least {least} {held}"),
            Budget::None => "-".to_owned(),
        };
        let tell = |value: f64| format!("{value:.2} {}", self.unit.name());
        println!(
            "{:<11} {:<52} {:>14} {:>14}   {budget}",
            self.name,
            self.what,
            tell(self.ours),
            self.baseline.map_or_else(|| "-".to_owned(), tell),
        );
    }

    pub(crate) fn json(&self) -> Value {
        let (most, least) = match self.budget {
            Budget::AtMost(most) => (Some(most), None),
            Budget::AtLeast(least) => (None, Some(least)),
            Budget::None => (None, None),
        };
        json!({
            "name": self.name, "what": self.what, "unit": self.unit.name(), "ours": self.ours,
            "baseline": self.baseline, "at_most": most, "at_least": least,
        })
    }
}
