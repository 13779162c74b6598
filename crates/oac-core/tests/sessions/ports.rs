//! HTTP to ports of a sandbox: Core in this process, the real runtime program, real servers behind it.

mod hostile;
mod requests;
mod rules;
mod server;
mod upgrades;

use std::{collections::HashSet, time::Duration};

use oac_model::SessionId;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{
    runtime::Runtime,
    world::{Placed, World, id},
};

/// Far beyond what anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// A Core, and a Session with its linked runtime.
struct Field {
    world: World,
    placed: Placed,
    runtime: Runtime,
}

impl Field {
    async fn start() -> Self {
        let world = World::start().await;
        let (placed, runtime) = Runtime::place(&world).await;
        Self {
            world,
            placed,
            runtime,
        }
    }

    fn path(&self, port: u16, rest: &str) -> String {
        path(self.placed.session, port, rest)
    }

    fn request(&self, method: Method, port: u16, rest: &str) -> RequestBuilder {
        self.world
            .core
            .request(method, &self.path(port, rest))
            .bearer_auth(self.world.core.project_key.expose())
    }

    async fn get(&self, port: u16, rest: &str) -> Response {
        timeout(LONG, self.request(Method::GET, port, rest).send())
            .await
            .unwrap()
            .unwrap()
    }

    /// A connection to Core, and the head's line with the credential.
    async fn connect(&self) -> (TcpStream, String) {
        let address = self.world.core.url.strip_prefix("http://").unwrap().to_owned();
        let stream = TcpStream::connect(address).await.unwrap();
        let authorization = format!(
            "Authorization: Bearer {}\r\n",
            self.world.core.project_key.expose()
        );
        (stream, authorization)
    }

    /// Sends `request` as it is, in which `{auth}` stands for the credential's line and `{at}` for the path up to the
    /// port, and reads until Core closes.
    async fn raw(&self, port: u16, request: &str) -> String {
        let (mut stream, authorization) = self.connect().await;
        let text = request
            .replace("{auth}", &authorization)
            .replace("{at}", &self.path(port, ""));
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A connection that Core resets has said all it had to say.
        let _ = timeout(LONG, stream.read_to_end(&mut answer)).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// A command runs as ever.
    async fn command_works(&self) {
        let session = self.placed.session;
        let input = json!({ "args": ["true"], "cwd": "/" });
        let path = format!("/v1/sessions/{session}/inputs");
        let answer = self.world.post(&path, &input).await.expect(202);
        let turn = id(&answer["turn"]["id"]);
        self.world.until_turn(session, turn, "completed").await;
    }

    /// Everything open at the Session's ports has ended.
    async fn until_free(&self, port: u16) {
        self.world
            .eventually("no open port stream", async || {
                (connections(port) == 0).then_some(())
            })
            .await;
    }
}

fn path(session: SessionId, port: u16, rest: &str) -> String {
    format!("/v1/sessions/{session}/ports/{port}{rest}")
}

/// Connections to a port of this process that neither side has ended. Connections of others may begin at a port of the
/// same number.
fn connections(port: u16) -> usize {
    let local = format!(":{port:04X}");
    let own: HashSet<String> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|to| {
            Some(
                to.to_str()?
                    .strip_prefix("socket:[")?
                    .strip_suffix(']')?
                    .to_owned(),
            )
        })
        .collect();
    std::fs::read_to_string("/proc/net/tcp")
        .unwrap()
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields[1].ends_with(&local) && fields[3] == "01" && own.contains(fields[9]))
        .count()
}
