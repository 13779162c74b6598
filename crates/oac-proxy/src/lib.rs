//! Which HTTP proxy a connection takes, as the environment of an operator says (installer.md section 8, node.md
//! section 1): one reading for everything of oac that dials out, so that what one program reaches the next reaches too.
//!
//! In go the values of `http_proxy`, `https_proxy` and `no_proxy`, in lower case or else in capitals; out come, for a
//! scheme, host and port, the proxy or none. What is used of a proxy is CONNECT. This crate reads no environment, opens
//! no connection and resolves no name; it prints no credential.

mod exclusions;

use std::{ffi::OsString, fmt};

use oac_model::Secret;
use percent_encoding::percent_decode_str;
use url::{Host, Url};

use exclusions::Exclusions;

/// What the six variables say. `all_proxy` is no part of it.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    direct: Exclusions,
}

/// An HTTP proxy. Shows itself as `host:port`; its credentials show nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    host: Host<String>,
    port: u16,
    authorization: Option<Secret>,
}

/// A variable that holds something else than it should. The value, which may hold a password, is not repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    #[error("{name} is not an HTTP proxy URL.")]
    Url { name: String },
    #[error("{name} is not text.")]
    Text { name: String },
}

impl Proxies {
    /// Reads the variables with `get`. Of two spellings the lower-case one wins, even when it is empty; empty means none.
    pub fn from_variables(get: impl Fn(&str) -> Option<OsString>) -> Result<Self, ProxyError> {
        let value = |name: &str| {
            let capitals = name.to_ascii_uppercase();
            let found = get(name).map(|value| (name.to_owned(), value));
            let Some((name, value)) = found.or_else(|| get(&capitals).map(|value| (capitals, value))) else {
                return Ok(None);
            };
            match value.into_string() {
                Ok(value) => Ok(Some((name, value)).filter(|(_, value)| !value.is_empty())),
                Err(_) => Err(ProxyError::Text { name }),
            }
        };
        let proxy = |name: &str| {
            value(name)?
                .map(|(name, value)| Proxy::parse(&value).ok_or(ProxyError::Url { name }))
                .transpose()
        };
        Ok(Self {
            http: proxy("http_proxy")?,
            https: proxy("https_proxy")?,
            direct: value("no_proxy")?
                .map(|(_, list)| Exclusions::parse(&list))
                .unwrap_or_default(),
        })
    }

    /// The proxy to `url`, an http or https one; none when it is reached directly, as loopback always is.
    pub fn to(&self, url: &Url) -> Option<&Proxy> {
        let proxy = match url.scheme() {
            "https" => self.https.as_ref(),
            _ => self.http.as_ref(),
        }?;
        let (host, port) = (url.host()?, url.port_or_known_default()?);
        (!is_loopback(&host) && !self.direct.contain(&host, port)).then_some(proxy)
    }
}

impl Proxy {
    fn parse(text: &str) -> Option<Self> {
        let url = Url::parse(text).ok()?;
        let bare = url.scheme() == "http"
            && text
                .get(..7)
                .is_some_and(|start| start.eq_ignore_ascii_case("http://"))
            && url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none();
        let port = url.port_or_known_default().filter(|port| *port != 0)?;
        if !bare {
            return None;
        }
        Some(Self {
            host: url.host()?.to_owned(),
            port,
            authorization: authorization(&url)?,
        })
    }

    /// The value of `Proxy-Authorization`, if the proxy was given with credentials.
    pub fn authorization(&self) -> Option<&Secret> {
        self.authorization.as_ref()
    }
}

/// `None` for what cannot be sent as Basic credentials.
fn authorization(url: &Url) -> Option<Option<Secret>> {
    if url.username().is_empty() && url.password().is_none() {
        return Some(None);
    }
    let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
    let (user, password) = (
        decoded(url.username()),
        decoded(url.password().unwrap_or_default()),
    );
    // The first colon ends the user.
    if user.contains(&b':')
        || [&user, &password]
            .iter()
            .any(|part| part.iter().any(u8::is_ascii_control))
    {
        return None;
    }
    let pair = base64_simd::STANDARD.encode_to_string([user, password].join(&b':'));
    Some(Some(Secret::new(format!("Basic {pair}"))))
}

fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            name == "localhost" || name.ends_with(".localhost")
        }
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => {
            address.is_loopback()
                || address
                    .to_ipv4_mapped()
                    .is_some_and(|mapped| mapped.is_loopback())
        }
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Result<Proxies, ProxyError> {
        Proxies::from_variables(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).into())
        })
    }

    fn to(proxies: &Proxies, url: &str) -> Option<String> {
        proxies.to(&Url::parse(url).unwrap()).map(ToString::to_string)
    }

    #[test]
    fn each_scheme_has_its_proxy_and_loopback_is_direct_whatever_is_set() {
        let proxies = proxies(&[
            ("http_proxy", "http://plain"),
            ("https_proxy", "http://secure:2/"),
        ])
        .unwrap();
        assert_eq!(to(&proxies, "http://core:1").unwrap(), "plain:80");
        assert_eq!(to(&proxies, "https://core").unwrap(), "secure:2");
        assert_eq!(to(&proxies, "https://[2001:db8::1]").unwrap(), "secure:2");
        for direct in [
            "http://127.0.0.1:1",
            "http://127.8.9.1",
            "https://[::1]",
            "http://[::ffff:127.0.0.1]",
            "http://localhost",
            "https://LOCALHOST.",
            "http://a.localhost",
        ] {
            assert_eq!(to(&proxies, direct), None, "{direct}");
        }
    }

    #[test]
    fn of_two_spellings_the_lower_case_one_wins_even_when_it_is_empty_and_nothing_else_counts() {
        let of = |variables: &[(&str, &str)]| to(&proxies(variables).unwrap(), "https://core");
        assert_eq!(of(&[("HTTPS_PROXY", "http://upper:1")]).unwrap(), "upper:1");
        assert_eq!(
            of(&[
                ("https_proxy", "http://lower:1"),
                ("HTTPS_PROXY", "http://upper:1")
            ])
            .unwrap(),
            "lower:1"
        );
        assert_eq!(
            of(&[("https_proxy", ""), ("HTTPS_PROXY", "http://upper:1")]),
            None
        );
        assert_eq!(
            of(&[("all_proxy", "http://all:1"), ("ALL_PROXY", "http://all:1")]),
            None
        );
        let excluded = |name| of(&[("https_proxy", "http://p"), (name, "core")]);
        assert_eq!((excluded("no_proxy"), excluded("NO_PROXY")), (None, None));
        let kept = [
            ("https_proxy", "http://p"),
            ("no_proxy", ""),
            ("NO_PROXY", "core"),
        ];
        assert_eq!(of(&kept).unwrap(), "p:80");
    }

    #[test]
    fn a_proxy_is_an_http_url_with_host_and_port_alone() {
        for (value, shown) in [
            ("http://proxy", "proxy:80"),
            ("HTTP://proxy:3128/", "proxy:3128"),
            ("http://[fd00::1]:8080", "[fd00::1]:8080"),
            ("http://user:pass@10.0.0.1:3128", "10.0.0.1:3128"),
        ] {
            let read = proxies(&[("https_proxy", value)]).unwrap();
            assert_eq!(to(&read, "https://core").unwrap(), shown);
        }
        for bad in [
            "proxy:3128",
            "https://proxy",
            "socks5://proxy",
            "http:proxy",
            "http://",
            "http://proxy:0",
            "http://proxy:99999",
            "http://proxy/path",
            "http://proxy?query",
            "http://proxy#part",
            "http://us%3Aer:password@proxy",
            "http://user:pass%0aword@proxy",
        ] {
            for name in ["http_proxy", "HTTPS_PROXY"] {
                let refused = proxies(&[(name, bad)]).unwrap_err().to_string();
                assert_eq!(refused, format!("{name} is not an HTTP proxy URL."), "{bad}");
            }
        }
    }

    // inv: INV-P25
    #[test]
    fn credentials_are_decoded_and_shown_nowhere() {
        let read = proxies(&[("https_proxy", "http://us%40er:p%3Ass%25w%C3%B6rd@proxy:1")]).unwrap();
        let proxy = read.to(&Url::parse("https://core").unwrap()).unwrap();
        let authorization = proxy.authorization().unwrap().expose();
        let decoded = base64_simd::STANDARD
            .decode_to_vec(authorization.strip_prefix("Basic ").unwrap())
            .unwrap();
        assert_eq!(String::from_utf8(decoded).unwrap(), "us@er:p:ss%wörd");
        let alone = proxies(&[("https_proxy", "http://user@proxy")]).unwrap();
        let proxy = alone.to(&Url::parse("https://core").unwrap()).unwrap();
        assert_eq!(proxy.authorization().unwrap().expose(), "Basic dXNlcjo=");
        let shown = format!("{read:?} {proxy:?} {proxy} {alone:?}");
        for secret in ["us%40er", "us@er", "p%3Ass", "p:ss", "Basic", "dXNl", "user"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}
