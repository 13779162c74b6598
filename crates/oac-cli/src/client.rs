//! Core's HTTP API for commands, one module for each kind of resource; failures carry Core's own words.
//!
//! An answer is kept twice: as the document Core sent, which `--json` prints, and as the members a command needs.

pub mod allocations;
pub mod audit;
pub mod deployment;
pub mod files;
pub mod nodes;
pub mod ports;
pub mod projects;
pub mod sessions;
pub mod turns;

use std::time::Duration;

use oac_model::Secret;
use oac_proxy::Proxies;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, RequestBuilder, Response, Url, header};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    Failure,
    config::{Entry, Name},
};

/// Waiting for the head of an answer; streams have no limit after it.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Waiting for the connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// What stands in a query as it is.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'/');

/// A client of one Core.
pub struct Client {
    http: reqwest::Client,
    context: Name,
    url: String,
    core_key: Option<Secret>,
    project_key: Option<Secret>,
}

/// Which of the configured keys a route takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// `/core/v1`: operators.
    Core,
    /// `/v1`: applications.
    Project,
}

/// An answer: as Core sent it, and what of it a command reads.
#[derive(Debug, Clone)]
pub struct Document<T> {
    pub json: Value,
    pub value: T,
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

/// `text` for a query's value.
pub fn query(text: &str) -> String {
    utf8_percent_encode(text, QUERY).to_string()
}

fn tunnel(proxy: &oac_proxy::Proxy) -> Result<reqwest::Proxy, reqwest::Error> {
    let tunnel = reqwest::Proxy::all(format!("http://{proxy}"))?;
    let authorization = proxy.authorization();
    let Some(mut value) = authorization.and_then(|text| header::HeaderValue::from_str(text.expose()).ok())
    else {
        return Ok(tunnel);
    };
    value.set_sensitive(true);
    Ok(tunnel.custom_http_auth(value))
}

impl Client {
    pub fn new(context: Name, entry: Entry) -> Result<Self, Failure> {
        let mut http = reqwest::Client::builder()
            .connect_timeout(CONNECT_LIMIT)
            .tcp_keepalive(Duration::from_secs(15))
            .redirect(reqwest::redirect::Policy::none())
            .http1_only()
            .user_agent(concat!("oac/", env!("CARGO_PKG_VERSION")));
        // Of an address with http a proxy would be shown the key.
        let proxies = match entry.url.starts_with("http:") {
            true => Proxies::default(),
            false => Proxies::from_variables(|name| std::env::var_os(name))?,
        };
        let proxy = Url::parse(&entry.url).ok();
        http = match proxy.as_ref().and_then(|url| proxies.to(url)) {
            None => http.no_proxy(),
            Some(proxy) => http.proxy(tunnel(proxy).map_err(|source| Failure::Unreachable {
                url: entry.url.clone(),
                source,
            })?),
        };
        let http = http.build().map_err(|source| Failure::Unreachable {
            url: entry.url.clone(),
            source,
        })?;
        Ok(Self {
            http,
            context,
            url: entry.url,
            core_key: entry.core_key,
            project_key: entry.project_key,
        })
    }

    /// Core's address.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn bearer(&self, key: Key) -> Result<header::HeaderValue, Failure> {
        let (name, key) = match key {
            Key::Core => ("core_key", &self.core_key),
            Key::Project => ("project_key", &self.project_key),
        };
        let key = key.as_ref().ok_or_else(|| Failure::NoKey {
            key: name,
            context: self.context.clone(),
        })?;
        let mut bearer = header::HeaderValue::try_from(format!("Bearer {}", key.expose())).map_err(|_| {
            Failure::BadKey {
                key: name,
                context: self.context.clone(),
            }
        })?;
        bearer.set_sensitive(true);
        Ok(bearer)
    }

    pub fn request(&self, method: Method, key: Key, path: &str) -> Result<RequestBuilder, Failure> {
        Ok(self
            .http
            .request(method, format!("{}{path}", self.url))
            .header(header::AUTHORIZATION, self.bearer(key)?))
    }

    /// The head of the answer, whatever it is.
    pub async fn answer(&self, request: RequestBuilder, limit: Duration) -> Result<Response, Failure> {
        match tokio::time::timeout(limit, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(source)) => Err(self.unreachable(source)),
            Err(_) => Err(Failure::NoAnswer {
                url: self.url.clone(),
                seconds: limit.as_secs(),
            }),
        }
    }

    /// The answer, if it is a success.
    pub async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        self.send_within(request, ANSWER_LIMIT).await
    }

    pub async fn send_within(&self, request: RequestBuilder, limit: Duration) -> Result<Response, Failure> {
        let response = self.answer(request, limit).await?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(self.refusal(response).await)
        }
    }

    /// Core's words in an answer that is no success.
    pub async fn refusal(&self, response: Response) -> Failure {
        let status = response.status().as_u16();
        let retry_after = response
            .headers()
            .get(header::RETRY_AFTER)
            .and_then(|v| v.to_str().ok()?.parse().ok())
            .map(Duration::from_secs);
        match tokio::time::timeout(ANSWER_LIMIT, response.json::<Envelope>()).await {
            Ok(Ok(Envelope { error })) => Failure::Refused {
                status,
                code: error.code,
                message: error.message,
                retry_after,
            },
            _ => self.not_core(status),
        }
    }

    pub fn not_core(&self, status: u16) -> Failure {
        Failure::NotCore {
            url: self.url.clone(),
            status,
        }
    }

    pub fn unreachable(&self, source: reqwest::Error) -> Failure {
        Failure::Unreachable {
            url: self.url.clone(),
            source: source.without_url(),
        }
    }

    pub async fn document<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
    ) -> Result<Document<T>, Failure> {
        self.document_within(request, ANSWER_LIMIT).await
    }

    pub async fn document_within<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        limit: Duration,
    ) -> Result<Document<T>, Failure> {
        let response = self.send_within(request, limit).await?;
        let status = response.status().as_u16();
        let body = match tokio::time::timeout(ANSWER_LIMIT, response.bytes()).await {
            Ok(Ok(body)) => body,
            Ok(Err(source)) => return Err(self.unreachable(source)),
            Err(_) => {
                return Err(Failure::NoAnswer {
                    url: self.url.clone(),
                    seconds: ANSWER_LIMIT.as_secs(),
                });
            }
        };
        let json: Value = serde_json::from_slice(&body).map_err(|_| self.not_core(status))?;
        Ok(Document {
            value: T::deserialize(&json).map_err(|_| self.not_core(status))?,
            json,
        })
    }

    pub async fn get<T: DeserializeOwned>(&self, key: Key, path: &str) -> Result<Document<T>, Failure> {
        self.document(self.request(Method::GET, key, path)?).await
    }

    pub async fn post<T: DeserializeOwned>(
        &self,
        key: Key,
        path: &str,
        body: &Value,
    ) -> Result<Document<T>, Failure> {
        self.document(self.request(Method::POST, key, path)?.json(body))
            .await
    }

    pub async fn put<T: DeserializeOwned>(
        &self,
        key: Key,
        path: &str,
        body: &Value,
    ) -> Result<Document<T>, Failure> {
        self.document(self.request(Method::PUT, key, path)?.json(body))
            .await
    }

    /// Whether Core accepts the key; nothing else of the answer matters.
    pub async fn check_key(&self, key: Key) -> Result<(), Failure> {
        let path = match key {
            Key::Core => "/core/v1/sandbox/deployment",
            Key::Project => "/v1/sessions?limit=1",
        };
        self.send(self.request(Method::GET, key, path)?).await.map(drop)
    }

    /// A DELETE whose answer has no body.
    pub async fn remove(&self, key: Key, path: &str) -> Result<(), Failure> {
        self.send(self.request(Method::DELETE, key, path)?)
            .await
            .map(drop)
    }

    /// Every item of a paged list, `next` followed to its end.
    pub async fn list<T: DeserializeOwned>(&self, key: Key, path: &str) -> Result<Vec<Document<T>>, Failure> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let mut items = Vec::new();
        let mut next = path.to_owned();
        loop {
            let page: Document<Page> = self.get(key, &next).await?;
            for json in page.value.data {
                items.push(Document {
                    value: T::deserialize(&json).map_err(|_| self.not_core(200))?,
                    json,
                });
            }
            match page.value.next {
                Some(cursor) => next = format!("{path}{separator}cursor={}", query(&cursor)),
                None => return Ok(items),
            }
        }
    }
}

#[derive(Deserialize)]
struct Page {
    data: Vec<Value>,
    next: Option<String>,
}
