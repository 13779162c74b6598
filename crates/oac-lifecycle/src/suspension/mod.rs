//! The life of an allocation whose provider keeps checkpoints, from its first start on (core.md sections 11 to 13).
//!
//! It must guarantee that a saved state outlives every attempt to restore it until one is linked (INV-C35), that there is
//! at most one target of a checkpoint and none after it was used (INV-C21), that the active slot is free only when nothing
//! can run (INV-C20), that no target is admitted that is being killed (INV-C36), and that nothing is released while a
//! checkpoint or one of its computes may be left (INV-C28). Elapsed time alone destroys nothing (INV-C37).
//!
//! The shape is that of [`crate::allocation`], which it contains: what is stored is a [`Held`], which only
//! [`Held::apply`] changes; what one owner remembers is a [`Watch`], which a takeover loses without harm; [`plan`] looks
//! at both and names the one next [`Action`]. Creation, cleanup's `kill` and the confirmation of a loss are those of the
//! base; here is what lies between, and what a cleanup has to remove besides.
//!
//! Two alternatives were refused. Going back to the source when a restore fails would need a source that still runs, and
//! it was stopped when its checkpoint was bound. Forgetting a target whose answer was lost would let a second one come up
//! beside it: so each target stays recorded until its `kill_compute` is confirmed, wherever it is.

pub mod admission;
mod answer;
mod event;
mod plan;
pub mod pressure;
mod recorded;
mod state;
pub mod target;
mod watch;

pub use admission::{Busy, Stillness, is_given_up, may_suspend};
pub use answer::{Answer, Observation};
pub use event::{Event, Refused};
pub use plan::{Action, Demand, Next, Snapshot, plan, rests_for};
pub use recorded::{Checkpoint, Compute, Open, Progress, Request};
pub use state::Held;
pub use watch::Watch;
