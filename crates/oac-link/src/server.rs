//! The sandbox's end after the welcome: accepts streams and serves one HTTP/1.1 exchange on each.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
};

use bytes::Bytes;
use futures_util::{Stream as _, stream::FuturesUnordered};
use hyper::{
    Request, Response,
    body::{Body, Incoming},
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::rt::TokioIo;
use tokio_util::compat::FuturesAsyncReadCompatExt;

use crate::{
    exchange::StreamClass,
    limits,
    mux::{LinkEnd, Mux},
    priority::{Class, Gate, LinkStream},
    socket::{CloseReason, Socket},
};

/// What the program asks of a running server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopAccepting {
    /// Open exchanges go on; new streams are dropped unread.
    NewStreams,
    /// Everything ends now, with this reason.
    Everything(CloseReason),
}

/// A welcomed link at the sandbox's end. Its peer opens the streams; it opens none.
pub struct LinkServer {
    mux: Mux,
}

type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

enum Event {
    Stop(Option<StopAccepting>),
    Inbound(Result<yamux::Stream, LinkEnd>),
}

impl LinkServer {
    pub(crate) fn new(socket: Socket) -> Self {
        Self {
            mux: Mux::new(socket, yamux::Mode::Server),
        }
    }

    /// Serves until the link ends. `stop` is read as often as it answers; when it ends, nothing more is asked.
    pub async fn serve<S, B>(
        mut self,
        service: S,
        mut stop: tokio::sync::mpsc::Receiver<StopAccepting>,
    ) -> LinkEnd
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut serving = FuturesUnordered::<Serving>::new();
        let (mut accepting, mut asking) = (true, true);
        loop {
            let event = poll_fn(|cx| {
                if asking && let Poll::Ready(asked) = stop.poll_recv(cx) {
                    return Poll::Ready(Event::Stop(asked));
                }
                // Finished exchanges leave; the others advance.
                while let Poll::Ready(Some(())) = pin!(&mut serving).poll_next(cx) {}
                self.mux.poll_inbound(cx).map(Event::Inbound)
            })
            .await;
            match event {
                Event::Stop(None) => asking = false,
                Event::Stop(Some(StopAccepting::NewStreams)) => accepting = false,
                Event::Stop(Some(StopAccepting::Everything(reason))) => {
                    drop(serving);
                    self.mux.close(reason).await;
                    return LinkEnd::ClosedHere(reason);
                }
                // Beyond the limit a stream is reset by dropping it.
                Event::Inbound(Ok(stream)) if accepting && serving.len() < limits::STREAMS => {
                    serving.push(Box::pin(exchange(stream, self.mux.gate(), service.clone())));
                }
                Event::Inbound(Ok(_)) => {}
                Event::Inbound(Err(LinkEnd::Violation(what))) => {
                    drop(serving);
                    self.mux.close(CloseReason::GoingAway).await;
                    return LinkEnd::Violation(what);
                }
                Event::Inbound(Err(end)) => return end,
            }
        }
    }
}

/// One exchange; its failure concerns this stream alone, and its peer sees it.
async fn exchange<S, B>(stream: yamux::Stream, gate: Gate, service: S)
where
    S: Service<Request<Incoming>, Response = Response<B>> + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let class = Class::new(StreamClass::Control);
    let stream = LinkStream::new(stream, class.clone(), gate);
    let service = service_fn(move |request: Request<Incoming>| {
        class.learn(request.uri().path());
        service.call(request)
    });
    let _ = http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream.compat()), service)
        .with_upgrades()
        .await;
}
