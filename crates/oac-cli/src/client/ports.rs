//! Ports of a Session's sandbox (sessions.md section 4).

use oac_model::SessionId;
use reqwest::{Body, Method, Response, Url, header::HeaderMap};

use super::{ANSWER_LIMIT, Client, Key, sessions::path};
use crate::Failure;

/// Core waits a minute for the sandbox, and the sandbox's own answer takes its time.
const LIMIT: std::time::Duration = ANSWER_LIMIT.saturating_mul(10);

/// The request's target would leave the port's own part of Core's address.
#[derive(Debug, thiserror::Error)]
#[error("the path leads out of the port")]
pub struct Outside;

impl Client {
    /// Core's address of `target` (path and query) at `port`. `..` and `.` as segments are refused, in whatever spelling:
    /// they would lead to Core's other routes, with the Project key.
    pub fn port_url(&self, session: SessionId, port: u16, target: &str) -> Result<Url, Outside> {
        let base = format!("{}{}/ports/{port}/", self.url, path(session));
        let url = Url::parse(&format!("{base}{}", target.strip_prefix('/').unwrap_or(target)))
            .map_err(|_| Outside)?;
        let raw = target.split(['?', '#']).next().unwrap_or_default();
        let dots = |segment: &str| {
            let plain = segment.to_ascii_lowercase().replace("%2e", ".");
            plain == "." || plain == ".."
        };
        if raw.split(['/', '\\']).any(dots) || !url.as_str().starts_with(&base) {
            return Err(Outside);
        }
        Ok(url)
    }

    /// Passes a request on. `headers` are the sandbox's; the Project key is added.
    pub async fn to_port(
        &self,
        method: Method,
        url: Url,
        headers: HeaderMap,
        body: Body,
    ) -> Result<Response, Failure> {
        let request = self
            .http
            .request(method, url)
            .headers(headers)
            .header(reqwest::header::AUTHORIZATION, self.bearer(Key::Project)?)
            .body(body);
        self.answer(request, LIMIT).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Entry, Name};

    #[test]
    fn no_spelling_of_a_path_leads_out_of_the_port() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let entry = Entry {
            url: "http://h:1".to_owned(),
            core_key: None,
            project_key: None,
        };
        let client = Client::new(Name::default(), entry).unwrap();
        let session = SessionId::random();
        let url = |target: &str| client.port_url(session, 80, target).map(|u| u.to_string());
        let base = format!("http://h:1/v1/sessions/{session}/ports/80/");
        for (target, rest) in [
            ("/", ""),
            ("/a//b?c=../d", "a//b?c=../d"),
            ("/a%2Fb/..c", "a%2Fb/..c"),
            ("/...", "..."),
        ] {
            assert_eq!(url(target).unwrap(), format!("{base}{rest}"));
        }
        for target in [
            "/..",
            "/../x",
            "/a/../../x",
            "/%2e%2e/x",
            "/.%2E/x",
            "/a/./b",
            "/..\\x",
            "/a\\..\\..\\x",
            "/..?x",
        ] {
            assert!(url(target).is_err(), "{target}");
        }
    }
}
