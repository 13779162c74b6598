//! Points in time as they travel: RFC 3339 UTC ending in `Z`, at most nine fraction digits, year 1970..9999.

use std::{fmt, str::FromStr};

use jiff::{SignedDuration, civil::DateTime};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A point in time between 1970 and 9999, to the nanosecond; held as nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i128);

/// Text or a number that is not such a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected an RFC 3339 UTC time ending in Z, year 1970 to 9999")]
pub struct ParseTimeError;

const LAST_MILLIS: i64 = 253_402_300_799_999;
const NANOS_PER_MILLI: i128 = 1_000_000;
/// The civil calendar reaches to the end of 9999, which the library's timestamps do not.
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

impl Time {
    /// Milliseconds since 1970; `None` outside 1970..9999.
    pub fn from_millis(millis: i64) -> Option<Self> {
        (0..=LAST_MILLIS)
            .contains(&millis)
            .then(|| Self(i128::from(millis) * NANOS_PER_MILLI))
    }

    /// Milliseconds since 1970, rounded down.
    pub fn millis(self) -> i64 {
        (self.0 / NANOS_PER_MILLI) as i64
    }

    /// Nanoseconds since 1970; `None` outside 1970..9999.
    pub fn from_nanos(nanos: i128) -> Option<Self> {
        (0..(i128::from(LAST_MILLIS) + 1) * NANOS_PER_MILLI)
            .contains(&nanos)
            .then_some(Self(nanos))
    }

    pub fn nanos(self) -> i128 {
        self.0
    }

    /// This time and `millis` more, held within the range.
    pub fn plus_millis(self, millis: i64) -> Self {
        let last = i128::from(LAST_MILLIS) * NANOS_PER_MILLI;
        Self((self.0 + i128::from(millis) * NANOS_PER_MILLI).clamp(0, last))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let duration = SignedDuration::from_nanos_i128(self.0);
        let civil = EPOCH.checked_add(duration).map_err(|_| fmt::Error)?;
        write!(f, "{civil}Z")
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Time({self})")
    }
}

impl FromStr for Time {
    type Err = ParseTimeError;
    fn from_str(text: &str) -> Result<Self, ParseTimeError> {
        let bytes = text.as_bytes();
        let shape = b"dddd-dd-ddTdd:dd:dd";
        let (head, tail) = bytes.split_at_checked(shape.len()).ok_or(ParseTimeError)?;
        let head_fits = head
            .iter()
            .zip(shape)
            .all(|(b, s)| if *s == b'd' { b.is_ascii_digit() } else { b == s });
        let fraction = tail.strip_suffix(b"Z").ok_or(ParseTimeError)?;
        let fraction_fits = match fraction.strip_prefix(b".") {
            None => fraction.is_empty(),
            Some(digits) => (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit),
        };
        // Seconds of 60 are read as 59 by the parser; the protocol knows no leap seconds.
        if !head_fits || !fraction_fits || &head[17..] > b"59".as_slice() {
            return Err(ParseTimeError);
        }
        let civil: DateTime = text[..text.len() - 1].parse().map_err(|_| ParseTimeError)?;
        Self::from_nanos(civil.duration_since(EPOCH).as_nanos()).ok_or(ParseTimeError)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_utc_with_z_within_the_years_is_a_time() {
        for good in [
            "1970-01-01T00:00:00Z",
            "2026-02-28T23:59:59.123456789Z",
            "9999-12-31T23:59:59Z",
        ] {
            assert_eq!(good.parse::<Time>().unwrap().to_string(), good);
        }
        for bad in [
            "1969-12-31T23:59:59Z",
            "2026-02-28T23:59:59+00:00",
            "2026-02-28t23:59:59Z",
            "2026-02-28 23:59:59Z",
            "2026-02-28T23:59:59z",
            "2026-02-28T23:59:60Z",
            "2026-02-28T23:59Z",
            "2026-02-30T00:00:00Z",
            "2026-02-28T23:59:59.Z",
            "2026-02-28T23:59:59.1234567891Z",
            "2026-02-28T23:59:59,1Z",
            "+002026-02-28T23:59:59Z",
        ] {
            assert!(bad.parse::<Time>().is_err(), "{bad}");
        }
    }
}
