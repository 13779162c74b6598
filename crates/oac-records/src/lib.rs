//! Private files that must survive a power loss: how they are opened, written, published, removed and locked
//! (node.md section 3).
//!
//! Names go in relative to one private directory that is held open; bytes come out only from a regular file with
//! exact mode, owner and link count, and a locked file is still the one its name denotes. A refusal changes nothing.
//! What a function here changed is durable when it returns. This crate knows no record's content.
//!
//! The shape: a file is made whole under `.<name>.partial`, synced, and renamed; so whoever is killed at any system
//! call leaves each name wholly old or wholly new. With the feature `steps` each system call that changes the disk
//! passes through [`steps`] first, where tests kill the process or record what a power loss could take back.

mod directory;
mod lock;
mod partial;
#[cfg(feature = "steps")]
pub mod steps;

pub use directory::{Directory, FileMode, RecordError};
pub use lock::{Hold, Lock, LockError};
pub use partial::Partial;

/// Announces a change of the disk that is about to be made; where the feature is off, nothing, and always `Ok`.
macro_rules! step {
    ($($step:tt)*) => {{
        #[cfg(feature = "steps")]
        let announced = $crate::steps::announce($crate::steps::Step::$($step)*);
        #[cfg(not(feature = "steps"))]
        let announced = Ok::<(), rustix::io::Errno>(());
        announced
    }};
}
use step;
