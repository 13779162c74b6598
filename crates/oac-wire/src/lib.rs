//! The node protocol as data: what travels between Core and a node, its strict JSON form and its limits
//! (protocol.md sections 2, 3 and 7).
//!
//! In go bytes, out come values whose every member was checked at every depth, or one reason why not; and the other
//! way round. [`judge`] says it in words; the program `oac-wire-check` says it line by line. This crate never performs I/O, never reads a clock and never decides what to do about a message.

mod b64;
mod bounded;
mod codec;
mod forms;
pub mod frames;
pub mod limits;
mod nullable;
mod opaque;
mod request;
mod response;
mod shape;
pub mod shapes;
pub mod strict;
mod structure;
mod surface;
mod verdict;

pub use b64::B64;
pub use frames::{CoreFrame, FrameError, NodeFrame};
pub use nullable::Nullable;
pub use surface::surface;
pub use verdict::{Direction, Verdict, judge};

/// The protocol spoken; both peers refuse any other (protocol.md section 1).
pub const PROTOCOL_VERSION: u32 = 1;
