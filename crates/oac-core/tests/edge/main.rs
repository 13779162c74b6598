//! Core's HTTP edge over real requests: credentials, bodies, order of checks, and the operator's and machines' routes.

#![allow(clippy::unwrap_used, reason = "tests")]

mod bodies;
mod commands;
mod console;
mod credentials;
mod deployment;
mod enrollment;
mod golden;
mod metrics;
mod nodes;
mod openapi;
mod operating;
mod order;
mod owner;
mod program;
mod projects;
mod releases;
mod secrets;
mod transport;
