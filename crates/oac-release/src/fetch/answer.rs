//! What an answer to the request for a file's bytes from an offset means. Pure.

use http::{HeaderMap, StatusCode, header};

/// A body that was changed under way has other bytes than the file.
pub(super) const ENCODED: &str = "is encoded, though it was asked for as it is";

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The bytes from the offset on follow.
    Rest,
    /// The file follows from its beginning.
    Whole,
    /// There is nothing at the offset: ask for the whole.
    StartOver,
    Redirect,
    Status(StatusCode),
    Refuse(&'static str),
}

/// Statuses that may be others a moment later.
pub(super) fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
}

pub(super) fn is_encoded(headers: &HeaderMap) -> bool {
    let mut encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    encodings.any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// An answer to the request for the bytes of a file of `size` from `from` on; without an offset no range was asked for.
pub(super) fn judge(status: StatusCode, headers: &HeaderMap, from: u64, size: u64) -> Verdict {
    let is = |length: u64| match headers.get(header::CONTENT_LENGTH) {
        None => true,
        Some(value) => value.to_str().is_ok_and(|text| text == length.to_string()),
    };
    match status.as_u16() {
        200 | 206 if is_encoded(headers) => Verdict::Refuse(ENCODED),
        200 if is(size) => Verdict::Whole,
        200 => Verdict::Refuse("has another size than the manifest states"),
        206 if from == 0 => Verdict::Refuse("is a part, though the whole was asked for"),
        206 => {
            let exact = format!("bytes {from}-{}/{size}", size.saturating_sub(1));
            let mut ranges = headers.get_all(header::CONTENT_RANGE).iter();
            let fits = ranges
                .next()
                .is_some_and(|range| range.as_bytes() == exact.as_bytes())
                && ranges.next().is_none()
                && is(size.saturating_sub(from));
            if fits {
                Verdict::Rest
            } else {
                Verdict::Refuse("has another part than was asked for")
            }
        }
        416 if from > 0 => Verdict::StartOver,
        301 | 302 | 303 | 307 | 308 => Verdict::Redirect,
        _ => Verdict::Status(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(status: u16, headers: &[(&str, &str)], from: u64) -> Verdict {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().unwrap();
            map.append(name, value.parse().unwrap());
        }
        judge(StatusCode::from_u16(status).unwrap(), &map, from, 100)
    }

    #[test]
    fn only_the_exact_rest_or_the_exact_whole_is_taken() {
        let refused = |verdict| matches!(verdict, Verdict::Refuse(_));
        assert_eq!(told(200, &[], 0), Verdict::Whole);
        assert_eq!(told(200, &[("content-length", "100")], 40), Verdict::Whole);
        for length in ["99", "101", "0", "-100", "1e2", "100, 100"] {
            assert!(refused(told(200, &[("content-length", length)], 0)), "{length}");
        }
        let rest = ("content-range", "bytes 40-99/100");
        assert_eq!(told(206, &[rest], 40), Verdict::Rest);
        assert_eq!(told(206, &[rest, ("content-length", "60")], 40), Verdict::Rest);
        assert!(refused(told(206, &[rest, ("content-length", "100")], 40)));
        assert!(refused(told(206, &[rest, rest], 40)));
        assert!(refused(told(206, &[("content-range", "bytes 0-99/100")], 0)));
        for range in [
            "bytes 0-99/100",
            "bytes 41-99/100",
            "bytes 40-98/100",
            "bytes 40-99/101",
            "bytes 40-99/*",
            "bytes */100",
            "items 40-99/100",
            "40-99/100",
            "",
        ] {
            assert!(refused(told(206, &[("content-range", range)], 40)), "{range}");
        }
        assert!(refused(told(206, &[], 40)));
        for encoding in ["gzip", "identity, gzip", "br"] {
            assert!(refused(told(200, &[("content-encoding", encoding)], 0)));
            assert!(refused(told(206, &[rest, ("content-encoding", encoding)], 40)));
        }
        assert_eq!(told(200, &[("content-encoding", "identity")], 0), Verdict::Whole);
        assert_eq!(told(416, &[], 40), Verdict::StartOver);
        assert_eq!(
            told(416, &[], 0),
            Verdict::Status(StatusCode::RANGE_NOT_SATISFIABLE)
        );
        for status in [100, 204, 300, 304, 400, 404, 500] {
            assert!(matches!(told(status, &[], 0), Verdict::Status(_)), "{status}");
        }
    }
}
