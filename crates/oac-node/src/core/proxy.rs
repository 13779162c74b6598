//! Which proxy a request takes: the usual variables, the lower-case one winning even when it is empty, and loopback
//! always direct (node.md section 1).

use reqwest::{NoProxy, Proxy};
use url::{Host, Url};

/// A proxy rule that replaces the library's own reading of the environment.
pub(super) fn from_environment() -> Proxy {
    let value = |name: &str| {
        std::env::var(name)
            .or_else(|_| std::env::var(name.to_uppercase()))
            .ok()
            .filter(|value| !value.is_empty())
    };
    let (http, https, all) = (value("http_proxy"), value("https_proxy"), value("all_proxy"));
    let direct = value("no_proxy").and_then(|list| NoProxy::from_string(&list));
    Proxy::custom(move |url| choose(url, http.as_deref(), https.as_deref(), all.as_deref())).no_proxy(direct)
}

fn choose(url: &Url, http: Option<&str>, https: Option<&str>, all: Option<&str>) -> Option<Url> {
    if is_loopback(url) {
        return None;
    }
    let chosen = if url.scheme() == "https" { https } else { http }.or(all)?;
    // `host:port` without a scheme would parse as a scheme of its own.
    let address = if chosen.contains("://") {
        chosen.to_owned()
    } else {
        format!("http://{chosen}")
    };
    Url::parse(&address).ok()
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_direct_and_each_scheme_has_its_proxy() {
        let choose = |url: &str| {
            let url = Url::parse(url).unwrap();
            choose(&url, Some("http://plain:1"), Some("secure:2"), None).map(|u| u.to_string())
        };
        for direct in [
            "http://127.0.0.1:1",
            "https://[::1]",
            "http://localhost",
            "http://a.localhost",
        ] {
            assert_eq!(choose(direct), None, "{direct}");
        }
        assert_eq!(choose("http://core:1").unwrap(), "http://plain:1/");
        assert_eq!(choose("https://core").unwrap(), "http://secure:2/");
    }
}
