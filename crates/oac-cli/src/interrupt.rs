//! Ctrl-C. Once listened for it no longer ends the program by itself.

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Failure;

/// Resolves once the program is asked to end, by Ctrl-C, SIGTERM or a terminal that closes. For work that leaves
/// something behind unless it is dropped.
pub async fn asked_to_end() -> Result<(), Failure> {
    let mut signals = Vec::new();
    for kind in [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ] {
        signals.push(Interrupts::to(kind)?);
    }
    let mut next: FuturesUnordered<_> = signals.iter_mut().map(Interrupts::next).collect();
    next.next().await;
    Ok(())
}

/// Every Ctrl-C since listening began, one at a time.
pub struct Interrupts(Signal);

impl Interrupts {
    pub fn listen() -> Result<Self, Failure> {
        Self::to(SignalKind::interrupt())
    }

    fn to(kind: SignalKind) -> Result<Self, Failure> {
        signal(kind)
            .map(Self)
            .map_err(|error| Failure::Usage(format!("cannot listen for signals ({error})")))
    }

    /// The next one, also one that came while nobody waited. Cancel safe.
    pub async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
