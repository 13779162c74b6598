//! Core's storage: one schema and one set of statements for SQLite and PostgreSQL (core.md section 2,
//! sessions.md section 1).
//!
//! In go typed rows and single-purpose writes, out come typed rows and typed errors. [`Store::open`] connects and
//! migrates; [`Store::read`] gives a consistent snapshot; [`Store::begin`] gives a transaction of the Core that owns the
//! installation, in which oac-core composes row-level functions into one atomic step. This crate never decides about a
//! lifecycle, never sees a secret but to hash it, and never writes for a Core whose epoch has passed (INV-C1).
//!
//! # How a stale owner is kept from writing
//!
//! Each owner transaction first takes the owner lock shared, then reads holder and epoch; a takeover takes the same lock
//! exclusive before it raises the epoch. So an old owner's transaction either commits before the takeover or finds another
//! epoch and ends with [`StoreError::NotOwner`] before it changed a row. On SQLite `BEGIN IMMEDIATE` is that lock. On
//! PostgreSQL it is an advisory lock, because a shared row lock would make the lease renewal, which updates that row, wait
//! for every open transaction.
//!
//! # Lock order
//!
//! Owner (shared, taken by `begin`), deployment, nodes by ascending id, Projects, sessions, allocations. [`Tx`]
//! remembers the last rank and refuses a step back with [`StoreError::LockOrder`]. On SQLite the locks exist only as this
//! check: the writer is alone anyway.
//!
//! # Time
//!
//! Every expiry is judged by the database's clock plus [`StoreOptions::clock_offset_millis`], which is zero outside tests:
//! [`Tx::now`] is that clock when the transaction began.

mod allocations;
mod audit;
mod checkpoints;
mod computes;
mod console;
mod deployment;
mod dialect;
mod error;
mod events;
mod exclusive_lock;
mod exec;
#[cfg(feature = "faults")]
mod faults;
mod file_operations;
mod generations;
mod idempotency;
mod keys;
pub mod limits;
mod many;
mod migrate;
mod node_status;
mod nodes;
mod observations;
mod open;
mod operations;
mod output;
mod ownership;
mod placements;
mod projects;
mod reports;
mod resets;
mod row;
mod sessions;
mod texts;
mod tokens;
mod turns;
mod tx;

pub use allocations::{AllocationCount, AllocationPage, AllocationRow, NewAllocation};
pub use audit::{AuditEntry, AuditRow};
pub use checkpoints::CheckpointRow;
pub use computes::ComputeRow;
pub use console::{ConsoleSessionRow, UsedConsoleSession};
pub use deployment::{DeploymentRow, ResourceCounts, Selection};
pub use error::StoreError;
pub use events::EventRow;
pub use exclusive_lock::{ExclusiveLock, ExclusiveLockError};
#[cfg(feature = "faults")]
pub use faults::{Faults, Hold, Side};
pub use file_operations::FileOperationRow;
pub use generations::GenerationRow;
pub use idempotency::IdempotencyRow;
pub use keys::{CoreKeyRow, ProjectKeyRow};
pub use node_status::{GenerationStatusRow, NodeSampleRow};
pub use nodes::{NewDrain, NewNode, NodeCounts, NodeHealth, NodeRow};
pub use observations::{ObservedAllocation, Seen};
pub use open::{Database, OpenError, Store, StoreOptions};
pub use operations::{NewOperation, OperationRow};
pub use output::{OutputChunk, OutputRow};
pub use ownership::{Claim, Holder, OwnerRow, Ownership};
pub use placements::{NewPlacement, PlacementRow, SlotCounts};
pub use projects::ProjectRow;
pub use reports::NodeReport;
pub use resets::{NewReset, ResetSession, ResourceGroup};
pub use row::{Labels, Metadata};
pub use sessions::{NewSession, SessionRow};
pub use texts::{
    AllocationDiagnostic, CleanupCause, Dispatch, DrainIdle, DrainRetained, DrainThen, EventKind,
    FileOperationKind, FileOperationState, GenerationState, Initialization, NodeLimits, ObservationStatus,
    OperationKind, OperationState, OutputStream, ResetClear, TokenLimits,
};
pub use tokens::{EnrollmentTokenRow, NewEnrollmentToken};
pub use turns::{InputRow, NewInput, TurnRow};
pub use tx::{DeploymentLock, LastTx, Read, Tx};
