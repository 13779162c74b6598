//! What stands between a client and Core on real networks: a proxy that is asked by CONNECT and may go dead, and a
//! reverse proxy that rewrites requests and ends idle connections. All pass bytes on through a [`Passage`], which a test
//! stops, cuts or lets time pass in. A relay reads nothing and passes on whatever comes.

mod connect_proxy;
mod passage;
mod relay;
mod reverse_proxy;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

pub use connect_proxy::{Asked, ConnectProxy, Reply};
pub use passage::Passage;
pub use relay::Relay;
pub use reverse_proxy::ReverseProxy;

/// Accepts on a free port of loopback and serves each connection, until the tasks are dropped.
async fn serve<F, W>(work: F) -> (SocketAddr, JoinSet<()>)
where
    F: Fn(TcpStream) -> W + Send + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    serve_on(IpAddr::V4(Ipv4Addr::LOCALHOST), work).await
}

/// Likewise, on a free port of `address`.
async fn serve_on<F, W>(address: IpAddr, work: F) -> (SocketAddr, JoinSet<()>)
where
    F: Fn(TcpStream) -> W + Send + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    let bound = TcpListener::bind((address, 0)).await;
    let listener = bound.unwrap_or_else(|e| panic!("cannot listen: {e}"));
    let address = listener
        .local_addr()
        .unwrap_or_else(|e| panic!("no address: {e}"));
    let mut server = JoinSet::new();
    server.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                Ok((client, _)) = listener.accept() => {
                    let _ = client.set_nodelay(true);
                    connections.spawn(work(client));
                }
            }
        }
    });
    (address, server)
}
