//! The table of a program's metrics.

/// What a metric's values are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Only ever grows while the program lives. Its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How many values lay at or below each of these bounds, ascending.
    Histogram(&'static [f64]),
}

/// One metric with `N` labels. Made by [`crate::table!`] alone.
#[derive(Debug)]
pub struct Definition<const N: usize> {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: [&'static str; N],
    /// What it means, in one sentence.
    pub help: &'static str,
}

/// A [`Definition`], however many labels it has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

impl<const N: usize> Definition<N> {
    pub fn row(&'static self) -> Row {
        Row {
            name: self.name,
            kind: self.kind,
            labels: &self.labels,
            help: self.help,
        }
    }
}

impl Row {
    /// As Prometheus spells the kind.
    pub fn kind_text(&self) -> &'static str {
        match self.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        }
    }

    /// The names under which its series are found, and the labels of each.
    pub fn series(&self) -> Vec<(String, Vec<&'static str>)> {
        let own = self.labels.to_vec();
        match self.kind {
            Kind::Counter | Kind::Gauge => vec![(self.name.to_owned(), own)],
            Kind::Histogram(_) => vec![
                (
                    format!("{}_bucket", self.name),
                    own.iter().copied().chain(["le"]).collect(),
                ),
                (format!("{}_sum", self.name), own.clone()),
                (format!("{}_count", self.name), own),
            ],
        }
    }
}

/// Declares metrics, each as `NAME: Kind "name" ["label", …] "help";`, and a function that lists them all.
#[macro_export]
macro_rules! table {
    ($(#[$doc:meta])* $vis:vis fn $table:ident; $($ident:ident: $kind:ident $(($bounds:expr))? $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(
            #[doc = $help]
            $vis static $ident: $crate::Definition<{ <[&'static str]>::len(&[$($label),*]) }> = $crate::Definition {
                name: $name,
                kind: $crate::Kind::$kind $(($bounds))?,
                labels: [$($label),*],
                help: $help,
            };
        )*

        $(#[$doc])*
        $vis fn $table() -> Vec<$crate::Row> {
            vec![$($ident.row()),*]
        }
    };
}
