//! One range of bytes (RFC 9110 section 14).

use std::fmt;

/// What a `Range` header asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// From this byte to the end.
    From(u64),
    /// From the first to the last of these, both included.
    Between(u64, u64),
    /// The last so many.
    Last(u64),
}

impl ByteRange {
    /// A header with exactly one well-formed range of bytes. Anything else may be passed over: the answer is then the
    /// whole file.
    pub fn parse(text: &str) -> Option<Self> {
        let (unit, ranges) = text.split_once('=')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (first, last) = ranges.trim_matches([' ', '\t']).split_once('-')?;
        let number = |text: &str| -> Option<u64> {
            (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()))
                // A number beyond all sizes is just that.
                .then(|| text.parse().unwrap_or(u64::MAX))
        };
        match (first, last) {
            ("", last) => Some(Self::Last(number(last)?)),
            (first, "") => Some(Self::From(number(first)?)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::Between(first, last))
            }
        }
    }

    /// First byte and number of bytes in a file of `size`; `None` when it has none of them.
    pub fn of(self, size: u64) -> Option<(u64, u64)> {
        let (first, length) = match self {
            Self::From(first) => (first, size.checked_sub(first)?),
            Self::Between(first, last) => {
                let length = (last - first).saturating_add(1);
                (first, size.checked_sub(first)?.min(length))
            }
            Self::Last(count) => {
                let length = count.min(size);
                (size - length, length)
            }
        };
        (length > 0).then_some((first, length))
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::From(first) => write!(f, "bytes={first}-"),
            Self::Between(first, last) => write!(f, "bytes={first}-{last}"),
            Self::Last(count) => write!(f, "bytes=-{count}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_well_formed_range_is_read_and_written_alike_and_others_are_passed_over() {
        for (text, range) in [
            ("bytes=0-", ByteRange::From(0)),
            ("bytes=5-5", ByteRange::Between(5, 5)),
            ("bytes=-7", ByteRange::Last(7)),
            ("bytes=99999999999999999999-", ByteRange::From(u64::MAX)),
        ] {
            assert_eq!(ByteRange::parse(text), Some(range));
            assert_eq!(ByteRange::parse(&range.to_string()), Some(range));
        }
        for bad in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=2-1",
            "bytes=0-1,3-4",
            "bytes=+1-2",
            "lines=0-1",
            "bytes=a-",
            "bytes=1 - 2",
        ] {
            assert_eq!(ByteRange::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_range_is_cut_at_the_end_of_the_file_and_one_beyond_it_has_nothing() {
        for (range, size, found) in [
            (ByteRange::From(0), 10, Some((0, 10))),
            (ByteRange::From(9), 10, Some((9, 1))),
            (ByteRange::From(10), 10, None),
            (ByteRange::From(0), 0, None),
            (ByteRange::Between(2, 3), 10, Some((2, 2))),
            (ByteRange::Between(2, u64::MAX), 10, Some((2, 8))),
            (ByteRange::Between(0, u64::MAX), u64::MAX, Some((0, u64::MAX))),
            (ByteRange::Between(11, 12), 10, None),
            (ByteRange::Last(3), 10, Some((7, 3))),
            (ByteRange::Last(11), 10, Some((0, 10))),
            (ByteRange::Last(0), 10, None),
            (ByteRange::Last(1), 0, None),
        ] {
            assert_eq!(range.of(size), found, "{range} of {size}");
        }
    }
}
