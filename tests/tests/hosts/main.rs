//! Real hosts: what they are, the commands that operators paste there, and what is left of a node when it is gone.

#![allow(clippy::unwrap_used, reason = "tests")]

mod bootstrap;
mod harness;
mod pasted;
mod setup;
mod stand_in;
