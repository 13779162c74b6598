//! Both ends of the link against each other, over an in-memory connection and the real WebSocket library.

mod handshake;
mod hostile;
mod keepalive;
mod pair;
mod priority;
mod streams;
