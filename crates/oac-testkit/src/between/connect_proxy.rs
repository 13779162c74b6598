use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    sync::watch,
    task::JoinSet,
};

use super::{Passage, serve};

/// What a request for a tunnel gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The tunnel.
    Tunnel,
    /// This status, with a page of the proxy's own.
    Status(u16),
    /// Nothing, for as long as the client waits.
    Silence,
    /// The end of the connection.
    End,
    /// This, as it is.
    Bytes(Vec<u8>),
}

/// One request for a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Method and target.
    pub line: String,
    /// `Proxy-Authorization`.
    pub authorization: Option<String>,
    /// The whole head.
    pub head: String,
}

/// A proxy that leads every tunnel to one address, whatever the target is called.
pub struct ConnectProxy {
    pub address: SocketAddr,
    pub passage: Passage,
    shared: Arc<Shared>,
    _server: JoinSet<()>,
}

struct Shared {
    target: SocketAddr,
    reply: Mutex<Reply>,
    /// The `Proxy-Authorization` without which it answers 407.
    wanted: Mutex<Option<String>>,
    asked: watch::Sender<Vec<Asked>>,
}

impl ConnectProxy {
    pub async fn to(target: SocketAddr) -> Self {
        let passage = Passage::default();
        let shared = Arc::new(Shared {
            target,
            reply: Mutex::new(Reply::Tunnel),
            wanted: Mutex::default(),
            asked: watch::Sender::default(),
        });
        let (line, own) = (passage.clone(), shared.clone());
        let (address, server) = serve(move |client| {
            let (line, own) = (line.clone(), own.clone());
            async move {
                let _ = own.answer(client, &line).await;
            }
        })
        .await;
        Self {
            address,
            passage,
            shared,
            _server: server,
        }
    }

    /// What requests get from now on.
    pub fn reply(&self, reply: Reply) {
        *self.shared.reply.lock().unwrap_or_else(PoisonError::into_inner) = reply;
    }

    /// Answers 407 to whoever does not send exactly this `Proxy-Authorization`.
    pub fn want(&self, authorization: &str) {
        *self.shared.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Some(authorization.to_owned());
    }

    /// Every request so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.borrow().clone()
    }

    /// Resolves when this many requests came.
    pub async fn until_asked(&self, times: usize) {
        let mut asked = self.shared.asked.subscribe();
        // The sender lives in `self`.
        let _ = asked.wait_for(|asked| asked.len() >= times).await;
    }
}

impl Shared {
    async fn answer(&self, client: TcpStream, passage: &Passage) -> std::io::Result<()> {
        let mut client = BufReader::new(client);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if client.read_line(&mut head).await? == 0 {
                return Ok(());
            }
        }
        let header = |name: &str| {
            head.lines()
                .filter_map(|line| line.split_once(": "))
                .find(|(found, _)| found.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.to_owned())
        };
        let asked = Asked {
            line: head.lines().next().unwrap_or_default().to_owned(),
            authorization: header("proxy-authorization"),
            head: head.clone(),
        };
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut reply = self.reply.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if wanted.is_some() && wanted != asked.authorization {
            reply = Reply::Status(407);
        }
        if !asked.line.starts_with("CONNECT ") {
            reply = Reply::Status(405);
        }
        self.asked.send_modify(|all| all.push(asked));
        match reply {
            Reply::Tunnel => {
                let core = TcpStream::connect(self.target).await?;
                client
                    .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    .await?;
                passage.pass(client, core).await;
            }
            Reply::Status(status) => {
                let page = "<html>a proxy's page</html>";
                let text = format!(
                    "HTTP/1.1 {status} No\r\nProxy-Authenticate: Basic realm=\"proxy\"\r\nContent-Length: {}\r\n\r\n{page}",
                    page.len()
                );
                client.write_all(text.as_bytes()).await?;
                client.shutdown().await?;
            }
            // Until the client leaves.
            Reply::Silence => while client.read_line(&mut String::new()).await? > 0 {},
            Reply::End => {}
            Reply::Bytes(bytes) => {
                client.write_all(&bytes).await?;
                client.shutdown().await?;
            }
        }
        Ok(())
    }
}
