//! Whether a request was made to this machine by a name that only means this machine.

use hyper::{Request, header};

/// Every Host header and the target's authority, if there is one, name localhost, 127.0.0.1 or [::1].
pub(super) fn is_own<B>(request: &Request<B>) -> bool {
    let mut hosts = request.headers().get_all(header::HOST).iter().peekable();
    let target = request.uri().authority().map(|a| a.as_str());
    hosts.peek().is_some()
        && hosts.all(|host| host.to_str().is_ok_and(is_loopback))
        && target.is_none_or(is_loopback)
}

fn is_loopback(authority: &str) -> bool {
    let (host, rest) = match authority.find(']') {
        Some(end) => authority.split_at(end + 1),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    (host.eq_ignore_ascii_case("localhost") || host == "127.0.0.1" || host == "[::1]")
        && (rest.is_empty() || is_port(rest))
}

/// `:` and digits.
fn is_port(text: &str) -> bool {
    text.strip_prefix(':')
        .is_some_and(|port| port.parse::<u16>().is_ok() && port.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(host: Option<&str>, target: &str) -> bool {
        let mut request = Request::get(target);
        if let Some(host) = host {
            request = request.header(header::HOST, host);
        }
        is_own(&request.body(()).unwrap())
    }

    #[test]
    fn only_names_of_this_machine_are_its_own() {
        for host in [
            "localhost",
            "LocalHost:80",
            "127.0.0.1",
            "127.0.0.1:65535",
            "[::1]",
            "[::1]:8080",
        ] {
            assert!(own(Some(host), "/"), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.nip.io:80",
            "localhost:80@evil.example",
            "localhost:",
            "localhost:+80",
            "127.0.0.2",
            "[::1].evil",
            "[::2]",
            "",
        ] {
            assert!(!own(Some(host), "/"), "{host}");
        }
        assert!(!own(None, "/"));
        assert!(!own(Some("localhost"), "http://evil.example/"));
        assert!(own(Some("localhost"), "http://localhost:8080/"));
    }
}
