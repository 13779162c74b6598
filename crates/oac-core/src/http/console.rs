//! What a request of the console carries instead of a key: the cookie of its session, a header that no other site's page
//! can send unasked, and, from a browser, an origin that is Core's own (console.md section 1, INV-W3).

use axum::http::{HeaderMap, HeaderValue, header};
use oac_model::Secret;

use crate::config::{Config, PublicUrl};

/// The cookie of a console session.
pub const COOKIE: &str = "oac_console";
/// The header without which neither the cookie nor a sign-in is accepted.
pub const HEADER: &str = "x-oac-console";

/// Is this a request of the console that this Core serves? The header is there and the origin, if one is named, is the
/// public address or the address the request was sent to.
pub fn is_own(config: &Config, headers: &HeaderMap) -> bool {
    if single(headers, HEADER) != Some("1") {
        return false;
    }
    if !headers.contains_key(header::ORIGIN) {
        return true;
    }
    let Some(origin) = single(headers, header::ORIGIN.as_str()) else {
        return false;
    };
    let public = config
        .public_url
        .as_ref()
        .is_some_and(|url| url.as_str() == origin);
    public || addressed(config, headers).is_some_and(|own| own.as_str() == origin)
}

/// The origin a request was sent to: the scheme that Core serves, and the request's host and port.
fn addressed(config: &Config, headers: &HeaderMap) -> Option<PublicUrl> {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let host = single(headers, header::HOST.as_str())?;
    format!("{scheme}://{host}").parse().ok()
}

/// The text of the session's cookie; `None` when there is none, or more than one: another site's page may have added one.
pub fn cookie(headers: &HeaderMap) -> Option<Secret> {
    let mut found = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(name, _)| *name == COOKIE)
        .map(|(_, value)| value);
    match (found.next(), found.next()) {
        (Some(value), None) if !value.is_empty() => Some(Secret::new(value)),
        _ => None,
    }
}

/// `Set-Cookie` that begins a session with `token`, or ends it. Without a lifetime of its own it goes with the browser; the
/// session's end is Core's to say. Over https the browser sends it nowhere else.
pub fn set_cookie(config: &Config, headers: &HeaderMap, token: Option<&Secret>) -> Option<HeaderValue> {
    let secure = match single(headers, header::ORIGIN.as_str()) {
        Some(origin) => origin.starts_with("https://"),
        None => config.tls.is_some(),
    };
    let value = token.map_or("", Secret::expose);
    let mut text = format!("{COOKIE}={value}; Path=/core/v1; HttpOnly; SameSite=Strict");
    if token.is_none() {
        text.push_str("; Max-Age=0");
    }
    if secure {
        text.push_str("; Secure");
    }
    let mut header = HeaderValue::from_str(&text).ok()?;
    header.set_sensitive(true);
    Some(header)
}

fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}
