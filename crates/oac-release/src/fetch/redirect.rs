//! Where a redirect may lead: to https, and without credentials. Pure.

use http::HeaderValue;
use url::Url;

pub(super) fn follow(from: &Url, location: Option<&HeaderValue>) -> Result<Url, &'static str> {
    let location = location.ok_or("leads nowhere")?;
    let text = location.to_str().map_err(|_| "is no URL")?;
    let mut url = from.join(text).map_err(|_| "is no URL")?;
    url.set_fragment(None);
    if url.scheme() != "https" {
        return Err("does not lead to https");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("carries credentials");
    }
    if url.host().is_none() {
        return Err("leads nowhere");
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_leads_to_https_alone_and_without_credentials() {
        let from = |from: &str, location: &str| {
            follow(
                &Url::parse(from).unwrap(),
                Some(&HeaderValue::from_str(location).unwrap()),
            )
            .map(String::from)
        };
        let console = "http://console.test/api/v1/x";
        assert_eq!(
            from(console, "https://mirror.test/a?signed=1#part").unwrap(),
            "https://mirror.test/a?signed=1"
        );
        assert_eq!(from("https://a.test/x/y", "z").unwrap(), "https://a.test/x/z");
        assert_eq!(
            from("https://a.test/x", "//b.test/z").unwrap(),
            "https://b.test/z"
        );
        for bad in [
            "http://mirror.test/a",
            "HTTP://mirror.test/a",
            "/a",
            "//mirror.test/a",
            "ftp://mirror.test/a",
            "file:///etc/passwd",
            "data:,x",
            "https://user@mirror.test/a",
            "https://user:password@mirror.test/a",
            "https://:password@mirror.test/a",
            "https://",
            "https://mirror.test:99999/",
        ] {
            assert!(from(console, bad).is_err(), "{bad}");
        }
        assert!(from("https://a.test/", "http://a.test/").is_err());
        assert!(follow(&Url::parse(console).unwrap(), None).is_err());
    }
}
