//! The sandbox link, both ends: one WebSocket that the runtime opens to Core, and everything Core does through it
//! (sessions.md sections 6 and 7).
//!
//! A [`Socket`] of either WebSocket library goes in. At Core's end [`Opening`] reads the hello and answers it, and
//! out comes a [`LinkClient`] with typed calls of the runtime's service; at the sandbox's end [`introduce`] says
//! hello, and out comes a [`LinkServer`] that serves that service. After the welcome, binary messages form one byte
//! stream that carries yamux; Core opens its streams, each holds one HTTP/1.1 exchange, and the runtime opens none
//! (INV-S13: nothing is accepted before the welcome).
//!
//! This crate never dials or listens, never decides whether a credential is good, never spawns a task (it returns
//! futures for the program's own task module) and never writes a credential anywhere but into the hello message.

mod bytestream;
mod client;
mod exchange;
pub mod files;
mod handshake;
mod hello;
mod json;
pub mod limits;
mod mux;
pub mod ports;
mod priority;
mod server;
pub mod service;
mod socket;

pub use client::{CallError, OutputError, OutputItem, OutputStream, PutTurn, Quiesce};
pub use exchange::{Exchange, LinkError, RequestBody, ResponseBody, StreamClass, empty, full};
pub use handshake::{HelloError, IntroduceError, Opening, introduce};
pub use hello::{Hello, Refusal, Welcome};
pub use mux::{LinkClient, LinkDriver, LinkEnd};
pub use ports::{PortError, Tunnel};
pub use server::{LinkServer, StopAccepting};
pub use socket::{CloseReason, Message, Socket, SocketError};
