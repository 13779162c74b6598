//! The public address: the origin under which nodes and sandboxes reach Core.

use std::{fmt, str::FromStr};

use url::{Host, Url};

/// The longest name that the domain name system knows.
const HOST_BYTES: usize = 253;

/// An http or https origin and nothing else. Its text has no trailing slash and no default port.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicUrl {
    origin: String,
    secure: bool,
    usable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write an http or https origin such as https://core.example.com, without path, query or user")]
pub struct AddressError;

impl FromStr for PublicUrl {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let url = Url::parse(text).map_err(|_| AddressError)?;
        let secure = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(AddressError),
        };
        let bare = url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none()
            && !text.contains(['@', '?', '#', '\\'])
            && !text.chars().any(|c| c.is_whitespace() || c.is_control());
        // Other characters are in no name of a host, and would mean something to the shell that a command with this
        // address is pasted into.
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-:[]".contains(&b);
        let host = url.host_str().unwrap_or_default();
        if !bare || host.len() > HOST_BYTES || !host.bytes().all(plain) {
            return Err(AddressError);
        }
        let usable = match url.host() {
            Some(Host::Domain(name)) => {
                let name = name.trim_end_matches('.');
                !(name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost"))
            }
            Some(Host::Ipv4(ip)) => !ip.is_loopback() && !ip.is_unspecified(),
            Some(Host::Ipv6(ip)) => {
                let plain = ip.to_ipv4_mapped();
                !ip.is_loopback()
                    && !ip.is_unspecified()
                    && !plain.is_some_and(|v4| v4.is_loopback() || v4.is_unspecified())
            }
            None => return Err(AddressError),
        };
        Ok(Self {
            origin: url.origin().ascii_serialization(),
            secure,
            usable,
        })
    }
}

impl PublicUrl {
    /// The origin, e.g. `https://core.example.com:8443`.
    pub fn as_str(&self) -> &str {
        &self.origin
    }

    /// Can other machines reach it, as far as the address tells: not loopback, `localhost` or unspecified. Plain http
    /// is usable.
    pub fn is_usable(&self) -> bool {
        self.usable
    }

    pub fn is_https(&self) -> bool {
        self.secure
    }

    /// Where a sandbox's runtime links to: `wss` (`ws` for http) and `/api/v1/sandbox-link` (sessions.md section 5).
    pub fn link_url(&self) -> String {
        let rest = self.origin.strip_prefix("http").unwrap_or(&self.origin);
        format!("ws{rest}/api/v1/sandbox-link")
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)
    }
}

impl fmt::Debug for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_http_or_https_origin_is_a_public_address() {
        for (text, origin) in [
            ("https://core.example.com", "https://core.example.com"),
            ("https://core.example.com/", "https://core.example.com"),
            ("https://Core.example.com:443", "https://core.example.com"),
            ("http://10.0.0.1:8080", "http://10.0.0.1:8080"),
            ("http://[2001:db8::1]:8080", "http://[2001:db8::1]:8080"),
        ] {
            assert_eq!(text.parse::<PublicUrl>().unwrap().as_str(), origin);
        }
        for text in [
            "",
            "core.example.com",
            "ftp://core.example.com",
            "https://core.example.com/path",
            "https://core.example.com?",
            "https://core.example.com#",
            "https://user@core.example.com",
            "https://@core.example.com",
            "https://",
            " https://core.example.com",
            "wss://core.example.com",
            "https://core'.example.com",
            "https://$(core).example.com",
            "https://core;.example.com",
            "https://core!.example.com",
            &format!("https://{}", "a".repeat(254)),
        ] {
            assert!(text.parse::<PublicUrl>().is_err(), "{text}");
        }
    }

    #[test]
    fn loopback_localhost_and_unspecified_hosts_are_not_usable() {
        for (text, usable) in [
            ("http://core.example.com", true),
            ("http://172.17.0.1:8080", true),
            ("http://[fd00::1]", true),
            ("http://localhost:8080", false),
            ("http://LOCALHOST.", false),
            ("http://core.localhost", false),
            ("http://127.0.0.1", false),
            ("http://127.8.9.1", false),
            ("http://0.0.0.0", false),
            ("http://[::1]", false),
            ("http://[::]", false),
            ("http://[::ffff:127.0.0.1]", false),
            ("http://0x7f000001", false),
        ] {
            assert_eq!(text.parse::<PublicUrl>().unwrap().is_usable(), usable, "{text}");
        }
    }

    #[test]
    fn the_link_address_derives_from_the_public_address() {
        let link = |text: &str| text.parse::<PublicUrl>().unwrap().link_url();
        assert_eq!(
            link("https://core.example.com"),
            "wss://core.example.com/api/v1/sandbox-link"
        );
        assert_eq!(
            link("http://10.0.0.1:8080"),
            "ws://10.0.0.1:8080/api/v1/sandbox-link"
        );
    }
}
