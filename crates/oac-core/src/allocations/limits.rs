//! Every bound of the allocation workers.

use std::time::Duration;

/// Rows read at a time.
pub(super) const PAGE: u64 = 32;
/// Operations that Core keeps open at one node.
pub(super) const OPERATIONS_PER_NODE: usize = 8;
/// Suspensions that, beside those, wait for a runtime at one node to fall quiet.
pub(super) const QUIETING_PER_NODE: usize = 8;
/// A runtime that was asked to fall quiet has answered within this, and its link has closed within this again. One that
/// syncs its file systems longer is woken, and asked another time.
pub(super) const QUIESCE: Duration = Duration::from_secs(10);
/// So long a runtime is kept quiet for a place at its node.
pub(super) const PLACE: Duration = Duration::from_secs(10);
/// The longest a pass waits for a poke or the next due allocation.
pub(super) const IDLE_PASS: Duration = Duration::from_secs(2);
/// What cannot be read is read again, and said again, after this.
pub(super) const UNREADABLE_MILLIS: i64 = 60_000;
/// Pause after a pass that the database did not carry.
pub(super) const FAILED_PASS: Duration = Duration::from_millis(500);
/// A create's wait: an image that was never used on the host starts slowly.
pub(super) const CREATE: Duration = Duration::from_secs(120);
pub(super) const KILL: Duration = Duration::from_secs(60);
/// A capture, or a restore with its checks.
pub(super) const SUSPEND: Duration = Duration::from_secs(120);
pub(super) const RESUME: Duration = Duration::from_secs(120);
/// The wake command itself waits 20 s for the runtime to reconnect.
pub(super) const WAKE: Duration = Duration::from_secs(40);
pub(super) const INFO: Duration = Duration::from_secs(30);
pub(super) const OBSERVE: Duration = Duration::from_secs(30);
/// Tries to store what a node answered before it is left to observation.
pub(super) const STORE_TRIES: usize = 5;
pub(super) const STORE_PAUSE: Duration = Duration::from_millis(50);
/// Of these, at most so many were open when a sandbox is sampled: a node that answers no sample still takes what moves
/// sandboxes.
pub(super) const OPERATIONS_BESIDE_A_SAMPLE: usize = 4;
/// What waits because a node is busy is looked at again after this.
pub(super) const BUSY_MILLIS: i64 = 200;
/// A running sandbox is sampled about this often.
pub(super) const SAMPLE_MILLIS: i64 = 30_000;
/// Samples that wait to be stored; further ones are lost, and read again.
pub(super) const SAMPLES_WAITING: usize = 16_384;
/// One that finds no place for its sample at its node is looked at again after this, or twice this: not all at once.
pub(super) const NO_SAMPLE_MILLIS: i64 = 5_000;
/// A Session that waits for a placement is tried again after this.
pub(super) const DEMAND_MILLIS: i64 = 2_000;
/// Whoever changes an allocation tells of it; beside that, stored ones are looked through no more often than this, and in
/// no more than one of so many parts of the time.
pub(super) const FIND_MILLIS: i64 = 2_000;
pub(super) const FIND_SHARE: i64 = 20;
/// Resting allocations are looked through no more often than this.
pub(super) const SCAN_MILLIS: i64 = 200;
/// Ended steps that wait to be noted.
pub(super) const ENDED_STEPS: usize = 256;
/// Demands that fit nowhere are looked at no more often than this.
pub(super) const RELIEF_MILLIS: i64 = 1_000;
/// So long one sandbox is tried to be suspended early, before another is for the same demand.
pub(super) const RELIEF_WAIT_MILLIS: i64 = 60_000;
/// Full nodes without an idle sandbox that are passed over for one demand at a time.
pub(super) const RELIEF_NODES: usize = 16;
/// Full nodes and wanted checkpoints that one pass over all demands looks at; more than one demand needs.
pub(super) const RELIEF_LOOKS: usize = 64;
/// Sandboxes of one node that are looked at.
pub(super) const RELIEF_CANDIDATES: u64 = 32;
/// One that was to be suspended early, was not busy and was not suspended is not chosen again before.
pub(super) const RELIEF_AGAIN_MILLIS: i64 = 300_000;
