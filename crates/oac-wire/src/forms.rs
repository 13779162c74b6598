//! Forms of strings beyond the types of protocol.md section 2.

use crate::{limits, shape::Bound};

fn class(text: &str, least: usize, most: usize, allowed: fn(u8) -> bool) -> bool {
    (least..=most).contains(&text.len()) && text.bytes().all(allowed)
}

fn is_word_byte(b: u8) -> bool {
    b.is_ascii_lowercase() || b == b'_'
}

fn is_token_byte(b: u8) -> bool {
    is_word_byte(b) || b.is_ascii_digit()
}

pub(crate) const STATE: Bound = Bound::Form("[a-z_]{1,32}", |t| class(t, 1, 32, is_word_byte));
pub(crate) const ERROR_CODE: Bound = Bound::Form("[a-z_]{1,64}", |t| class(t, 1, 64, is_word_byte));
pub(crate) const REASON: Bound = Bound::Form("[a-z0-9_]{1,64}", |t| class(t, 1, 64, is_token_byte));
pub(crate) const TOKEN: Bound = Bound::Form("[a-z0-9_]{0,64}", |t| {
    class(t, 0, limits::TOKEN_BYTES, is_token_byte)
});

pub(crate) const TEXT_128: Bound =
    Bound::Form("1..128 bytes without control characters", |t| is_text(t, 128));
pub(crate) const TEXT_256: Bound =
    Bound::Form("1..256 bytes without control characters", |t| is_text(t, 256));

/// `text(n)`: 1..n bytes without control characters.
fn is_text(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && !text.chars().any(char::is_control)
}

pub(crate) const CREDENTIAL: Bound = Bound::Form("1..4096 bytes without whitespace or NUL", |t| {
    (1..=limits::CREDENTIAL_BYTES).contains(&t.len()) && !t.chars().any(|c| c.is_whitespace() || c == '\0')
});

pub(crate) const DIRECTORY: Bound = Bound::Form("an absolute path without NUL, or empty", |t| {
    t.is_empty() || (t.starts_with('/') && !t.contains('\0'))
});

pub(crate) const CLEAN_PATH: Bound = Bound::Form("a clean absolute path", |t| {
    let clean = |rest: &str| rest.split('/').all(|s| !matches!(s, "" | "." | ".."));
    t == "/" || (t.strip_prefix('/').is_some_and(clean) && !t.chars().any(char::is_control))
});

pub(crate) const LINK_URL: Bound = Bound::Form(
    "ws:// or wss://, a host, an optional port, /api/v1/sandbox-link, and nothing else",
    is_link_url,
);

fn is_link_url(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("wss://").or_else(|| url.strip_prefix("ws://")) else {
        return false;
    };
    let Some(authority) = rest.strip_suffix("/api/v1/sandbox-link") else {
        return false;
    };
    if let Some(v6) = authority.strip_prefix('[') {
        let Some((address, port)) = v6.split_once(']') else {
            return false;
        };
        let port_fits = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return port_fits && address.parse::<core::net::Ipv6Addr>().is_ok();
    }
    let (host, port) = authority
        .split_once(':')
        .map_or((authority, None), |(h, p)| (h, Some(p)));
    let is_host_byte = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    class(host, 1, 253, is_host_byte) && port.is_none_or(is_port)
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>()
        .is_ok_and(|p| p > 0 && text.bytes().all(|b| b.is_ascii_digit()))
}
