//! Where a collector takes spans.

use std::{fmt, str::FromStr};

use http::HeaderValue;
use oac_dial::{Surroundings, Way};
use url::Url;

/// OTLP over HTTP, when the endpoint names no port.
const PORT: u16 = 4318;

/// A collector's origin over plain HTTP. It holds no credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(Url);

/// Text that names no usable collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("give the collector as http://host:port")]
    Form,
    #[error(
        "give http: a collector on this host or network passes spans on by https, and keeps the credential for it"
    )]
    Https,
    #[error("give host and port alone: the path is /v1/traces, and a credential belongs into the collector")]
    More,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let mut url: Url = text.parse().map_err(|_| EndpointError::Form)?;
        match url.scheme() {
            "http" => {}
            "https" => return Err(EndpointError::Https),
            _ => return Err(EndpointError::Form),
        }
        let bare = url.username().is_empty()
            && url.password().is_none()
            && url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none();
        if !bare {
            return Err(EndpointError::More);
        }
        // Port 80 that was written out is gone from the URL.
        let written = text.trim_end_matches('/').ends_with(":80");
        if url.port().is_none() && !written {
            url.set_port(Some(PORT)).map_err(|()| EndpointError::Form)?;
        }
        match way(&url, "") {
            Some(_) => Ok(Self(url)),
            None => Err(EndpointError::Form),
        }
    }
}

impl Endpoint {
    /// The way there for the program `name`: directly, without a proxy.
    pub(super) fn way(&self, name: &'static str) -> Way {
        way(&self.0, name).unwrap_or_else(|| unreachable!("there was one when it was parsed"))
    }
}

fn way(url: &Url, name: &'static str) -> Option<Way> {
    let Surroundings { proxies, roots } = Surroundings::default();
    Way::new(
        url,
        &proxies,
        oac_dial::tls(roots).ok()?,
        HeaderValue::from_static(name),
    )
    .ok()
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_plain_origin_without_a_credential() {
        for (text, shown) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318"),
            ("http://collector", "http://collector:4318"),
            ("http://collector:80", "http://collector"),
            ("http://[::1]:9/", "http://[::1]:9"),
        ] {
            assert_eq!(
                text.parse::<Endpoint>().map(|e| e.to_string()).as_deref(),
                Ok(shown)
            );
        }
        for (text, error) in [
            ("https://collector", EndpointError::Https),
            ("collector:4318", EndpointError::Form),
            ("", EndpointError::Form),
            ("http://a{b}", EndpointError::Form),
            ("grpc://collector", EndpointError::Form),
            ("http://user@collector", EndpointError::More),
            ("http://:secret@collector", EndpointError::More),
            ("http://collector/v1/traces", EndpointError::More),
            ("http://collector/?key=secret", EndpointError::More),
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(error), "{text}");
        }
    }
}
