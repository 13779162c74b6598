//! The Docker Engine's HTTP API over its unix socket.
//!
//! An operation opens one [`Session`] and makes all its calls through it. A session is one connection, and the
//! engine's id was read over that very connection: so every answer of the operation comes from the engine process
//! whose id the operation compared (INV-V25), without asking for the id, which is slow, each time. Idle sessions are
//! kept; one that the engine closed is noticed before it is used again, and counts as an interruption.
//!
//! No call has a timeout of its own. Deadlines end waits, not native work.

mod steady;
mod transport;

pub(crate) use steady::Steady;
pub(crate) use transport::{API_FLOOR, Body, Engine, EngineError, Session, filters};
