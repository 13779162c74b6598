//! A server that answers as it is told, for what a real Core answers only when something breaks.

use std::{
    collections::VecDeque,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// One answer.
#[derive(Debug, Clone)]
pub enum Reply {
    /// 200 with these bytes.
    Bytes(Vec<u8>),
    /// Half of what a 200 promises; then the connection breaks.
    Broken(Vec<u8>),
    /// No body.
    Status(u16),
    /// 302 to an address.
    Elsewhere(String),
    /// The connection is closed without an answer.
    Nothing,
}

#[derive(Debug, Default)]
struct Script {
    first: VecDeque<Reply>,
    then: Option<Reply>,
    /// Heads of requests, in order.
    asked: Vec<String>,
}

/// The server; it ends when dropped.
pub struct Served {
    pub address: SocketAddr,
    script: Arc<Mutex<Script>>,
    _server: JoinSet<()>,
}

impl Served {
    pub async fn start(address: Ipv4Addr) -> Self {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let script: Arc<Mutex<Script>> = Arc::default();
        let shared = script.clone();
        let mut server = JoinSet::new();
        server.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                open.spawn(answer(stream, shared.clone()));
            }
        });
        Self {
            address,
            script,
            _server: server,
        }
    }

    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers with `first`, one after the other, and from then on with `then`. What was asked before is forgotten.
    pub fn will(&self, first: impl IntoIterator<Item = Reply>, then: Reply) {
        *self.script.lock().unwrap() = Script {
            first: first.into_iter().collect(),
            then: Some(then),
            asked: Vec::new(),
        };
    }

    /// Heads of the requests since [`Self::will`].
    pub fn asked(&self) -> Vec<String> {
        self.script.lock().unwrap().asked.clone()
    }
}

async fn answer(stream: TcpStream, script: Arc<Mutex<Script>>) {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let reply = {
        let mut script = script.lock().unwrap();
        script.asked.push(head);
        let next = script.first.pop_front();
        next.or_else(|| script.then.clone())
    };
    let begin = |status: u16, length: usize, more: &str| {
        format!("HTTP/1.1 {status} x\r\nContent-Length: {length}\r\nConnection: close\r\n{more}\r\n")
            .into_bytes()
    };
    let bytes = match reply {
        Some(Reply::Bytes(bytes)) => [begin(200, bytes.len(), ""), bytes].concat(),
        Some(Reply::Broken(bytes)) => {
            let half = bytes[..bytes.len() / 2].to_vec();
            [begin(200, bytes.len(), ""), half].concat()
        }
        Some(Reply::Status(status)) => begin(status, 0, ""),
        Some(Reply::Elsewhere(to)) => begin(302, 0, &format!("Location: {to}\r\n")),
        Some(Reply::Nothing) | None => return,
    };
    let _ = stream.write_all(&bytes).await;
    let _ = stream.shutdown().await;
}
