//! Ctrl-C. Once listened for it no longer ends the program by itself.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Failure;

/// Every Ctrl-C since listening began, one at a time.
pub struct Interrupts(Signal);

impl Interrupts {
    pub fn listen() -> Result<Self, Failure> {
        signal(SignalKind::interrupt())
            .map(Self)
            .map_err(|error| Failure::Usage(format!("cannot listen for Ctrl-C ({error})")))
    }

    /// The next one, also one that came while nobody waited. Cancel safe.
    pub async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
