//! Core as the node reaches it: the machine HTTP routes and the WebSocket (protocol.md sections 4 and 13).

mod client;
mod routes;
mod socket;
mod stream;
mod transport;

pub use client::{ClientError, CoreClient, Surroundings};
pub(crate) use routes::Enrollment;
pub use routes::{CallError, Confirmed};
pub(crate) use socket::{Connection, DialError, Incoming};
pub use transport::ReachError;
