//! `no_proxy`: comma-separated hosts with their subdomains, addresses, networks and `*`, each with or without a port.

use core::net::IpAddr;

use ipnet::IpNet;
use url::Host;

/// What is reached directly. An entry that is none of the forms excludes nothing: other programs read the list too.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exclusions(Vec<Exclusion>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Exclusion {
    hosts: Hosts,
    /// Any, without one.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    All,
    /// In small letters; this host and what ends in it after a dot.
    Domain(String),
    Network(IpNet),
}

impl Exclusions {
    pub(crate) fn parse(list: &str) -> Self {
        Self(
            list.split(',')
                .filter_map(|entry| Exclusion::parse(entry.trim()))
                .collect(),
        )
    }

    pub(crate) fn contain(&self, host: &Host<&str>, port: u16) -> bool {
        self.0
            .iter()
            .any(|exclusion| exclusion.port.is_none_or(|only| only == port) && exclusion.hosts.contain(host))
    }
}

impl Exclusion {
    fn parse(entry: &str) -> Option<Self> {
        // An IPv6 address or network without brackets is full of colons, none of which begins a port.
        if let Some(network) = network(entry) {
            return Some(Self {
                hosts: Hosts::Network(network),
                port: None,
            });
        }
        let (hosts, port) = match entry.rsplit_once(':') {
            Some((hosts, port)) if !port.ends_with(']') && !port.contains('/') => {
                (hosts, Some(port.parse().ok().filter(|port| *port != 0)?))
            }
            _ => (entry, None),
        };
        Some(Self {
            hosts: Hosts::parse(hosts)?,
            port,
        })
    }
}

impl Hosts {
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        if let Some(network) = network(text) {
            return Some(Self::Network(network));
        }
        let name = text.strip_prefix('*').unwrap_or(text);
        let name = name.strip_prefix('.').unwrap_or(name).trim_end_matches('.');
        let is_name = !name.is_empty() && !name.contains(['*', '/', ':', '[', ']', ' ']);
        is_name.then(|| Self::Domain(name.to_ascii_lowercase()))
    }

    fn contain(&self, host: &Host<&str>) -> bool {
        match (self, host) {
            (Self::All, _) => true,
            (Self::Domain(domain), Host::Domain(name)) => {
                let name = name.trim_end_matches('.').to_ascii_lowercase();
                name.strip_suffix(domain.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            (Self::Network(network), Host::Ipv4(address)) => network.contains(&IpAddr::V4(*address)),
            (Self::Network(network), Host::Ipv6(address)) => {
                let address = IpAddr::V6(*address);
                network.contains(&address) || network.contains(&address.to_canonical())
            }
            (Self::Domain(_), _) | (Self::Network(_), Host::Domain(_)) => false,
        }
    }
}

/// An address or a network; that of IPv6 with brackets round its address or without.
fn network(text: &str) -> Option<IpNet> {
    let plain = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, length) = rest.split_once(']')?;
            let whole = address.contains(':') && (length.is_empty() || length.starts_with('/'));
            whole.then(|| format!("{address}{length}"))?
        }
        None => text.to_owned(),
    };
    plain
        .parse::<IpNet>()
        .ok()
        .or_else(|| plain.parse::<IpAddr>().ok().map(IpNet::from))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use url::Url;

    use super::*;

    fn excludes(list: &str, url: &str) -> bool {
        let url = Url::parse(url).unwrap();
        Exclusions::parse(list).contain(&url.host().unwrap(), url.port_or_known_default().unwrap())
    }

    #[test]
    fn every_form_of_an_exclusion_matches_what_it_names_and_nothing_else() {
        let rows: [(&str, &[&str], &[&str]); 15] = [
            ("*", &["http://a", "https://[fd00::1]:9"], &[]),
            ("*:443", &["https://a", "http://a:443"], &["http://a"]),
            (
                "example.org",
                &[
                    "http://example.org",
                    "https://a.b.Example.ORG:8443",
                    "http://example.org.",
                ],
                &[
                    "http://notexample.org",
                    "http://example.org.evil",
                    "http://example.com",
                ],
            ),
            (
                ".example.org",
                &["http://example.org", "http://a.example.org"],
                &["http://notexample.org"],
            ),
            (
                "*.example.org",
                &["http://a.example.org"],
                &["http://notexample.org"],
            ),
            ("Example.org.", &["http://example.org"], &[]),
            (
                "example.org:8443",
                &["https://a.example.org:8443"],
                &["https://example.org", "http://example.org:84"],
            ),
            (
                "10.1.2.3",
                &["http://10.1.2.3:9"],
                &["http://10.1.2.4", "http://a10.1.2.3.x"],
            ),
            ("10.1.2.3:9", &["http://10.1.2.3:9"], &["http://10.1.2.3"]),
            (
                "10.0.0.0/8",
                &["http://10.255.0.1", "http://[::ffff:10.0.0.1]"],
                &["http://11.0.0.1", "http://10.example"],
            ),
            ("10.0.0.0/8:80", &["http://10.0.0.1"], &["https://10.0.0.1"]),
            (
                "fd00::1",
                &["http://[fd00::1]", "http://[fd00:0::1]:9"],
                &["http://[fd00::2]"],
            ),
            ("[fd00::1]:443", &["https://[fd00::1]"], &["http://[fd00::1]"]),
            (
                "fd00::/8",
                &["http://[fdff::1]"],
                &["http://[fe00::1]", "http://10.0.0.1"],
            ),
            ("[fd00::]/8:443", &["https://[fd12::]"], &["http://[fd12::]"]),
        ];
        for (list, direct, proxied) in rows {
            for url in direct {
                assert!(excludes(list, url), "{list} {url}");
                assert!(
                    excludes(&format!("other, {list} ,"), url),
                    "{list} among others, {url}"
                );
            }
            for url in proxied {
                assert!(!excludes(list, url), "{list} {url}");
            }
        }
    }

    #[test]
    fn an_entry_of_no_known_form_excludes_nothing() {
        for list in [
            "",
            ",",
            ".",
            "*.",
            "a*b",
            "10.0.0.0/33",
            "[::1",
            "[]",
            "[a]",
            "a:0",
            "a:b",
            ":80",
            "<local>:x",
        ] {
            for url in ["http://a", "http://10.0.0.1", "http://[fd00::1]", "http://b"] {
                assert!(!excludes(list, url), "{list} {url}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_list_is_read_and_a_name_in_it_is_always_found(list in ".{0,60}", name in "[a-z]{1,8}(\\.[a-z]{1,8}){0,2}") {
            let (list, url) = (format!("{list},{name}"), format!("http://sub.{name}"));
            prop_assert!(excludes(&list, &url));
        }
    }
}
