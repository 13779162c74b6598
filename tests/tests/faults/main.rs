//! Faults, on a real Docker Engine with real programs: whatever is cut, killed, restarted or used up, nothing is lost,
//! nothing runs twice, and the Session goes on.

mod commands;
mod core_killed;
mod cutting;
mod engine;
mod field;
mod limits;
mod link;
mod one_core;
mod random;
mod readers;
mod sandbox;
mod takeover;
