use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::{net::TcpStream, sync::watch, task::JoinSet};

use super::{Passage, serve_on};

/// Passes connections on to one address: a line that can be cut and go dead, or the one name of several Cores.
pub struct Relay {
    pub address: SocketAddr,
    pub passage: Passage,
    leads_to: watch::Sender<SocketAddr>,
    _server: JoinSet<()>,
}

impl Relay {
    /// On a free port of loopback.
    pub async fn to(target: SocketAddr) -> Self {
        Self::on(IpAddr::V4(Ipv4Addr::LOCALHOST), target).await
    }

    /// On a free port of `address`.
    pub async fn on(address: IpAddr, target: SocketAddr) -> Self {
        let (passage, leads_to) = (Passage::default(), watch::Sender::new(target));
        let (line, target) = (passage.clone(), leads_to.subscribe());
        let (address, server) = serve_on(address, move |client| {
            let (line, target) = (line.clone(), *target.borrow());
            async move {
                if let Ok(server) = TcpStream::connect(target).await {
                    let _ = server.set_nodelay(true);
                    line.pass(client, server).await;
                }
            }
        })
        .await;
        Self {
            address,
            passage,
            leads_to,
            _server: server,
        }
    }

    /// Where connections lead that begin from now on.
    pub fn lead_to(&self, target: SocketAddr) {
        self.leads_to.send_replace(target);
    }
}
