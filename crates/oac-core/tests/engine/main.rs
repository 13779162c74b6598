//! Core's hub, placement and allocation workers, against a scripted node that speaks the real protocol over a real
//! WebSocket. The node's engine is the only thing played: it survives its node being killed, keeps receipts, and counts
//! what really happened to each allocation.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "tests")]

mod admissions;
mod away;
mod calls;
mod create;
mod crowd;
mod discard;
mod drain;
mod frames;
mod hub;
mod kill;
mod limits;
mod loss;
mod managing;
mod metrics;
mod node;
mod observations;
mod operating;
mod pace;
mod placement;
mod reports;
mod reset;
mod resetting;
mod secrets;
mod storm;
mod suspension;
mod traces;
mod world;
