//! Turns under load, under attack and over deaths: the same Core, scripted node and sandboxes as the tests of Sessions.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "tests")]

mod deaths;
mod hostile;
mod kept;
#[path = "../engine/node.rs"]
#[allow(dead_code, reason = "shared with the engine's tests, which use the rest")]
mod node;
#[path = "../sessions/reader.rs"]
#[allow(dead_code, reason = "shared with the tests of Sessions, which use the rest")]
mod reader;
mod real;
#[path = "../sessions/sandbox.rs"]
#[allow(dead_code, reason = "shared with the tests of Sessions, which use the rest")]
mod sandbox;
mod volume;
#[path = "../sessions/world.rs"]
#[allow(dead_code, reason = "shared with the tests of Sessions, which use the rest")]
mod world;
