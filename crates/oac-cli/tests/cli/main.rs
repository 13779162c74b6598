//! The program `oac` as a person or a script runs it: real processes and terminals, against a real Core in this process
//! or a scripted one that breaks off where a real one would only sometimes.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "tests")]

mod admin;
mod copy;
mod exec;
mod follow;
mod forward;
mod login;
mod manual;
mod node_add;
mod operate;
mod program;
mod proxies;
mod reset;
mod script;
mod terminal;
mod turns;
