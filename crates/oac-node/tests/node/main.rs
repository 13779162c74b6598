//! The node in process, against a scripted Core on a real socket and a scripted provider.

mod canaries;
mod connection;
mod docker;
mod installation;
mod limits;
mod operations;
mod program;
mod provider;
mod registration;
mod requests;
mod scripted_core;
mod shapes;
