//! The node protocol as data: what travels between Core and a node, its strict JSON form and its limits
//! (protocol.md sections 2, 3 and 7).
//!
//! In go bytes, out come values whose every member was checked at every depth, or one reason why not; and the other
//! way round. This crate never performs I/O, never reads a clock and never decides what to do about a message.

mod b64;
mod codec;
pub mod frames;
pub mod limits;
mod nullable;
pub mod shapes;
pub mod strict;
mod structure;
mod validate;

pub use b64::B64;
pub use frames::{CoreFrame, FrameError, NodeFrame};
pub use nullable::Nullable;

/// The protocol spoken; both peers refuse any other (protocol.md section 1).
pub const PROTOCOL_VERSION: u32 = 1;
