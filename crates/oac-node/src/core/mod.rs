//! Core as the node reaches it: the machine HTTP routes and the WebSocket (protocol.md sections 4 and 13).

mod client;
mod routes;
mod socket;
mod stream;

pub use client::{ClientError, CoreClient};
pub use oac_dial::{ReachError, Surroundings};
pub(crate) use routes::Enrollment;
pub use routes::{CallError, Confirmed};
pub(crate) use socket::{Connection, DialError, Incoming};
