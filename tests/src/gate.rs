//! What stands between a host and Core in a test: passes everything on, until it is told to hold or to answer one kind of
//! request itself.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// What becomes of a request whose first line begins as told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// It goes nowhere, and its sender waits.
    Hold,
    /// A status without a body, as from something that is not Core.
    Answer(u16),
}

#[derive(Debug, Default)]
struct State {
    rule: Option<(&'static str, Rule)>,
    met: usize,
}

/// The gate; it ends when dropped.
pub struct Gate {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    _server: JoinSet<()>,
}

impl Gate {
    /// At `address`, before `core`.
    pub async fn before(core: SocketAddr, address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = state.clone();
        let mut server = JoinSet::new();
        server.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                open.spawn(pass(stream, core, shared.clone()));
            }
        });
        Self {
            address,
            state,
            _server: server,
        }
    }

    /// Does so with requests that begin like this, such as `POST /api`; the count of those met begins anew.
    pub fn will(&self, begins: &'static str, rule: Rule) {
        *self.state.lock().unwrap() = State {
            rule: Some((begins, rule)),
            met: 0,
        };
    }

    /// Passes everything on again. What was held stays so.
    pub fn open(&self) {
        self.state.lock().unwrap().rule = None;
    }

    /// How many requests the rule met.
    pub fn met(&self) -> usize {
        self.state.lock().unwrap().met
    }
}

async fn pass(mut client: TcpStream, core: SocketAddr, state: Arc<Mutex<State>>) {
    let Ok(mut server) = TcpStream::connect(core).await else {
        return;
    };
    let (mut from_client, mut from_server) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => {
                let Ok(count @ 1..) = read else { return };
                // A client sends a request's head at once.
                let rule = {
                    let mut state = state.lock().unwrap();
                    let met = state.rule.filter(|(begins, _)| from_client[..count].starts_with(begins.as_bytes()));
                    state.met += usize::from(met.is_some());
                    met.map(|(_, rule)| rule)
                };
                match rule {
                    None => if server.write_all(&from_client[..count]).await.is_err() { return },
                    Some(Rule::Answer(status)) => {
                        let answer = format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                        let _ = client.write_all(answer.as_bytes()).await;
                        return;
                    }
                    // Until the client gives up.
                    Some(Rule::Hold) => while let Ok(1..) = client.read(&mut from_client).await {},
                }
            }
            read = server.read(&mut from_server) => {
                let Ok(count @ 1..) = read else { return };
                if client.write_all(&from_server[..count]).await.is_err() { return }
            }
        }
    }
}
