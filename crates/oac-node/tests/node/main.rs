//! The node in process, against a scripted Core on a real socket and a scripted provider; against a real Core where the
//! way between them is what is tried.

mod canaries;
mod connection;
mod docker;
mod foreign;
mod frames;
mod hostile;
mod installation;
mod kills;
mod limits;
mod managed;
mod managing;
mod metrics;
mod operations;
mod program;
mod provider;
mod proxies;
mod real_core;
mod registration;
mod requests;
mod rigged;
mod scripted_core;
mod scripted_engine;
mod shapes;
