//! Section 2: forms of strings.

pub(super) fn of(text: &str, allowed: fn(char) -> bool) -> bool {
    text.chars().all(allowed)
}

/// Unicode's Cc.
pub(super) fn is_control(c: char) -> bool {
    matches!(c, '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}')
}

/// `dddd-dd-ddTdd:dd:dd[.d{1,9}]Z` of a day and time that exist, as nanoseconds counted from the year 0.
pub(super) fn nanoseconds(text: &str) -> Option<u128> {
    let number = |range: std::ops::Range<usize>| -> Option<u128> {
        let digits = text.get(range)?;
        digits
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| digits.parse().ok())?
    };
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    for (at, expected) in [(4, "-"), (7, "-"), (10, "T"), (13, ":"), (16, ":")] {
        if text.get(at..at + 1)? != expected {
            return None;
        }
    }
    let fraction = match text.get(19..)?.strip_suffix('Z')? {
        "" => 0,
        more => {
            let digits = more.strip_prefix('.')?;
            if digits.is_empty() || digits.len() > 9 || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            digits.parse::<u128>().ok()? * 10u128.pow(9 - digits.len() as u32)
        }
    };
    let leap = |y: u128| (y.is_multiple_of(4) && !y.is_multiple_of(100)) || y.is_multiple_of(400);
    let length = |y: u128, m: u128| match m {
        2 if leap(y) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let exists = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=length(year, month)).contains(&day)
        && hour <= 23
        && minute <= 59
        && second <= 59;
    if !exists {
        return None;
    }
    // An order is enough: months of 31 days keep it.
    let days = (year * 12 + month) * 31 + day;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000_000 + fraction)
}

/// How many bytes canonical padded base64 holds.
pub(super) fn decoded_length(text: &str) -> Option<usize> {
    const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let data = text.trim_end_matches('=');
    let padding = text.len() - data.len();
    let fits = text.len().is_multiple_of(4)
        && padding <= 2
        && data.bytes().all(|b| ALPHABET.as_bytes().contains(&b));
    if !fits || (padding > 0 && data.len() % 4 != 4 - padding) {
        return None;
    }
    let last = data
        .chars()
        .last()
        .and_then(|c| ALPHABET.find(c))
        .unwrap_or_default();
    let unused = match padding {
        0 => 0,
        1 => last & 0b11,
        _ => last & 0b1111,
    };
    (unused == 0).then_some(data.len() * 3 / 4)
}

/// Labels of letters, digits and inner hyphens, 1 to 63 bytes each, 253 together with their dots.
pub(super) fn is_host_name(text: &str) -> bool {
    let label = |label: &str| {
        let bytes = label.as_bytes();
        let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
        label.len() <= 63
            && edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

pub(super) fn is_link_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else {
        return false;
    };
    let Some((authority, path)) = rest.split_once('/') else {
        return false;
    };
    let (host, port) = match authority.rfind(']') {
        Some(end) => authority.split_at(end + 1),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let host_fits = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            (1..=253).contains(&host.len()) && of(host, |c| c.is_ascii_alphanumeric() || "._-".contains(c))
        }
    };
    let port_fits = match port.strip_prefix(':') {
        Some(digits) => {
            !digits.is_empty() && of(digits, |c| c.is_ascii_digit()) && matches!(digits.parse(), Ok(1u16..))
        }
        None => port.is_empty(),
    };
    matches!(scheme, "ws" | "wss") && path == "api/v1/sandbox-link" && host_fits && port_fits
}
