//! One figure: both sides of a measurement, and what is expected of their ratio.

use std::time::Duration;

use serde_json::{Value, json};

/// Medians of both sides and their ratio against its budget.
pub(crate) struct Figure {
    pub name: &'static str,
    pub what: &'static str,
    pub ours: Vec<Duration>,
    pub baseline: Vec<Duration>,
    /// What one sample did.
    pub work: Work,
    /// The ratio of the times at most; the design names none for some figures.
    pub budget: Option<f64>,
    /// Medians of further measurements that explain the figure, by name.
    pub beside: Vec<(&'static str, Duration)>,
}

/// How a sample's duration is told.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// As itself.
    One,
    /// As bytes in a second.
    Bytes(u64),
    /// As so many things in a second.
    Things(u64),
}

impl Work {
    fn tell(self, duration: Duration) -> String {
        let seconds = duration.as_secs_f64().max(1e-9);
        match self {
            Self::One => format!("{:.1} ms", seconds * 1000.0),
            Self::Bytes(bytes) => format!("{:.1} MB/s", bytes as f64 / 1e6 / seconds),
            Self::Things(count) => format!("{:.1} /s", count as f64 / seconds),
        }
    }
}

pub(crate) const HEADING: &str = "name        what (median)                                         oac            baseline   time   budget";

pub(crate) fn median(samples: &[Duration]) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

impl Figure {
    /// Our time over the baseline's.
    pub(crate) fn ratio(&self) -> f64 {
        median(&self.ours).as_secs_f64() / median(&self.baseline).as_secs_f64().max(1e-9)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.budget.is_none_or(|budget| self.ratio() <= budget)
    }

    pub(crate) fn print(&self) {
        let budget = match self.budget {
            Some(budget) => format!("{budget:.2} {}", if self.is_held() { "held" } else { "MISSED" }),
            None => "-".to_owned(),
        };
        println!(
            "{:<11} {:<48} {:>13} {:>13} {:>7.3}   {budget}",
            self.name,
            self.what,
            self.work.tell(median(&self.ours)),
            self.work.tell(median(&self.baseline)),
            self.ratio(),
        );
        for (name, duration) in &self.beside {
            println!("{:<11}   {name:<46} {:>13}", "", self.work.tell(*duration));
        }
    }

    pub(crate) fn json(&self) -> Value {
        let list = |samples: &[Duration]| samples.iter().map(Duration::as_secs_f64).collect::<Vec<_>>();
        let (bytes, things) = match self.work {
            Work::One => (None, None),
            Work::Bytes(n) => (Some(n), None),
            Work::Things(n) => (None, Some(n)),
        };
        json!({
            "name": self.name, "what": self.what, "ratio": self.ratio(), "budget": self.budget,
            "sample_bytes": bytes, "sample_things": things,
            "ours_seconds": list(&self.ours), "baseline_seconds": list(&self.baseline),
            "beside_seconds": self.beside.iter().map(|(n, d)| ((*n).to_owned(), json!(d.as_secs_f64())))
                .collect::<serde_json::Map<_, _>>(),
        })
    }
}
