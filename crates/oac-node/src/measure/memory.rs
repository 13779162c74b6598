use super::size;

/// (MemTotal, MemAvailable) in bytes of `/proc/meminfo`.
pub(super) fn parse(meminfo: &str) -> (Option<i64>, Option<i64>) {
    let total = value(meminfo, "MemTotal").filter(|bytes| *bytes > 0);
    let available = value(meminfo, "MemAvailable").filter(|bytes| total.is_none_or(|total| *bytes <= total));
    (total, available)
}

fn value(meminfo: &str, name: &str) -> Option<i64> {
    let mut lines = meminfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(key, _)| *key == name);
    let (_, text) = lines.next()?;
    if lines.next().is_some() {
        return None;
    }
    let mut words = text.split_ascii_whitespace();
    let (number, unit, end) = (words.next()?, words.next()?, words.next());
    if unit != "kB" || end.is_some() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    size(number.parse::<u64>().ok()?.checked_mul(1024)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kilobytes_become_bytes() {
        let text = "MemTotal:        2048 kB\nMemFree: 1 kB\nMemAvailable:    1024 kB\n";
        assert_eq!(parse(text), (Some(2048 * 1024), Some(1024 * 1024)));
    }

    // inv: INV-N34
    #[test]
    fn duplicates_other_units_and_a_zero_total_are_unknown() {
        assert_eq!(
            parse("MemTotal: 1 kB\nMemTotal: 1 kB\nMemAvailable: 1 kB\n"),
            (None, Some(1024))
        );
        assert_eq!(parse("MemTotal: 4 MB\nMemAvailable: 1\n"), (None, None));
        assert_eq!(parse("MemTotal: 0 kB\nMemAvailable: -1 kB\n"), (None, None));
        assert_eq!(parse("MemTotal: 1 kB\nMemAvailable: 2 kB\n"), (Some(1024), None));
        assert_eq!(parse("MemTotal: 18446744073709551615 kB\n"), (None, None));
        assert_eq!(parse(""), (None, None));
    }
}
