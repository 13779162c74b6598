//! The baseline of the node connection: WebSockets that carry the same frames and mean nothing by them.

use std::{
    net::{Ipv4Addr, SocketAddr},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result};
use futures_util::{SinkExt as _, StreamExt as _};
use oac_model::ConnectionId;
use oac_wire::{NodeFrame, frames::Heartbeat};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpListener,
    process::{Child, Command},
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_tungstenite::{accept_async_with_config, client_async_with_config, tungstenite::Message};

use crate::{
    process::Process,
    swarm::{self, Socket, health, small_buffers},
};

/// This program's argument that makes it the server.
pub(crate) const ARGUMENT: &str = "--bare-server";

/// Answers every message with itself, until killed; the first line it prints is its address.
pub(crate) async fn serve() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("{}", listener.local_addr()?);
    answer(listener).await;
    Ok(())
}

/// Answers every message with itself.
pub(crate) async fn answer(listener: TcpListener) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(async move {
            let _ = stream.set_nodelay(true);
            let Ok(mut socket) = accept_async_with_config(stream, Some(small_buffers())).await else {
                return;
            };
            while let Some(Ok(message @ Message::Text(_))) = socket.next().await {
                if socket.send(message).await.is_err() {
                    return;
                }
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

/// The server in a process of its own.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) async fn start() -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(ARGUMENT)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the bare server does not start")?;
        let stdout = child.stdout.take().context("the bare server has no output")?;
        let line = BufReader::new(stdout).lines().next_line().await?;
        let address = line.context("the bare server said nothing")?.parse()?;
        Ok(Self { child, address })
    }

    pub(crate) fn process(&self) -> Result<Process> {
        self.child.id().map(Process).context("the bare server ended")
    }
}

/// A heartbeat as a node sends it.
pub(crate) fn heartbeat() -> Result<String> {
    let heartbeat = Heartbeat {
        connection_id: ConnectionId::random(),
        owner_epoch: oac_model::OwnerEpoch::try_from(1)?,
        health: health(),
    };
    Ok(NodeFrame::Heartbeat(Box::new(heartbeat)).encode()?)
}

pub(crate) async fn dial(address: SocketAddr, number: usize) -> Result<Socket> {
    let source = Ipv4Addr::new(127, 0, 0, 1 + (number % 8) as u8);
    let stream = swarm::tcp(source, address).await?;
    let url = format!("ws://{address}/");
    let (socket, _) = client_async_with_config(url, stream, Some(small_buffers())).await?;
    Ok(socket)
}

/// Connections that beat as nodes do; they end when it is dropped.
pub(crate) async fn beating(address: SocketAddr, count: usize) -> Result<JoinSet<()>> {
    const EVERY: Duration = Duration::from_millis(oac_peer::limits::HEARTBEAT_MILLIS);
    let (mut beating, text) = (JoinSet::new(), heartbeat()?);
    for number in 0..count {
        let mut socket = dial(address, number).await?;
        let text = text.clone();
        let mut due = Instant::now() + EVERY.mul_f64(number as f64 / count as f64);
        beating.spawn(async move {
            loop {
                sleep_until(due).await;
                due += EVERY;
                let sent = socket.send(Message::text(text.clone())).await;
                if sent.is_err() || socket.next().await.is_none() {
                    return;
                }
            }
        });
    }
    Ok(beating)
}
