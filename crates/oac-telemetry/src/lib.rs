//! What a program says of itself: metrics, as Prometheus reads them, its log, and its [`traces`].
//!
//! A program writes one [`table!`] of its metrics: name, kind, labels and what each means. From it come the handles that
//! the program counts with, the text of a scrape, and what documents, dashboards and alert rules are checked against. In
//! go counts and values, out comes text in Prometheus' format 0.0.4.
//!
//! It must guarantee that a metric has exactly the labels of its table row, and that what a program counts has few
//! series: the label values of counters and histograms are texts of the program itself, never of a request. So no
//! identifier and no secret can get into them. Gauges are computed for each scrape and may name things; whoever fills them
//! bounds how many.
//!
//! Refused alternative: a recorder for the whole process. Two Cores in one process, as tests run them, would share it.

pub mod log;
mod serve;
mod set;
mod table;
pub mod traces;

pub use serve::serve;
pub use set::{Counter, Gauges, Histogram, Set};
pub use table::{Definition, Kind, Row};
