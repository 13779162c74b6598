//! Sessions, their Turns and output over real requests, with a scripted node, and a sandbox whose runtime end of the
//! link is the real one.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "tests")]

mod api;
mod chaos;
mod conformance;
mod database;
mod files;
mod link;
mod missing;
#[path = "../engine/node.rs"]
#[allow(dead_code, reason = "shared with the engine's tests, which use the rest")]
mod node;
mod output;
mod ports;
mod projects;
mod reader;
mod recovery;
mod runtime;
mod sandbox;
mod takeover;
mod turns;
mod wake;
mod world;
