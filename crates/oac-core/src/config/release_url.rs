use std::str::FromStr;

use oac_model::SourceCommit;
use url::Url;

/// Where nodes find the files that Core does not hold: an https address, perhaps with a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseUrl(Url);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "give an https address, such as https://files.example.org/oac, without credentials, query or fragment"
)]
pub struct ReleaseUrlError;

impl FromStr for ReleaseUrl {
    type Err = ReleaseUrlError;

    fn from_str(text: &str) -> Result<Self, ReleaseUrlError> {
        let url = Url::parse(text).map_err(|_| ReleaseUrlError)?;
        let fits = url.scheme() == "https"
            && url.host().is_some()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
            // An empty user or query is no way to write an address either.
            && !text.contains(['@', '?', '#']);
        if fits { Ok(Self(url)) } else { Err(ReleaseUrlError) }
    }
}

impl ReleaseUrl {
    /// Of a file of a release; both names are ones that a manifest gave.
    pub fn to(&self, commit: SourceCommit, filename: &str) -> String {
        format!("{}/{commit}/{filename}", self.0.as_str().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // inv: INV-R9
    #[test]
    fn only_an_https_address_without_secrets_is_one_to_redirect_to() {
        let commit: SourceCommit = "a".repeat(40).parse().unwrap();
        for (text, shown) in [
            ("https://files.example.org", "https://files.example.org"),
            ("https://files.example.org/oac/", "https://files.example.org/oac"),
            (
                "https://files.example.org:8443/a/b",
                "https://files.example.org:8443/a/b",
            ),
        ] {
            let url: ReleaseUrl = text.parse().unwrap();
            assert_eq!(url.to(commit, "x"), format!("{shown}/{commit}/x"));
        }
        for bad in [
            "http://files.example.org",
            "ftp://files.example.org",
            "https://user@files.example.org",
            "https://user:password@files.example.org",
            "https://@files.example.org",
            "https://files.example.org?a=b",
            "https://files.example.org?",
            "https://files.example.org#a",
            "https://",
            "files.example.org",
            "/oac",
            "",
        ] {
            assert!(bad.parse::<ReleaseUrl>().is_err(), "{bad}");
        }
    }
}
