//! Two connected WebSockets and a welcomed link over them.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, service::service_fn};
use oac_link::{Hello, LinkClient, LinkEnd, Opening, Socket, StopAccepting, Welcome, introduce, limits};
use oac_model::{AllocationId, EnvironmentId, Generation, InstanceId, LinkId, OwnerEpoch, ProjectId, Secret};
use oac_wire::shapes::{LinkResource, LinkResourceKind};
use tokio::{io::DuplexStream, sync::mpsc, task::JoinSet};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::protocol::{Role, WebSocketConfig},
};

pub(crate) type Native = WebSocketStream<DuplexStream>;

/// Core's and the runtime's WebSocket, connected.
pub(crate) async fn sockets() -> (Native, Native) {
    let (core, sandbox) = tokio::io::duplex(1 << 20);
    let config = WebSocketConfig::default()
        .max_message_size(Some(limits::MESSAGE_BYTES))
        .max_frame_size(Some(limits::MESSAGE_BYTES));
    tokio::join!(
        WebSocketStream::from_raw_socket(core, Role::Server, Some(config)),
        WebSocketStream::from_raw_socket(sandbox, Role::Client, Some(config)),
    )
}

pub(crate) fn hello() -> Hello {
    Hello {
        credential: Secret::new("c0ffee00".repeat(8)),
        resource: LinkResource {
            tenant_id: ProjectId::random(),
            environment_id: EnvironmentId::random(),
            kind: LinkResourceKind::Allocation,
            id: AllocationId::random(),
            generation: Generation::FIRST,
        },
        runtime_version: "0.1.0".to_owned(),
        instance_id: InstanceId::random(),
    }
}

pub(crate) fn welcome() -> Welcome {
    Welcome {
        connection_id: LinkId::random(),
        owner_epoch: OwnerEpoch::FIRST,
    }
}

/// A welcomed link whose sandbox answers every request with `answer`'s status and body.
pub(crate) struct Link {
    pub client: LinkClient,
    pub core_end: JoinSet<LinkEnd>,
    pub sandbox_end: JoinSet<LinkEnd>,
    pub ask: mpsc::Sender<StopAccepting>,
}

pub(crate) async fn link<F>(answer: F) -> Link
where
    F: Fn(&Request<Incoming>) -> Response<Full<Bytes>> + Clone + Send + 'static,
{
    let (core, sandbox) = sockets().await;
    let (said, welcome) = (hello(), welcome());
    let mut opening = Opening::new(Socket::from_tungstenite(core));
    let (sandbox, core) = tokio::join!(introduce(Socket::from_tungstenite(sandbox), &said), async {
        assert_eq!(opening.hello().await.unwrap(), said);
        opening.welcome(welcome).await.unwrap()
    });
    let (heard, server) = sandbox.unwrap();
    assert_eq!(heard, welcome);
    let (client, driver) = core;
    let (ask, asked) = mpsc::channel(1);
    let service = service_fn(move |request| {
        let answer = answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let (mut core_end, mut sandbox_end) = (JoinSet::new(), JoinSet::new());
    core_end.spawn(driver.run());
    sandbox_end.spawn(server.serve(service, asked));
    Link {
        client,
        core_end,
        sandbox_end,
        ask,
    }
}

pub(crate) async fn end(of: &mut JoinSet<LinkEnd>) -> LinkEnd {
    of.join_next().await.unwrap().unwrap()
}
