use std::{io, pin::Pin, sync::Arc, vec};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hickory_resolver::{TokioResolver, net::NetError};
use http::{
    HeaderValue, Method, Request, StatusCode, Uri,
    header::{HOST, PROXY_AUTHORIZATION, USER_AGENT},
    request, response,
};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{body::Incoming, client::conn::http1, upgrade::Upgraded};
use hyper_util::{
    client::legacy::connect::{HttpConnector, dns::Name},
    rt::TokioIo,
};
use oac_proxy::{Proxies, Proxy};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tower::Service;
use url::Url;

/// The head of an answer, a server's or a proxy's.
const HEAD_BYTES: usize = 32 * 1024;
/// What is read ahead of an answer that is taken as it arrives.
const AHEAD_BYTES: usize = 256 * 1024;

/// A connection that gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    #[error("{peer} cannot be reached")]
    Connect {
        peer: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("the proxy {proxy} refused a connection to {target} (HTTP {status}){hint}", hint = hint(*status))]
    Refused {
        proxy: String,
        target: String,
        status: StatusCode,
    },
    #[error("the proxy {proxy} did not answer as a proxy")]
    Proxy {
        proxy: String,
        #[source]
        source: hyper::Error,
    },
    #[error("TLS with {peer} failed")]
    Tls {
        peer: String,
        #[source]
        source: io::Error,
    },
    #[error("the connection broke before an answer came")]
    Broken(#[source] hyper::Error),
    #[error("the answer has more bytes than it may have")]
    Large,
}

fn hint(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 407 => ": give the proxy's user and password in its URL",
        403 | 405 => ": it must allow CONNECT to this host and port",
        _ => "",
    }
}

/// The way to one origin. Every exchange goes the same way, a handed-over one included: CONNECT also serves http
/// origins, since a proxy that is asked for an upgrade itself strips it as hop-by-hop.
#[derive(Clone)]
pub struct Way {
    program: HeaderValue,
    /// Host and port, as CONNECT names them.
    target: Uri,
    authority: String,
    proxy: Option<Proxy>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// What an exchange left.
pub struct Answer {
    pub head: response::Parts,
    pub rest: Rest,
}

pub enum Rest {
    /// Another protocol follows.
    Switched(TokioIo<Upgraded>),
    /// The whole body.
    Body(Bytes),
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Way {
    /// To the origin of `url`, an http or https one. `program` names this program to the server.
    pub fn new(
        url: &Url,
        proxies: &Proxies,
        tls: Arc<ClientConfig>,
        program: HeaderValue,
    ) -> Result<Self, url::ParseError> {
        let host = url.host().ok_or(url::ParseError::EmptyHost)?;
        let port = url.port_or_known_default().ok_or(url::ParseError::InvalidPort)?;
        let tls = match url.scheme() {
            "https" => Some((tls.into(), server_name(url).ok_or(url::ParseError::EmptyHost)?)),
            _ => None,
        };
        let authority = format!("{host}:{port}");
        Ok(Self {
            program,
            target: authority
                .parse()
                .map_err(|_| url::ParseError::InvalidDomainCharacter)?,
            authority,
            proxy: proxies.to(url).cloned(),
            tls,
        })
    }

    /// ` through the proxy host:port`, or nothing.
    pub fn via(&self) -> String {
        self.proxy
            .as_ref()
            .map(|proxy| format!(" through the proxy {proxy}"))
            .unwrap_or_default()
    }

    /// Sends one request over a connection of its own, and takes an answer of at most `limit` bytes. `request` has path
    /// and query as its target.
    pub async fn ask(&self, request: Request<Full<Bytes>>, limit: usize) -> Result<Answer, ReachError> {
        let stream = self.connect().await?;
        exchange(stream, self.headed(request), limit)
            .await
            .map_err(|failed| match failed {
                Failed::Broken(source) => ReachError::Broken(source),
                Failed::Large => ReachError::Large,
            })
    }

    /// As [`Self::ask`], with the body still to come.
    pub async fn open(&self, request: Request<Full<Bytes>>) -> Result<Arriving, ReachError> {
        let stream = self.connect().await?;
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(AHEAD_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(ReachError::Broken)?;
        let mut connection: Connection = Box::pin(async move {
            // How a connection ended is in the answer too, or in its absence.
            let _ = connection.await;
        });
        let answer = {
            let mut answer = std::pin::pin!(sender.send_request(self.headed(request)));
            tokio::select! {
                biased;
                answer = &mut answer => answer,
                () = &mut connection => answer.await,
            }
        };
        let (head, body) = answer.map_err(ReachError::Broken)?.into_parts();
        Ok(Arriving {
            head,
            body,
            connection: Some(connection),
            _sender: sender,
        })
    }

    fn headed(&self, mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
        let headers = request.headers_mut();
        headers.insert(HOST, self.host_header());
        headers.insert(USER_AGENT, self.program.clone());
        request
    }

    /// Without a port that goes without saying.
    fn host_header(&self) -> HeaderValue {
        let default = if self.tls.is_some() { ":443" } else { ":80" };
        let host = self.authority.strip_suffix(default).unwrap_or(&self.authority);
        HeaderValue::from_str(host).unwrap_or_else(|_| unreachable!("an origin is ASCII"))
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, ReachError> {
        let stream: Box<dyn Stream> = match &self.proxy {
            None => Box::new(tcp(&self.authority, &self.authority).await?),
            Some(proxy) => Box::new(self.tunnel(proxy).await?),
        };
        let Some((tls, name)) = &self.tls else {
            return Ok(stream);
        };
        let stream = tls
            .connect(name.clone(), stream)
            .await
            .map_err(|source| ReachError::Tls {
                peer: format!("{}{}", self.authority, self.via()),
                source,
            })?;
        Ok(Box::new(stream))
    }

    async fn tunnel(&self, proxy: &Proxy) -> Result<TokioIo<Upgraded>, ReachError> {
        let shown = proxy.to_string();
        let stream = tcp(&shown, &format!("the proxy {shown}")).await?;
        let mut request = Request::new(Full::default());
        *request.method_mut() = Method::CONNECT;
        *request.uri_mut() = self.target.clone();
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, self.program.clone());
        if let Ok(host) = HeaderValue::from_str(&self.authority) {
            headers.insert(HOST, host);
        }
        if let Some(authorization) = proxy.authorization()
            && let Ok(mut value) = HeaderValue::from_str(authorization.expose())
        {
            value.set_sensitive(true);
            headers.insert(PROXY_AUTHORIZATION, value);
        }
        match exchange(Box::new(stream), request, 0).await {
            Ok(Answer {
                rest: Rest::Switched(stream),
                ..
            }) => Ok(stream),
            Ok(Answer { head, .. }) => Err(ReachError::Refused {
                proxy: shown,
                target: self.authority.clone(),
                status: head.status,
            }),
            Err(Failed::Broken(source)) => Err(ReachError::Proxy { proxy: shown, source }),
            Err(Failed::Large) => Err(ReachError::Large),
        }
    }
}

/// The path and query of an address, and nothing of its origin.
pub fn request_to(url: &Url) -> request::Builder {
    let target = &url[url::Position::BeforePath..url::Position::AfterQuery];
    Request::builder().uri(target)
}

fn server_name(url: &Url) -> Option<ServerName<'static>> {
    match url.host()? {
        url::Host::Domain(name) => ServerName::try_from(name.to_owned()).ok(),
        url::Host::Ipv4(address) => Some(ServerName::from(std::net::IpAddr::V4(address))),
        url::Host::Ipv6(address) => Some(ServerName::from(std::net::IpAddr::V6(address))),
    }
}

/// Every address of a name, IPv4 beside IPv6, so that one family that leads nowhere does not hold up the other.
async fn tcp(authority: &str, peer: &str) -> Result<tokio::net::TcpStream, ReachError> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| ReachError::Connect {
        peer: peer.to_owned(),
        source,
    };
    // The connector wants a scheme and looks at host and port alone.
    let target: Uri = format!("http://{authority}")
        .parse()
        .map_err(|error| failed(Box::new(error)))?;
    let mut connector = HttpConnector::new_with_resolver(Names);
    connector.set_nodelay(true);
    let stream = connector
        .call(target)
        .await
        .map_err(|error| failed(Box::new(error)))?;
    Ok(stream.into_inner())
}

/// `/etc/hosts`, then the servers of `/etc/resolv.conf` as it is now: the program is static and cannot ask the C library.
#[derive(Clone)]
struct Names;

impl Service<Name> for Names {
    type Response = vec::IntoIter<std::net::SocketAddr>;
    type Error = NetError;
    type Future = BoxFuture<'static, Result<Self::Response, NetError>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), NetError>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        Box::pin(async move {
            let resolver = TokioResolver::builder_tokio()?.build()?;
            let found = resolver.lookup_ip(name.as_str()).await?;
            let addresses: Vec<_> = found.iter().map(|address| (address, 0).into()).collect();
            Ok(addresses.into_iter())
        })
    }
}

type Connection = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An answer whose body is taken as it arrives.
pub struct Arriving {
    pub head: response::Parts,
    body: Incoming,
    /// Drives the body; `None` once it has ended.
    connection: Option<Connection>,
    /// While it lives the connection waits for the body to be taken.
    _sender: http1::SendRequest<Full<Bytes>>,
}

impl Arriving {
    /// The next bytes; `None` at the end of a body that came whole. May be dropped and called again.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ReachError> {
        loop {
            let frame = match &mut self.connection {
                Some(connection) => tokio::select! {
                    biased;
                    frame = self.body.frame() => frame,
                    () = connection => {
                        self.connection = None;
                        continue;
                    }
                },
                None => self.body.frame().await,
            };
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(ReachError::Broken(error)),
                Some(Ok(frame)) => {
                    // What is no data is a trailer, which nobody asked for.
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }
}

enum Failed {
    Broken(hyper::Error),
    Large,
}

/// One request on `stream`. What was agreed to become another protocol is handed on; any other answer is read whole,
/// that of a CONNECT excepted, which is somebody else's page.
async fn exchange(
    stream: Box<dyn Stream>,
    request: Request<Full<Bytes>>,
    limit: usize,
) -> Result<Answer, Failed> {
    let is_connect = request.method() == Method::CONNECT;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(Failed::Broken)?;
    let mut connection = std::pin::pin!(connection.with_upgrades());
    let mut work = std::pin::pin!(async {
        let mut response = sender.send_request(request).await.map_err(Failed::Broken)?;
        let switches = match is_connect {
            true => response.status().is_success(),
            false => response.status() == StatusCode::SWITCHING_PROTOCOLS,
        };
        if switches {
            let upgraded = hyper::upgrade::on(&mut response).await.map_err(Failed::Broken)?;
            return Ok(Answer {
                head: response.into_parts().0,
                rest: Rest::Switched(TokioIo::new(upgraded)),
            });
        }
        let (head, body) = response.into_parts();
        if is_connect {
            return Ok(Answer {
                head,
                rest: Rest::Body(Bytes::new()),
            });
        }
        let body = match Limited::new(body, limit).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => return Err(Failed::Large),
            Err(error) => match error.downcast() {
                Ok(error) => return Err(Failed::Broken(*error)),
                Err(_) => unreachable!("the body of a response fails as hyper does"),
            },
        };
        Ok(Answer {
            head,
            rest: Rest::Body(body),
        })
    });
    tokio::select! {
        biased;
        answer = &mut work => answer,
        // The connection has ended or is handed over: the answer is there, or the reason why none will be.
        _ = &mut connection => work.await,
    }
}
