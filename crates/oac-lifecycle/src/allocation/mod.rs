//! The life of one allocation on a provider without checkpoints (core.md sections 11 and 13).
//!
//! It must guarantee that no `create` is sent twice, that at most one mutation is open and none is sent before its
//! intent is stored, that a node out of reach never loses an allocation, and that ownership ends only with proof:
//! a settled create and a confirmed, observed absence.
//!
//! The shape: what is stored becomes a [`State`], which only [`State::apply`] changes; what one owner remembers since
//! it took over is a [`Watch`], which a restart loses without harm; [`plan`] looks at both and names the one next
//! [`Action`]. A saga with steps to resume was refused: after a crash it would need to know where it was, whereas a
//! plan only needs to know what is so.

mod plan;
mod sighting;
mod state;

pub use plan::{Action, Next, Noted, Presence, Snapshot, Watch, plan};
pub use sighting::{Diagnostic, Sighting};
pub use state::{
    Afterwards, Cause, CreateProof, Event, Kill, Mutation, OperationState, Record, RecordError, Refused,
    State,
};
