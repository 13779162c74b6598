//! A node's host and its history.

use oac_model::Time;
use oac_store::{NodeRow, NodeSampleRow, Read};
use serde::{Deserialize, Serialize};

use super::view::{Context, Node};
use crate::http::ApiError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, utoipa::ToSchema)]
pub(super) enum Range {
    #[default]
    #[serde(rename = "1h")]
    Hour,
    #[serde(rename = "6h")]
    SixHours,
    #[serde(rename = "24h")]
    Day,
}

impl Range {
    /// Seconds of one point, and how many points the range has.
    fn points(self) -> (i64, i64) {
        match self {
            Self::Hour => (60, 60),
            Self::SixHours => (300, 72),
            Self::Day => (900, 96),
        }
    }
}

/// A node, its host and its history.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct NodeDetail {
    #[serde(flatten)]
    node: Node,
    host: Host,
    history: History,
}

/// The latest measurements; an offline node keeps its last ones.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Host {
    #[schema(required)]
    effective_cpu_cores: Option<f64>,
    #[schema(required)]
    cpu_utilization: Option<f64>,
    #[schema(required)]
    total_memory_bytes: Option<u64>,
    #[schema(required)]
    available_memory_bytes: Option<u64>,
    #[schema(required)]
    available_disk_bytes: Option<u64>,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    observed_at: Option<Time>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
struct History {
    /// 60, 300 or 900.
    resolution_seconds: i64,
    /// Full UTC buckets, oldest first, without the current one.
    points: Vec<Point>,
}

/// The extremes of one bucket; null where nothing was measured.
#[derive(Debug, PartialEq, Serialize, utoipa::ToSchema)]
struct Point {
    #[schema(value_type = String, format = DateTime)]
    start: Time,
    #[schema(required)]
    cpu_utilization_max: Option<f64>,
    #[schema(required)]
    memory_used_bytes_max: Option<u64>,
    #[schema(required)]
    available_disk_bytes_min: Option<u64>,
}

impl NodeDetail {
    pub(super) async fn read(read: &Read, row: NodeRow, range: Range) -> Result<Self, ApiError> {
        let context = Context::read(read).await?;
        let (seconds, count) = range.points();
        let since = first_bucket(context.now, seconds, count);
        let samples = read.node_samples(row.id, since).await?;
        let counts = read.node_counts(row.id).await?;
        let host = Host {
            effective_cpu_cores: row.effective_cpu_cores,
            cpu_utilization: row.cpu_utilization,
            total_memory_bytes: row.total_memory_bytes,
            available_memory_bytes: row.available_memory_bytes,
            available_disk_bytes: row.available_disk_bytes,
            observed_at: row.observed_at,
        };
        let history = History {
            resolution_seconds: seconds,
            points: history(&samples, since, seconds, count),
        };
        Ok(Self {
            node: context.show(row, counts),
            host,
            history,
        })
    }
}

/// Where `count` full buckets that end before the current one begin.
fn first_bucket(now: Time, seconds: i64, count: i64) -> Time {
    let width = seconds * 1000;
    let current = now.millis().div_euclid(width) * width;
    Time::from_millis((current - count * width).max(0)).unwrap_or(now)
}

fn history(samples: &[NodeSampleRow], since: Time, seconds: i64, count: i64) -> Vec<Point> {
    let width = seconds * 1000;
    let mut points: Vec<Point> = (0..count)
        .map(|i| Point {
            start: since.plus_millis(i * width),
            cpu_utilization_max: None,
            memory_used_bytes_max: None,
            available_disk_bytes_min: None,
        })
        .collect();
    for sample in samples {
        let bucket = (sample.observed_at.millis() - since.millis()).div_euclid(width);
        let Some(point) = usize::try_from(bucket).ok().and_then(|i| points.get_mut(i)) else {
            continue;
        };
        let used = sample
            .total_memory_bytes
            .zip(sample.available_memory_bytes)
            .map(|(t, a)| t.saturating_sub(a));
        point.cpu_utilization_max = both(point.cpu_utilization_max, sample.cpu_utilization, f64::max);
        point.memory_used_bytes_max = both(point.memory_used_bytes_max, used, u64::max);
        point.available_disk_bytes_min = both(
            point.available_disk_bytes_min,
            sample.available_disk_bytes,
            u64::min,
        );
    }
    points
}

/// The one that is known, or what `pick` makes of both.
fn both<T>(a: Option<T>, b: Option<T>, pick: fn(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(pick(a, b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use oac_model::NodeId;

    use super::*;

    #[test]
    fn history_is_full_buckets_of_extremes_without_the_current_one() {
        let at =
            |seconds: i64| Time::from_millis(1_700_000_000_000 / 60_000 * 60_000 + seconds * 1000).unwrap();
        let now = at(3600 + 30);
        let since = first_bucket(now, 60, 60);
        assert_eq!(since, at(0));
        let sample = |seconds, cpu| NodeSampleRow {
            node_id: NodeId::random(),
            observed_at: at(seconds),
            cpu_utilization: cpu,
            total_memory_bytes: Some(100),
            available_memory_bytes: Some(40),
            available_disk_bytes: Some(seconds as u64),
        };
        let samples = [
            sample(61, Some(0.5)),
            sample(90, Some(0.25)),
            sample(119, None),
            sample(3610, Some(1.0)),
        ];
        let points = history(&samples, since, 60, 60);
        assert_eq!(points.len(), 60);
        let expected = Point {
            start: at(60),
            cpu_utilization_max: Some(0.5),
            memory_used_bytes_max: Some(60),
            available_disk_bytes_min: Some(61),
        };
        assert_eq!(points[1], expected);
        assert!(
            points
                .iter()
                .enumerate()
                .all(|(i, p)| i == 1 || p.cpu_utilization_max.is_none())
        );
    }
}
