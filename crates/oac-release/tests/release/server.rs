//! A server that says exactly what a test wants, byte by byte, over plain TCP or TLS. It speaks no HTTP of its own, so
//! that it can speak it wrongly.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use url::Url;

const AUTHORITY: &str = include_str!("../../../oac-testkit/tls/authority.pem");
const CERTIFICATE: &str = include_str!("../../../oac-testkit/tls/first.pem");
const KEY: &str = include_str!("../../../oac-testkit/tls/first.key.pem");

/// What a client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
}

impl Asked {
    /// The offset of `Range: bytes=N-`.
    pub(crate) fn from(&self) -> Option<u64> {
        let range = self.headers.get("range")?;
        range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

pub(crate) trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

type Answer = dyn Fn(&Asked, &mut dyn Stream) -> std::io::Result<()> + Send + Sync;

pub(crate) struct Server {
    address: SocketAddr,
    scheme: &'static str,
    asked: Arc<Mutex<Vec<Asked>>>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn plain(
        answer: impl Fn(&Asked, &mut dyn Stream) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::start("http", None, Arc::new(answer))
    }

    /// With a certificate of the test authority for `localhost`.
    pub(crate) fn tls(
        answer: impl Fn(&Asked, &mut dyn Stream) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(CERTIFICATE.as_bytes())
            .map(Result::unwrap)
            .collect();
        let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Self::start("https", Some(Arc::new(config)), Arc::new(answer))
    }

    fn start(scheme: &'static str, tls: Option<Arc<ServerConfig>>, answer: Arc<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let stopping = Arc::new(AtomicBool::new(false));
        let (seen, stops) = (asked.clone(), stopping.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stops.load(Ordering::SeqCst) {
                    return;
                }
                let (tls, answer, seen) = (tls.clone(), answer.clone(), seen.clone());
                std::thread::spawn(move || {
                    // Whatever goes wrong with a connection is the client's to notice.
                    let _ = stream.and_then(|stream| serve(stream, tls, &answer, &seen));
                });
            }
        });
        Self {
            address,
            scheme,
            asked,
            stopping,
            thread: Some(thread),
        }
    }

    pub(crate) fn url(&self) -> Url {
        Url::parse(&format!("{}://localhost:{}", self.scheme, self.address.port())).unwrap()
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Who believes [`Server::tls`].
pub(crate) fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(AUTHORITY.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    roots
}

fn serve(
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    answer: &Arc<Answer>,
    seen: &Mutex<Vec<Asked>>,
) -> std::io::Result<()> {
    match tls {
        None => exchange(stream, answer, seen),
        Some(config) => {
            let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
            exchange(StreamOwned::new(connection, stream), answer, seen)
        }
    }
}

fn exchange(stream: impl Stream, answer: &Arc<Answer>, seen: &Mutex<Vec<Asked>>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(());
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let line = lines.remove(0);
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let headers = lines.iter().filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    let asked = Asked {
        line,
        path,
        headers: headers.collect(),
    };
    seen.lock().unwrap().push(asked.clone());
    answer(&asked, stream.get_mut())?;
    stream.get_mut().flush()
}

/// A whole answer.
pub(crate) fn say(
    out: &mut dyn Stream,
    status: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<()> {
    head(out, status, headers, Some(body.len() as u64))?;
    out.write_all(body)
}

/// The head of an answer; without a length the body ends with the connection.
pub(crate) fn head(
    out: &mut dyn Stream,
    status: &str,
    headers: &[(&str, &str)],
    length: Option<u64>,
) -> std::io::Result<()> {
    let mut text = format!("HTTP/1.1 {status}\r\nConnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if let Some(length) = length {
        text.push_str(&format!("Content-Length: {length}\r\n"));
    }
    text.push_str("\r\n");
    out.write_all(text.as_bytes())
}

/// Waits until the client has gone.
pub(crate) fn hang(out: &mut dyn Stream) -> std::io::Result<()> {
    out.flush()?;
    let mut rest = [0; 64];
    while out.read(&mut rest)? > 0 {}
    Ok(())
}
