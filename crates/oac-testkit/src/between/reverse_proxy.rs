use std::net::SocketAddr;

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    task::JoinSet,
};

use super::{Passage, serve};

/// A reverse proxy of one request per connection: gives every request another `Host`, says in `X-Forwarded-For` where it
/// came from, and passes upgrades on.
pub struct ReverseProxy {
    pub address: SocketAddr,
    pub passage: Passage,
    _server: JoinSet<()>,
}

impl ReverseProxy {
    /// In front of a Core, which it calls `host`. `client` is the address it says that requests come from.
    pub async fn before(core: SocketAddr, host: &'static str, client: &'static str) -> Self {
        let passage = Passage::default();
        let line = passage.clone();
        let (address, server) = serve(move |stream| {
            let line = line.clone();
            async move {
                let _ = forward(stream, core, (host, client), &line).await;
            }
        })
        .await;
        Self {
            address,
            passage,
            _server: server,
        }
    }
}

async fn forward(
    client: TcpStream,
    core: SocketAddr,
    (host, from): (&str, &str),
    passage: &Passage,
) -> std::io::Result<()> {
    let mut client = BufReader::new(client);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let mut line = String::new();
        if client.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        let is_upgrade = name == "connection" && line.to_ascii_lowercase().contains("upgrade");
        match name.as_str() {
            "host" => head.push_str(&format!("Host: {host}\r\n")),
            "connection" if !is_upgrade => {}
            _ => {
                if line == "\r\n" {
                    let close = if head.to_ascii_lowercase().contains("\r\nupgrade:") {
                        ""
                    } else {
                        "Connection: close\r\n"
                    };
                    head.push_str(&format!("X-Forwarded-For: {from}\r\n{close}"));
                }
                head.push_str(&line);
            }
        }
    }
    let mut core = TcpStream::connect(core).await?;
    core.set_nodelay(true)?;
    core.write_all(head.as_bytes()).await?;
    passage.pass(client, core).await;
    Ok(())
}
