//! Real hosts: what they are, the commands that operators paste there, and what is left of a node when it is gone.

#![allow(clippy::unwrap_used, reason = "tests")]

mod alone;
mod bootstrap;
mod harness;
mod installed;
mod interrupted;
mod pasted;
mod setup;
mod site;
mod stand_in;
mod story;
