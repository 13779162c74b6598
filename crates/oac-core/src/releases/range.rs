//! Which bytes of a file a request asks for. Pure.

use http::{HeaderMap, header};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Whole,
    /// From the first to the last, both included.
    Part {
        first: u64,
        last: u64,
    },
    /// None of the file's bytes.
    Nothing,
}

/// One range in bytes, of a file that is not empty. Several, another unit, a text that is no range, and a range of
/// another file than `etag` tells mean the whole.
pub(crate) fn wanted(headers: &HeaderMap, size: u64, etag: &str) -> Wanted {
    let mut ranges = headers.get_all(header::RANGE).iter();
    let (Some(range), None) = (ranges.next(), ranges.next()) else {
        return Wanted::Whole;
    };
    let other = headers
        .get_all(header::IF_RANGE)
        .iter()
        .any(|tag| tag.as_bytes() != etag.as_bytes());
    if other {
        return Wanted::Whole;
    }
    let text = range.to_str().ok().and_then(|text| text.split_once('='));
    let Some((unit, range)) = text else {
        return Wanted::Whole;
    };
    if !unit.eq_ignore_ascii_case("bytes") {
        return Wanted::Whole;
    }
    let Some((first, last)) = range.trim().split_once('-') else {
        return Wanted::Whole;
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !digits(first) || !digits(last) {
        return Wanted::Whole;
    }
    // A number that is too large to be one is larger than any file.
    let number = |text: &str| text.parse().unwrap_or(u64::MAX);
    let (first, last) = match (first, last) {
        ("", "") => return Wanted::Whole,
        ("", count) => match number(count) {
            0 => return Wanted::Nothing,
            count => (size.saturating_sub(count), size - 1),
        },
        (first, "") => (number(first), size - 1),
        (first, last) => {
            let (first, last) = (number(first), number(last));
            if last < first {
                return Wanted::Whole;
            }
            (first, last.min(size - 1))
        }
    };
    if first >= size {
        return Wanted::Nothing;
    }
    Wanted::Part { first, last }
}

/// Whether the client has what `etag` names.
pub(crate) fn is_known(headers: &HeaderMap, etag: &str) -> bool {
    headers.get_all(header::IF_NONE_MATCH).iter().any(|value| {
        value.to_str().is_ok_and(|list| {
            let mut tags = list.split(',').map(str::trim);
            tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETAG: &str = "\"abc\"";

    fn of(headers: &[(&str, &str)]) -> Wanted {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        wanted(&map, 100, ETAG)
    }

    #[test]
    fn one_range_in_bytes_is_a_part_and_everything_else_is_the_whole_or_nothing() {
        let range = |text: &str| of(&[("range", text)]);
        let part = |first, last| Wanted::Part { first, last };
        assert_eq!(of(&[]), Wanted::Whole);
        for (text, first, last) in [
            ("bytes=0-0", 0, 0),
            ("bytes=0-99", 0, 99),
            ("bytes=40-59", 40, 59),
            ("bytes=40-100", 40, 99),
            ("bytes=40-99999999999999999999999", 40, 99),
            ("bytes=40-", 40, 99),
            ("bytes=99-", 99, 99),
            ("bytes=-1", 99, 99),
            ("bytes=-100", 0, 99),
            ("bytes=-101", 0, 99),
            ("Bytes=1-2", 1, 2),
        ] {
            assert_eq!(range(text), part(first, last), "{text}");
        }
        for text in [
            "bytes=100-",
            "bytes=100-200",
            "bytes=-0",
            "bytes=99999999999999999999999-",
        ] {
            assert_eq!(range(text), Wanted::Nothing, "{text}");
        }
        for text in [
            "bytes=0-1,3-4",
            "items=0-1",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=5-4",
            "bytes=+1-2",
            "bytes=1--2",
            "bytes 0-1/100",
            "0-1",
        ] {
            assert_eq!(range(text), Wanted::Whole, "{text}");
        }
        assert_eq!(
            of(&[("range", "bytes=0-1"), ("range", "bytes=2-3")]),
            Wanted::Whole
        );
        assert_eq!(of(&[("range", "bytes=0-1"), ("if-range", ETAG)]), part(0, 1));
        for other in ["\"abd\"", "W/\"abc\"", "abc", "Mon, 30 Nov 2026 00:00:00 GMT"] {
            assert_eq!(
                of(&[("range", "bytes=0-1"), ("if-range", other)]),
                Wanted::Whole,
                "{other}"
            );
        }
    }
}
