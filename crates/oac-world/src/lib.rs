//! The control plane in one seeded, single-threaded world: Cores that come and go, nodes, their engines, and a network
//! that delays, cuts, half-opens and doubles, and operators who change everything meanwhile, all in virtual time. In one of
//! four worlds sandboxes can be suspended, and Turns run in them.
//!
//! The machines of both ends (`oac-peer`), the planners (`oac-lifecycle`) and the receipts (`oac-provider`) are the
//! product's own. Around them stand, in memory, the shells that the product has around them, with their order of
//! storing and acting; the database as transactions that commit at one moment and whose sender may learn nothing of it;
//! and hosts whose engine calls outlive whoever made them. In goes a seed: it draws the world, a schedule of faults,
//! and every delay. After each event the invariants are checked against what really is so, which no Core sees. Then
//! the faults end, and everything must come to rest: each sandbox runs or is gone, and nothing is left behind.
//!
//! Out comes the first broken rule with the shortest schedule that still breaks it. That the checks bite is proven by
//! planting mistakes in the shells ([`Defect`]). Real sockets, files, engines and databases are the business of other
//! tests.

mod agenda;
mod check;
mod core;
mod database;
mod defect;
mod fault;
mod host;
mod ids;
mod invariant;
mod network;
mod run;
mod strike;
mod suspension;
mod traffic;
mod world;

pub use defect::Defect;
pub use fault::{Clock, Fault, Loss, Planned, Tamper, schedule};
pub use invariant::Invariant;
pub use run::{Failure, Life, live, live_with, shrink};
pub use world::{Reached, Violation};
