//! The address of a Core or of a place that has releases.

use std::fmt;

use url::Url;

/// Core's address: `http` or `https`, a host, an optional port, and nothing else.
#[derive(Clone, PartialEq, Eq)]
pub struct Origin {
    url: Url,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected an http or https origin, such as https://core.example.org, without path, query or credentials"
)]
pub struct ParseOriginError;

/// What configurations append to the origin.
const API_PATH: &str = "/api/v1";

impl Origin {
    pub fn parse(text: &str) -> Result<Self, ParseOriginError> {
        let url = Url::parse(text).map_err(|_| ParseOriginError)?;
        let canonical = url.origin().ascii_serialization();
        if !matches!(url.scheme(), "http" | "https") || canonical != text {
            return Err(ParseOriginError);
        }
        Ok(Self { url, text: canonical })
    }

    /// The origin of a configuration's `core_url`, which ends in `/api/v1`.
    pub fn of_api_url(text: &str) -> Result<Self, ParseOriginError> {
        Self::parse(text.strip_suffix(API_PATH).ok_or(ParseOriginError)?)
    }

    /// As configurations write it: followed by `/api/v1`.
    pub fn api_url(&self) -> String {
        format!("{}{API_PATH}", self.text)
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// As it is dialed.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// A machine route of this Core; `path` begins after `/api/v1`.
    pub fn route(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        url.set_path(&format!("{API_PATH}{path}"));
        url
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Origin({})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_origin_is_accepted() {
        for good in [
            "https://core.example.org",
            "http://172.17.0.1:8080",
            "http://[::1]:9000",
        ] {
            assert_eq!(Origin::parse(good).unwrap().as_str(), good);
            assert_eq!(
                Origin::of_api_url(&format!("{good}/api/v1")).unwrap().as_str(),
                good
            );
            assert!(Origin::of_api_url(good).is_err());
        }
        let route = Origin::parse("http://[::1]:9000")
            .unwrap()
            .route("/sandbox-node/connect");
        assert_eq!(route.as_str(), "http://[::1]:9000/api/v1/sandbox-node/connect");
        for bad in [
            "https://core.example.org/",
            "https://core.example.org:443",
            "https://user@core.example.org",
            "https://CORE.example.org",
            "https://core.example.org/a",
            "https://core.example.org?a",
            "ws://core.example.org",
            "core.example.org",
            "",
        ] {
            assert!(Origin::parse(bad).is_err(), "{bad}");
        }
    }
}
