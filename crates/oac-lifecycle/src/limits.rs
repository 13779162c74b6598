//! Every number the planners use, in milliseconds unless the name says otherwise (core.md sections 11, 13; our choice
//! where the protocol names none).

use crate::Millis;

/// A create that stays unresolved this long, counted in online time of one owner, is given up and cleaned.
pub const CREATE_UNRESOLVED: Millis = 5 * 60_000;
/// A sandbox whose runtime has not linked within this, counted likewise, is given up and cleaned.
pub const FIRST_LINK: Millis = 5 * 60_000;
/// A reservation for which nothing was sent within this owner time is released, and its demand placed again.
pub const RESERVED_UNSENT: Millis = 60_000;
/// An unresolved create is observed this often.
pub const OBSERVE_UNRESOLVED: Millis = 5_000;
/// A link down this long makes Core look, and look again this often while it stays so.
pub const LINK_DOWN: Millis = 60_000;
/// Two answers "compute lost" this far apart on one connection confirm the loss (INV-C22).
pub const LOSS_GAP: Millis = 5_000;
/// Unresolved cleanup repeats after this, doubling ...
pub const CLEANUP_BACKOFF_FIRST: Millis = 5_000;
/// ... up to this.
pub const CLEANUP_BACKOFF_LAST: Millis = 10 * 60_000;
/// A wake that lasts so long, counted in online time of one owner, has failed; and so long nothing is restored again after
/// the last of [`RESTORE_ATTEMPTS`].
pub const WAKE_FAILED: Millis = 10 * 60_000;
/// After so many failed restores only a new input brings another attempt.
pub const RESTORE_ATTEMPTS: u32 = 3;
/// A restore that found no node is tried again after this.
pub const RESTORE_RETRY: Millis = 2_000;
/// A sandbox that was woken and has not linked within this is looked at again.
pub const WAKE_LINK: Millis = 30_000;
/// What is under way with a sandbox that can be suspended is looked at again after this, ...
pub const LOOK_WAITING: Millis = 2_000;
/// ... and one that rests after this, unless somebody says that something changed: a drain or a shorter idle time says so to
/// nobody, and there may be 100,000 of them.
pub const LOOK_RESTING: Millis = 30_000;
/// A mutation that could not be sent is tried again after this.
pub const UNSENT_RETRY: Millis = 1_000;
/// After so many sandboxes in a row that never came to be, the Session fails.
pub const CREATE_ATTEMPTS: u32 = 3;
/// A node whose last heartbeat is this old is offline.
pub const ONLINE_WINDOW: Millis = 45_000;
/// Labels of a node or of a Session's demand.
pub const LABEL_PAIRS: usize = 32;
/// Of a label's key, and of its value.
pub const LABEL_BYTES: usize = 63;
