/// The first eight counters of the first `/proc/stat` line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTimes {
    counters: [u64; COUNTERS],
    fields: usize,
}

/// user, nice, system, idle, iowait, irq, softirq, steal; guest time is already inside user.
const COUNTERS: usize = 8;
const IDLE: usize = 3;
const IOWAIT: usize = 4;

impl CpuTimes {
    pub fn parse(stat: &str) -> Option<Self> {
        let mut words = stat.lines().next()?.split_ascii_whitespace();
        if words.next()? != "cpu" {
            return None;
        }
        let values = words
            .map(|word| word.parse::<u64>().ok())
            .collect::<Option<Vec<_>>>()?;
        let counters = values.get(..COUNTERS)?.try_into().ok()?;
        Some(Self {
            counters,
            fields: values.len(),
        })
    }

    /// Busy share of the time since `before`; `None` when a counter ran backward, the line changed its shape or no
    /// time passed.
    pub fn utilization_since(&self, before: &Self) -> Option<f64> {
        if self.fields != before.fields {
            return None;
        }
        let mut deltas = [0; COUNTERS];
        for (delta, (now, then)) in deltas.iter_mut().zip(self.counters.iter().zip(before.counters)) {
            *delta = now.checked_sub(then)?;
        }
        let total = deltas
            .iter()
            .try_fold(0u64, |sum, delta| sum.checked_add(*delta))
            .filter(|t| *t > 0)?;
        let idle = deltas[IDLE] + deltas[IOWAIT];
        Some((total - idle) as f64 / total as f64)
    }
}

/// CPUs the kernel shows as online: the `cpuN` lines.
pub(super) fn visible(stat: &str) -> Option<i64> {
    let count = stat
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().next()?.strip_prefix("cpu"))
        .filter(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
        .count();
    (count > 0).then_some(count as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(line: &str) -> CpuTimes {
        CpuTimes::parse(line).unwrap()
    }

    #[test]
    fn busy_is_everything_but_idle_and_iowait() {
        let before = times("cpu  100 0 100 1000 100 0 0 0 0 0\ncpu0 1");
        let now = times("cpu  110 5 105 1070 105 2 2 1 99 99");
        assert_eq!(now.utilization_since(&before), Some(25.0 / 100.0));
    }

    // inv: INV-N34
    #[test]
    fn backward_counters_another_shape_and_no_elapsed_time_are_unknown() {
        let before = times("cpu  100 0 100 1000 100 0 0 0 0 0");
        for unusable in [
            "cpu  99 0 100 1100 100 0 0 0 0 0",
            "cpu  110 0 100 1100 100 0 0 0",
            "cpu  100 0 100 1000 100 0 0 0 0 0",
        ] {
            assert_eq!(times(unusable).utilization_since(&before), None, "{unusable}");
        }
        for malformed in [
            "",
            "intr 1 2 3 4 5 6 7 8",
            "cpu 1 2 3 4 5 6 7",
            "cpu 1 2 3 4 5 6 7 x",
            "cpu0 1 2 3 4 5 6 7 8",
        ] {
            assert_eq!(CpuTimes::parse(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn visible_cpus_are_the_numbered_lines() {
        assert_eq!(visible("cpu 1\ncpu0 1\ncpu3 1\nintr 1\ncpufreq 2\n"), Some(2));
        assert_eq!(visible("cpu 1\n"), None);
    }
}
