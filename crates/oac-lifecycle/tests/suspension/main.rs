//! The life of an allocation that can be suspended: its table, and Core's planner against a model of nodes, checkpoint
//! store and network, in which every step, loss and crash may fall anywhere.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "tests")]

mod defects;
mod host;
mod plans;
mod scene;
mod slots;
mod table;
mod target;
mod walk;
