//! Something between sandboxes and Core that cuts their connections at chosen bytes.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use crate::random::Random;

/// Which way the byte goes at which a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    FromSandbox,
    ToSandbox,
}

/// Where a connection is cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    pub way: Way,
    /// So many bytes pass, and no more.
    pub after: u64,
    /// By a reset instead of an orderly end.
    pub reset: bool,
}

/// So many bytes go to a sandbox while its output is followed, at least.
const ACKNOWLEDGEMENTS: u64 = 500;

impl Cut {
    /// `first` of its sandbox: that connection carries standard input towards the sandbox, the later ones little more
    /// than acknowledgements.
    fn random(random: &mut Random, most: u64, first: bool) -> Self {
        let (way, most) = match random.between(0, 2) {
            0 => (Way::FromSandbox, most),
            _ if first => (Way::ToSandbox, most),
            _ => (Way::ToSandbox, ACKNOWLEDGEMENTS),
        };
        Self {
            way,
            after: random.between(1, most),
            reset: random.between(0, 2) == 0,
        }
    }
}

struct State {
    random: Random,
    per_sandbox: usize,
    most: u64,
    /// Connections that each sandbox has begun.
    begun: HashMap<IpAddr, usize>,
    made: Vec<(IpAddr, Cut)>,
}

/// A proxy that cuts the first connections of each sandbox, each at a random byte, and then lets pass.
pub(crate) struct CuttingProxy {
    pub address: SocketAddr,
    listener: TcpListener,
    state: Arc<Mutex<State>>,
}

impl CuttingProxy {
    /// `per_sandbox` cuts, each before byte `most` of its connection.
    pub(crate) async fn bind(host: IpAddr, random: Random, per_sandbox: usize, most: u64) -> Self {
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let state = State {
            random,
            per_sandbox,
            most,
            begun: HashMap::new(),
            made: Vec::new(),
        };
        Self {
            address: listener.local_addr().unwrap(),
            listener,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Who was cut, and where.
    pub(crate) fn cuts(&self) -> Vec<(IpAddr, Cut)> {
        self.state.lock().unwrap().made.clone()
    }

    /// Passes connections on to `core` for as long as it is awaited.
    pub(crate) async fn serve(&self, core: SocketAddr) {
        let mut passing = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                Some(_) = passing.join_next(), if !passing.is_empty() => {}
                accepted = self.listener.accept() => {
                    let (sandbox, from) = accepted.unwrap();
                    let cut = self.next_cut(from.ip());
                    let state = self.state.clone();
                    passing.spawn(async move {
                        let Ok(core) = TcpStream::connect(core).await else { return };
                        if let (true, Some(cut)) = (pass(sandbox, core, cut).await, cut) {
                            state.lock().unwrap().made.push((from.ip(), cut));
                        }
                    });
                }
            }
        }
    }

    fn next_cut(&self, sandbox: IpAddr) -> Option<Cut> {
        // The node's own connections come from this host, from whichever of its addresses; they are not what is tried.
        if std::net::TcpListener::bind((sandbox, 0)).is_ok() {
            return None;
        }
        let mut state = self.state.lock().unwrap();
        let (limit, most) = (state.per_sandbox, state.most);
        let begun = state.begun.entry(sandbox).or_default();
        *begun += 1;
        let begun = *begun;
        (begun <= limit).then(|| Cut::random(&mut state.random, most, begun == 1))
    }
}

/// Whether the connection ended by the cut.
async fn pass(sandbox: TcpStream, core: TcpStream, cut: Option<Cut>) -> bool {
    let reset = cut.is_some_and(|cut| cut.reset);
    for stream in [&sandbox, &core] {
        let _ = stream.set_nodelay(true);
        if reset {
            let _ = rustix::net::sockopt::set_socket_linger(stream, Some(std::time::Duration::ZERO));
        }
    }
    let limit = |way| cut.filter(|cut| cut.way == way).map(|cut| cut.after);
    let (sandbox_reads, sandbox_writes) = sandbox.into_split();
    let (core_reads, core_writes) = core.into_split();
    let mut outward = std::pin::pin!(copy(sandbox_reads, core_writes, limit(Way::FromSandbox)));
    let mut inward = std::pin::pin!(copy(core_reads, sandbox_writes, limit(Way::ToSandbox)));
    // A cut ends both directions: the other one is dropped with what it had not passed on. An end that a side chose is
    // passed on, and the other direction goes on.
    tokio::select! {
        cut = &mut outward => cut || inward.await,
        cut = &mut inward => cut || outward.await,
    }
}

/// Whether the limit was reached.
async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, limit: Option<u64>) -> bool {
    let mut left = limit;
    let mut buffer = vec![0; 64 << 10];
    loop {
        if left == Some(0) {
            return true;
        }
        let room = left.map_or(buffer.len(), |left| buffer.len().min(left as usize));
        let Ok(read) = from.read(&mut buffer[..room]).await else {
            return false;
        };
        if read == 0 {
            let _ = to.shutdown().await;
            return false;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return false;
        }
        left = left.map(|left| left - read as u64);
    }
}
