//! Core's HTTP API for commands: one method per request, failures with Core's own words.

use std::time::Duration;

use oac_model::Secret;
use reqwest::{Method, RequestBuilder, Response, header};
use serde::Deserialize;
use serde_json::Value;

use crate::{Failure, config::Config};

/// Waiting for the head of an answer; streams have no limit after it.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A client of one Core.
pub struct Client {
    http: reqwest::Client,
    config: Config,
}

/// Which of the configured keys a route takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// `/core/v1`: operators.
    Core,
    /// `/v1`: applications.
    Project,
}

#[derive(Deserialize)]
struct Envelope {
    error: EnvelopeError,
}

#[derive(Deserialize)]
struct EnvelopeError {
    message: String,
    code: Option<String>,
}

impl Client {
    pub fn new(config: Config) -> Result<Self, Failure> {
        let http = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("oac/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|source| Failure::Unreachable {
                url: config.url.clone(),
                source,
            })?;
        Ok(Self { http, config })
    }

    fn key(&self, key: Key) -> Result<&Secret, Failure> {
        match key {
            Key::Core => self.config.core_key.as_ref().ok_or(Failure::NoKey("core_key")),
            Key::Project => self
                .config
                .project_key
                .as_ref()
                .ok_or(Failure::NoKey("project_key")),
        }
    }

    fn request(&self, method: Method, key: Key, path: &str) -> Result<RequestBuilder, Failure> {
        let bearer = format!("Bearer {}", self.key(key)?.expose());
        let mut bearer = header::HeaderValue::try_from(bearer)
            .map_err(|_| Failure::Usage("the configured key holds characters no key has".to_owned()))?;
        bearer.set_sensitive(true);
        Ok(self
            .http
            .request(method, format!("{}{path}", self.config.url))
            .header(header::AUTHORIZATION, bearer))
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let url = self.config.url.clone();
        let response = match tokio::time::timeout(ANSWER_LIMIT, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(source)) => {
                return Err(Failure::Unreachable {
                    url,
                    source: source.without_url(),
                });
            }
            Err(_) => {
                let message =
                    format!("Core at {url} did not answer within 60 s: check its log and try again");
                return Err(Failure::Refused {
                    status: 0,
                    code: None,
                    message,
                });
            }
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        match response.json::<Envelope>().await {
            Ok(Envelope { error }) => Err(Failure::Refused {
                status: status.as_u16(),
                code: error.code,
                message: error.message,
            }),
            Err(_) => Err(Failure::NotCore { url }),
        }
    }

    async fn document(&self, request: RequestBuilder) -> Result<Value, Failure> {
        let response = self.send(request).await?;
        if response.status() == 204 {
            return Ok(Value::Null);
        }
        response.json().await.map_err(|_| Failure::NotCore {
            url: self.config.url.clone(),
        })
    }

    pub async fn get(&self, key: Key, path: &str) -> Result<Value, Failure> {
        self.document(self.request(Method::GET, key, path)?).await
    }

    pub async fn delete(&self, key: Key, path: &str) -> Result<Value, Failure> {
        self.document(self.request(Method::DELETE, key, path)?).await
    }

    pub async fn post(&self, key: Key, path: &str, body: &Value) -> Result<Value, Failure> {
        self.document(self.request(Method::POST, key, path)?.json(body))
            .await
    }

    pub async fn put(&self, key: Key, path: &str, body: &Value) -> Result<Value, Failure> {
        self.document(self.request(Method::PUT, key, path)?.json(body))
            .await
    }

    /// Every item of a paged list, `next` followed to its end.
    pub async fn list(&self, key: Key, path: &str) -> Result<Vec<Value>, Failure> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let separator = if path.contains('?') { '&' } else { '?' };
            let page = match &cursor {
                None => self.get(key, path).await?,
                Some(cursor) => {
                    self.get(key, &format!("{path}{separator}cursor={cursor}"))
                        .await?
                }
            };
            items.extend(
                page.get("data")
                    .and_then(Value::as_array)
                    .cloned()
                    .unwrap_or_default(),
            );
            match page.get("next").and_then(Value::as_str) {
                Some(next) => cursor = Some(next.to_owned()),
                None => return Ok(items),
            }
        }
    }

    /// An event stream; the body goes on until Core or the caller ends it.
    pub async fn events(&self, key: Key, path: &str) -> Result<Response, Failure> {
        self.send(
            self.request(Method::GET, key, path)?
                .header(header::ACCEPT, "text/event-stream"),
        )
        .await
    }
}
