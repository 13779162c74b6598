//! What the two heads lose and gain on their way.
//!
//! A header that speaks of one connection (RFC 9110 section 7.6.1) stays on it, and so does each that `Connection` names.
//! Everything that says who asked, and through where, is Core's word alone: whatever of it a client sent is dropped, or
//! an application behind the port would believe anyone.

use std::{net::IpAddr, num::NonZeroU16};

use http::{HeaderMap, HeaderName, HeaderValue, Uri, Version, header, request, response, uri::PathAndQuery};

use crate::http::ApiError;

/// What the sandbox is told about the request's way.
pub(super) struct Forwarded {
    /// Who connected to Core: a proxy before it, if there is one.
    pub peer: IpAddr,
    /// Core's public host and port, or without one what the client called it.
    pub host: Option<HeaderValue>,
    pub https: bool,
    /// What was taken off the path.
    pub prefix: String,
    pub port: NonZeroU16,
}

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Of one connection. `Trailer` is none: it announces what the body carries.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The path behind the port with the query; no path is `/`.
pub(super) fn path_and_query(rest: &str, query: Option<&str>) -> Result<PathAndQuery, ApiError> {
    let path = if rest.is_empty() { "/" } else { rest };
    let text = match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    text.parse()
        .map_err(|_| ApiError::invalid_request("The path behind the port is not one: correct it."))
}

/// Host and port of an origin.
pub(super) fn host_of(origin: &str) -> Option<HeaderValue> {
    let (_, host) = origin.split_once("://")?;
    HeaderValue::from_str(host).ok()
}

/// Whether the client offers to go on with another protocol.
pub(super) fn asks_for_upgrade(version: Version, headers: &HeaderMap) -> bool {
    version == Version::HTTP_11
        && headers.contains_key(header::UPGRADE)
        && tokens(headers, &header::CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"))
}

/// The comma-separated words of every header of that name.
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .filter(|token| !token.is_empty())
}

fn drop_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = tokens(headers, &header::CONNECTION)
        .filter_map(|token| token.parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Whether a header claims who asked, or through where.
fn says_who_asked(name: &HeaderName) -> bool {
    name.as_str().starts_with("x-forwarded-") || matches!(name.as_str(), "forwarded" | "x-real-ip")
}

pub(super) fn rewrite_request(parts: &mut request::Parts, path: PathAndQuery, forwarded: &Forwarded) {
    let trailers = tokens(&parts.headers, &header::TE).any(|token| token.eq_ignore_ascii_case("trailers"));
    let upgrades = if asks_for_upgrade(parts.version, &parts.headers) {
        parts.headers.get_all(header::UPGRADE).iter().cloned().collect()
    } else {
        Vec::new()
    };
    parts.uri = Uri::from(path);
    parts.version = Version::HTTP_11;
    let headers = &mut parts.headers;
    drop_hop_by_hop(headers);
    headers.remove(header::AUTHORIZATION);
    // Core asked the client for the body itself.
    headers.remove(header::EXPECT);
    // Written anew from the body as it was parsed.
    headers.remove(header::CONTENT_LENGTH);
    let claims: Vec<HeaderName> = headers
        .keys()
        .filter(|name| says_who_asked(name))
        .cloned()
        .collect();
    for name in claims {
        headers.remove(name);
    }
    if upgrades.is_empty() {
        // One request for each connection.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    } else {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        for protocol in upgrades {
            headers.append(header::UPGRADE, protocol);
        }
    }
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    let mut set = |name: &'static str, text: &str| {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    set("host", &format!("localhost:{}", forwarded.port));
    set("x-forwarded-for", &forwarded.peer.to_string());
    set(
        "x-forwarded-proto",
        if forwarded.https { "https" } else { "http" },
    );
    set("x-forwarded-prefix", &forwarded.prefix);
    if let Some(host) = &forwarded.host {
        headers.insert(HeaderName::from_static("x-forwarded-host"), host.clone());
    }
}

pub(super) fn rewrite_answer(parts: &mut response::Parts, answers_head: bool) {
    // In an answer to HEAD the length is all that tells of the body. With a body it is written anew, as it was parsed.
    if !answers_head || parts.headers.contains_key(header::TRANSFER_ENCODING) {
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    drop_hop_by_hop(&mut parts.headers);
    drop_foreign_cookies(&mut parts.headers);
    parts.version = Version::HTTP_11;
}

/// The head of an answer 101: what it names stays.
pub(super) fn rewrite_switch(parts: &mut response::Parts) {
    let protocols: Vec<HeaderValue> = parts.headers.get_all(header::UPGRADE).iter().cloned().collect();
    parts.headers.remove(header::CONTENT_LENGTH);
    drop_hop_by_hop(&mut parts.headers);
    drop_foreign_cookies(&mut parts.headers);
    parts
        .headers
        .insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    for protocol in protocols {
        parts.headers.append(header::UPGRADE, protocol);
    }
    parts.version = Version::HTTP_11;
}

/// A cookie for a whole domain would reach other hosts than Core's.
fn drop_foreign_cookies(headers: &mut HeaderMap) {
    let header::Entry::Occupied(cookies) = headers.entry(header::SET_COOKIE) else {
        return;
    };
    let (_, all) = cookies.remove_entry_mult();
    let kept: Vec<HeaderValue> = all.filter(|cookie| !names_domain(cookie.as_bytes())).collect();
    for cookie in kept {
        headers.append(header::SET_COOKIE, cookie);
    }
}

/// As browsers read attributes (RFC 6265 section 5.2): after the first semicolon, names without case.
fn names_domain(cookie: &[u8]) -> bool {
    cookie.split(|b| *b == b';').skip(1).any(|attribute| {
        let name = attribute.split(|b| *b == b'=').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"domain")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded() -> Forwarded {
        Forwarded {
            peer: IpAddr::from([192, 0, 2, 7]),
            host: host_of("https://core.example:8443"),
            https: true,
            prefix: "/v1/sessions/s/ports/3000".to_owned(),
            port: NonZeroU16::new(3000).unwrap(),
        }
    }

    fn sent(headers: &[(&str, &str)]) -> request::Parts {
        let mut request = request::Request::post("http://elsewhere/v1/sessions/s/ports/3000/a%2Fb?c=%20d&&");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        let path = path_and_query("/a%2Fb", parts.uri.query()).unwrap();
        rewrite_request(&mut parts, path, &forwarded());
        parts
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    const ALWAYS: [&str; 6] = [
        "connection",
        "host",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-prefix",
        "x-forwarded-proto",
    ];

    #[test]
    fn the_sandbox_gets_no_credential_no_connection_header_and_no_claim_of_the_client() {
        let parts = sent(&[
            ("authorization", "Bearer oac_key_secret"),
            ("host", "core.example"),
            ("connection", "close, X-Private"),
            ("connection", "keep-alive, x-forwarded-for"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic eA=="),
            ("te", "gzip"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
            ("upgrade", "websocket"),
            ("expect", "100-continue"),
            ("forwarded", "for=10.0.0.1"),
            ("x-real-ip", "10.0.0.1"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-host", "evil"),
            ("x-forwarded-proto", "gopher"),
            ("x-forwarded-prefix", "/evil"),
            ("x-forwarded-port", "1"),
            ("x-forwarded-server", "evil"),
        ]);
        assert_eq!(names(&parts.headers), ALWAYS);
        for (name, value) in [
            ("connection", "close"),
            ("host", "localhost:3000"),
            ("x-forwarded-for", "192.0.2.7"),
            ("x-forwarded-host", "core.example:8443"),
            ("x-forwarded-prefix", "/v1/sessions/s/ports/3000"),
            ("x-forwarded-proto", "https"),
        ] {
            assert_eq!(parts.headers.get_all(name).iter().collect::<Vec<_>>(), [value]);
        }
        assert_eq!(parts.uri, "/a%2Fb?c=%20d&&");
    }

    #[test]
    fn everything_else_and_an_upgrade_pass() {
        let parts = sent(&[
            ("cookie", "a=1"),
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("te", "trailers, deflate"),
            ("trailer", "x-sum"),
            ("sec-websocket-key", "abc"),
            ("x-many", "1"),
            ("x-many", "2"),
        ]);
        let mut expected = ALWAYS.to_vec();
        expected.extend([
            "cookie",
            "sec-websocket-key",
            "te",
            "trailer",
            "upgrade",
            "x-many",
        ]);
        expected.sort_unstable();
        assert_eq!(names(&parts.headers), expected);
        assert_eq!(parts.headers["connection"], "upgrade");
        assert_eq!(parts.headers["upgrade"], "websocket");
        assert_eq!(parts.headers["te"], "trailers");
        assert_eq!(parts.headers.get_all("x-many").iter().count(), 2);
    }

    fn answered(status: u16, is_head: bool, headers: &[(&str, &str)]) -> HeaderMap {
        let mut response = response::Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        let (mut parts, ()) = response.body(()).unwrap().into_parts();
        rewrite_answer(&mut parts, is_head);
        parts.headers
    }

    #[test]
    fn an_answer_loses_connection_headers_and_cookies_for_a_domain_alone() {
        let headers = answered(
            200,
            false,
            &[
                ("content-type", "text/html"),
                ("connection", "close, x-private"),
                ("x-private", "1"),
                ("keep-alive", "timeout=5"),
                ("proxy-authenticate", "Basic"),
                ("transfer-encoding", "chunked"),
                ("upgrade", "h2c"),
                ("trailer", "x-sum"),
                ("set-cookie", "a=1"),
                ("set-cookie", "b=2; Path=/; Domain=example.com"),
                ("set-cookie", "c=3; DOMAIN =example.com"),
                ("set-cookie", "d=4;\tdomain"),
                ("set-cookie", "domain=5; Path=/"),
                ("set-cookie", "e=domain=x; SameSite=Lax"),
            ],
        );
        assert_eq!(names(&headers), ["content-type", "set-cookie", "trailer"]);
        let cookies: Vec<_> = headers.get_all("set-cookie").iter().collect();
        assert_eq!(cookies, ["a=1", "domain=5; Path=/", "e=domain=x; SameSite=Lax"]);
    }

    #[test]
    fn a_stated_length_passes_only_in_the_one_framing_of_an_answer_to_head() {
        let length = [("content-length", "42")];
        let both = [("content-length", "42"), ("transfer-encoding", "chunked")];
        assert!(answered(200, true, &length).contains_key("content-length"));
        assert!(!answered(200, false, &length).contains_key("content-length"));
        for is_head in [false, true] {
            assert!(names(&answered(200, is_head, &both)).is_empty());
        }
    }

    #[test]
    fn a_path_behind_the_port_stays_as_it_is() {
        for (rest, query, whole) in [
            ("", None, "/"),
            ("", Some("a"), "/?a"),
            ("/", Some(""), "/?"),
            ("//x/../y/./", None, "//x/../y/./"),
            ("/%2e%2e/%zz", Some("q=?/%"), "/%2e%2e/%zz?q=?/%"),
        ] {
            assert_eq!(path_and_query(rest, query).unwrap().as_str(), whole);
            let uri = Uri::from(path_and_query(rest, query).unwrap());
            assert_eq!(uri.to_string(), whole);
        }
    }
}
