//! Both ends of the node connection as state machines (protocol.md sections 4 to 8 and 12).
//!
//! Events go in, with `now` from the caller's monotonic clock: a received message, a finished store or measurement, a
//! tick. Actions come out: a frame to send, something to make durable, an operation to run, a reason to close. The
//! machines decide everything that the protocol decides, including what a peer's mistake costs, so that a shell around
//! them only moves bytes and performs actions in the order given. They never perform I/O, never read a clock and are
//! never async; time, ids and a seed for jitter are arguments.

#[cfg(test)]
mod both_ends;
pub mod core;
#[cfg(test)]
mod fixtures;
pub mod limits;
#[cfg(test)]
mod managing_ends;
mod moment;
pub mod node;
mod outcome;
mod random;
mod readiness;
pub mod stream;

pub use moment::Moment;
pub use outcome::{FailureCode, Outcome};
pub use random::Random;
