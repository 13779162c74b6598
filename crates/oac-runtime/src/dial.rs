//! Reaching Core: names, TCP, TLS and the WebSocket upgrade.
//!
//! The program is linked statically and runs in images without libraries, where the C library cannot look up names:
//! they are looked up here, in `/etc/hosts` and then with the servers of `/etc/resolv.conf`. Roots of trust are bundled;
//! those of the image are added.

use std::{fs, io, net::IpAddr, sync::Arc};

use hickory_resolver::TokioResolver;
use oac_link::Socket;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{Connector, client_async_tls_with_config, tungstenite::protocol::WebSocketConfig};

use crate::limits;

const LINK_PATH: &str = "/api/v1/sandbox-link";

/// Where the link goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    url: http::Uri,
    host: String,
    port: u16,
}

impl Target {
    /// `ws` or `wss`, host, optional port, exactly the link path, nothing else.
    pub(crate) fn parse(url: &str) -> Option<Self> {
        if url.contains(['?', '#', '@']) {
            return None;
        }
        let url: http::Uri = url.parse().ok()?;
        let default_port = match url.scheme_str()? {
            "ws" => 80,
            "wss" => 443,
            _ => return None,
        };
        let host = url.host()?;
        let port = match url.authority()?.as_str().strip_prefix(host)? {
            "" => default_port,
            port => port.strip_prefix(':')?.parse().ok().filter(|port| *port != 0)?,
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() || url.path() != LINK_PATH {
            return None;
        }
        Some(Self { url, host, port })
    }
}

/// Why Core was not reached. All are tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("the name {host} has no address: {why}")]
    Name { host: String, why: String },
    #[error("{host} port {port} cannot be reached: {why}")]
    Connect { host: String, port: u16, why: String },
    #[error("the WebSocket to {host} was not opened: {why}")]
    Upgrade { host: String, why: String },
    #[error("{host} did not answer within 20 s")]
    TimedOut { host: String },
}

/// Opens the WebSocket; no header carries a credential.
pub(crate) async fn dial(target: &Target) -> Result<Socket, DialError> {
    timeout(limits::DIAL_TIMEOUT, attempt(target))
        .await
        .unwrap_or_else(|_| {
            Err(DialError::TimedOut {
                host: target.host.clone(),
            })
        })
}

async fn attempt(target: &Target) -> Result<Socket, DialError> {
    let stream = connect(target).await?;
    let upgrade = |why: String| DialError::Upgrade {
        host: target.host.clone(),
        why,
    };
    // The priority of small messages over throughput: a command's output is small.
    stream
        .set_nodelay(true)
        .map_err(|error| upgrade(error.to_string()))?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(oac_link::limits::MESSAGE_BYTES))
        .max_frame_size(Some(oac_link::limits::MESSAGE_BYTES));
    let connector = match target.url.scheme_str() {
        Some("wss") => Connector::Rustls(Arc::new(tls())),
        _ => Connector::Plain,
    };
    let (socket, _) = client_async_tls_with_config(target.url.clone(), stream, Some(config), Some(connector))
        .await
        .map_err(|error| upgrade(error.to_string()))?;
    Ok(Socket::from_tungstenite(socket))
}

async fn connect(target: &Target) -> Result<TcpStream, DialError> {
    let addresses = resolve(&target.host).await.map_err(|why| DialError::Name {
        host: target.host.clone(),
        why,
    })?;
    let mut why = "no address".to_owned();
    for address in addresses {
        match timeout(
            limits::CONNECT_TIMEOUT,
            TcpStream::connect((address, target.port)),
        )
        .await
        {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => why = crate::turns::why(&error),
            Err(_) => why = "no answer within 5 s".to_owned(),
        }
    }
    Err(DialError::Connect {
        host: target.host.clone(),
        port: target.port,
        why,
    })
}

async fn resolve(host: &str) -> Result<Vec<IpAddr>, String> {
    if let Ok(address) = host.parse() {
        return Ok(vec![address]);
    }
    let listed = in_hosts_file(&fs::read_to_string("/etc/hosts").unwrap_or_default(), host);
    if !listed.is_empty() {
        return Ok(listed);
    }
    let resolver = TokioResolver::builder_tokio()
        .and_then(|builder| builder.build())
        .map_err(|error| format!("/etc/resolv.conf cannot be used: {error}"))?;
    let found = resolver
        .lookup_ip(host)
        .await
        .map_err(|error| error.to_string())?;
    Ok(found.iter().collect())
}

/// The addresses that a hosts file gives `host`.
fn in_hosts_file(text: &str, host: &str) -> Vec<IpAddr> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split('#').next()?.split_ascii_whitespace();
            let address = words.next()?.parse().ok()?;
            words
                .any(|name| name.eq_ignore_ascii_case(host))
                .then_some(address)
        })
        .collect()
}

/// Where distributions keep their roots, all certificates in one file.
const ROOT_FILES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

fn tls() -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    for pem in ROOT_FILES.iter().filter_map(|path| fs::read(path).ok()) {
        for certificate in CertificateDer::pem_slice_iter(&pem).flatten() {
            // One that cannot be used is no reason to do without the others.
            let _ = roots.add(certificate);
        }
    }
    ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// Makes ring the program's TLS implementation; to be called first.
pub(crate) fn install_crypto() -> io::Result<()> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| io::Error::other("another TLS implementation is installed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_link_url_is_a_target() {
        for (url, host, port) in [
            ("ws://172.17.0.1:4000/api/v1/sandbox-link", "172.17.0.1", 4000),
            ("wss://core.example/api/v1/sandbox-link", "core.example", 443),
            ("ws://core/api/v1/sandbox-link", "core", 80),
            ("wss://[::1]:8443/api/v1/sandbox-link", "::1", 8443),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!((target.host.as_str(), target.port), (host, port));
        }
        for bad in [
            "http://core/api/v1/sandbox-link",
            "ws://core/api/v1/sandbox-link?x=1",
            "ws://core/api/v1/sandbox-link#x",
            "ws://user@core/api/v1/sandbox-link",
            "ws://core/api/v1/sandbox-link/",
            "ws://core/",
            "ws:///api/v1/sandbox-link",
            "ws://core:0/api/v1/sandbox-link",
            "ws://core:99999/api/v1/sandbox-link",
            "/api/v1/sandbox-link",
            "",
        ] {
            assert_eq!(Target::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_hosts_file_gives_every_address_of_a_name() {
        let text = "127.0.0.1 localhost\n# 10.0.0.9 core\n10.0.0.1\tcore.example core # main\nfd00::1 CORE\nbad core\n";
        let addresses = |host| {
            in_hosts_file(text, host)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(addresses("core"), ["10.0.0.1", "fd00::1"]);
        assert_eq!(addresses("main"), Vec::<String>::new());
    }
}
