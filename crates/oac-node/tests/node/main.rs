//! The node in process, against a scripted Core on a real socket and a scripted provider; against a real Core where the
//! way between them is what is tried.

mod canaries;
mod connection;
mod docker;
mod frames;
mod installation;
mod limits;
mod managing;
mod metrics;
mod operations;
mod program;
mod provider;
mod proxies;
mod real_core;
mod registration;
mod requests;
mod scripted_core;
mod shapes;
