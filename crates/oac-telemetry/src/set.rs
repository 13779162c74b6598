//! What is counted, and the text of a scrape.

use std::time::Duration;

use prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, TextEncoder,
    core::Collector,
    proto::{Gauge, LabelPair, Metric, MetricFamily, MetricType},
};

use crate::table::{Definition, Kind};

/// The counters and histograms of one instance of a program.
#[derive(Debug, Clone, Default)]
pub struct Set {
    registry: Registry,
}

/// A counter with `N` labels. Clones count together.
#[derive(Debug, Clone)]
pub struct Counter<const N: usize>(IntCounterVec);

/// A histogram of seconds with `N` labels. Clones count together.
#[derive(Debug, Clone)]
pub struct Histogram<const N: usize>(HistogramVec);

/// Values that are read for one scrape.
#[derive(Debug, Default)]
pub struct Gauges(Vec<MetricFamily>);

impl Set {
    /// # Panics
    /// When the definition is no counter or was taken before: an error in the code.
    pub fn counter<const N: usize>(&self, definition: &'static Definition<N>) -> Counter<N> {
        assert!(definition.kind == Kind::Counter, "{}", definition.name);
        let options = Opts::new(definition.name, definition.help);
        let made = IntCounterVec::new(options, &definition.labels);
        Counter(self.add(definition.name, made))
    }

    /// # Panics
    /// When the definition is no histogram or was taken before: an error in the code.
    pub fn histogram<const N: usize>(&self, definition: &'static Definition<N>) -> Histogram<N> {
        let Kind::Histogram(bounds) = definition.kind else {
            panic!("{} is no histogram", definition.name);
        };
        let options = HistogramOpts::new(definition.name, definition.help).buckets(bounds.to_vec());
        let made = HistogramVec::new(options, &definition.labels);
        Histogram(self.add(definition.name, made))
    }

    fn add<C: Collector + Clone + 'static>(&self, name: &str, made: prometheus::Result<C>) -> C {
        let added = made.and_then(|made| {
            self.registry.register(Box::new(made.clone()))?;
            Ok(made)
        });
        added.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Everything that was counted, and `gauges`, sorted by name.
    pub fn text(&self, gauges: Gauges) -> String {
        let mut families = self.registry.gather();
        // A family without a series is not written.
        families.extend(
            gauges
                .0
                .into_iter()
                .filter(|family| !family.get_metric().is_empty()),
        );
        families.sort_by(|a, b| a.name().cmp(b.name()));
        let mut text = String::new();
        if let Err(error) = TextEncoder::new().encode_utf8(&families, &mut text) {
            tracing::error!(%error, "metrics cannot be written");
        }
        text
    }
}

impl<const N: usize> Counter<N> {
    pub fn inc(&self, labels: [&'static str; N]) {
        self.0.with_label_values(&labels).inc();
    }

    pub fn add(&self, labels: [&'static str; N], count: u64) {
        self.0.with_label_values(&labels).inc_by(count);
    }
}

impl<const N: usize> Histogram<N> {
    pub fn observe(&self, labels: [&'static str; N], time: Duration) {
        self.0.with_label_values(&labels).observe(time.as_secs_f64());
    }
}

impl Gauges {
    pub fn one(&mut self, definition: &'static Definition<0>, value: f64) {
        self.many(definition, [([], value)]);
    }

    /// Sets every series of a gauge; the caller bounds how many there are.
    ///
    /// # Panics
    /// When the definition is no gauge: an error in the code.
    pub fn many<const N: usize>(
        &mut self,
        definition: &'static Definition<N>,
        series: impl IntoIterator<Item = ([String; N], f64)>,
    ) {
        assert!(definition.kind == Kind::Gauge, "{}", definition.name);
        let metrics = series.into_iter().map(|(values, value)| {
            let labels = definition.labels.iter().zip(values).map(|(name, value)| {
                let mut pair = LabelPair::default();
                pair.set_name((*name).to_owned());
                pair.set_value(value);
                pair
            });
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            let mut metric = Metric::from_label(labels.collect());
            metric.set_gauge(gauge);
            metric
        });
        let mut family = MetricFamily::default();
        family.set_name(definition.name.to_owned());
        family.set_help(definition.help.to_owned());
        family.set_field_type(MetricType::GAUGE);
        family.set_metric(metrics.collect());
        self.0.push(family);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::table! {
        fn table;
        ASKED: Counter "test_asked_total" ["who"] "Questions.";
        TOOK: Histogram(&[0.5, 2.0]) "test_seconds" [] "Time.";
        UP: Gauge "test_up" [] "1 when up.";
        ROOM: Gauge "test_room" ["node", "kind"] "Room.";
    }

    #[test]
    fn a_scrape_has_every_series_once_with_the_help_and_the_kind_of_its_row() {
        let set = Set::default();
        let (asked, took) = (set.counter(&ASKED), set.histogram(&TOOK));
        asked.inc(["me"]);
        asked.clone().inc(["me"]);
        took.observe([], Duration::from_secs(1));
        let mut gauges = Gauges::default();
        gauges.one(&UP, 1.0);
        gauges.many(&ROOM, [(["a\"\\\n".to_owned(), "active".to_owned()], 3.0)]);
        assert_eq!(
            set.text(gauges),
            "# HELP test_asked_total Questions.\n# TYPE test_asked_total counter\ntest_asked_total{who=\"me\"} 2\n\
             # HELP test_room Room.\n# TYPE test_room gauge\ntest_room{node=\"a\\\"\\\\\\n\",kind=\"active\"} 3\n\
             # HELP test_seconds Time.\n# TYPE test_seconds histogram\ntest_seconds_bucket{le=\"0.5\"} 0\n\
             test_seconds_bucket{le=\"2\"} 1\ntest_seconds_bucket{le=\"+Inf\"} 1\ntest_seconds_sum 1\n\
             test_seconds_count 1\n# HELP test_up 1 when up.\n# TYPE test_up gauge\ntest_up 1\n"
        );
        assert_eq!(table().len(), 4);
        assert_eq!(
            TOOK.row().series()[0],
            ("test_seconds_bucket".to_owned(), vec!["le"])
        );
    }

    #[test]
    fn what_was_not_counted_yet_is_not_written() {
        let set = Set::default();
        let _asked = set.counter(&ASKED);
        let mut gauges = Gauges::default();
        gauges.many(&ROOM, []);
        assert_eq!(set.text(gauges), "");
    }
}
