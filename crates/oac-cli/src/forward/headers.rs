//! Which headers pass, in both directions.

use hyper::{
    StatusCode,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};

/// Headers that speak of one connection alone.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// The protocol that a request asks to change to.
pub(super) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = named(headers).any(|name| name == "upgrade");
    headers.get(header::UPGRADE).filter(|_| asked).cloned()
}

/// The names in `Connection`, in lower case.
fn named(headers: &HeaderMap) -> impl Iterator<Item = String> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
}

fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<String> = named(headers).collect();
    headers
        .iter()
        .filter(|(name, _)| !HOP_BY_HOP.contains(name) && !named.iter().any(|n| n == name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// What of a request goes to Core.
pub(super) fn to_core(headers: &HeaderMap, upgrade: Option<&HeaderValue>) -> HeaderMap {
    let mut passed = end_to_end(headers);
    for own in [header::HOST, header::AUTHORIZATION, header::EXPECT] {
        passed.remove(own);
    }
    if let Some(protocol) = upgrade {
        passed.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        passed.insert(header::UPGRADE, protocol.clone());
    }
    passed
}

/// What of an answer goes back. A redirection to the port's address at Core becomes one to this address.
pub(super) fn from_core(headers: &HeaderMap, core: &str, prefix: &str, status: StatusCode) -> HeaderMap {
    let mut passed = end_to_end(headers);
    if status == StatusCode::SWITCHING_PROTOCOLS {
        for name in [header::CONNECTION, header::UPGRADE] {
            if let Some(value) = headers.get(&name) {
                passed.insert(name, value.clone());
            }
        }
    }
    let here = passed
        .get(header::LOCATION)
        .and_then(|to| to.to_str().ok())
        .map(|to| to.strip_prefix(core).unwrap_or(to))
        .and_then(|to| to.strip_prefix(prefix))
        .filter(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
        .map(|rest| {
            if rest.starts_with('/') {
                rest.to_owned()
            } else {
                format!("/{rest}")
            }
        });
    if let Some(Ok(here)) = here.map(HeaderValue::try_from) {
        passed.insert(header::LOCATION, here);
    }
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        all.iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn what_speaks_of_one_connection_or_of_keys_is_not_passed_on() {
        let asked = headers(&[
            ("host", "localhost"),
            ("authorization", "Basic x"),
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("te", "trailers"),
            ("accept", "*/*"),
            ("cookie", "a=b"),
        ]);
        let passed = to_core(&asked, None);
        assert_eq!(passed, headers(&[("accept", "*/*"), ("cookie", "a=b")]));
        assert_eq!(upgrade(&asked), None);
    }

    #[test]
    fn an_upgrade_is_passed_on_as_one() {
        let asked = headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-key", "k"),
        ]);
        let protocol = upgrade(&asked).unwrap();
        let passed = to_core(&asked, Some(&protocol));
        let expected = [
            ("sec-websocket-key", "k"),
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
        ];
        assert_eq!(passed, headers(&expected));
    }

    #[test]
    fn a_redirection_within_the_port_stays_on_this_machine() {
        for (to, here) in [
            ("/p/login?x", "/login?x"),
            ("http://core/p", "/"),
            ("http://core/p/a", "/a"),
            ("/other", "/other"),
            ("/plain/p", "/plain/p"),
            ("https://elsewhere/p/a", "https://elsewhere/p/a"),
        ] {
            let passed = from_core(
                &headers(&[("location", to)]),
                "http://core",
                "/p",
                StatusCode::FOUND,
            );
            assert_eq!(passed["location"], here, "{to}");
        }
    }
}
