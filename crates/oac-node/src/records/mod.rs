//! Private files that must survive a power loss: how they are opened, written, published and locked
//! (node.md section 3).
//!
//! Names go in relative to one private directory that is held open; bytes come out only from a regular file with
//! exact mode, owner and link count. A refusal changes nothing. Later records (generations, journals, leases) use
//! these same rules.

mod dir;
mod lock;

pub use dir::{Directory, RecordError};
pub use lock::{Lock, LockError};
