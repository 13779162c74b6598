//! Every bound of the hub (protocol.md sections 4, 12 and 14).

use std::time::Duration;

/// The upgrade's time, after its 101 was answered.
pub(super) const UPGRADE: Duration = Duration::from_secs(10);
/// A write without progress closes.
pub(super) const WRITE_PROGRESS: Duration = Duration::from_secs(10);
/// Pause between two tries to remove presence.
pub(super) const REMOVAL_RETRY: Duration = Duration::from_millis(250);
/// Frames waiting to be written: welcome, every pending request, and acknowledgements of the heartbeats and of the
/// retention request that arrived while nothing could be written.
pub(super) const OUTGOING: usize = oac_peer::limits::PENDING_REQUESTS + oac_peer::limits::HEARTBEATS_OWED + 2;
/// Read buffer of an idle connection; one frame grows past it by itself.
pub(super) const READ_BUFFER_BYTES: usize = 4 * 1024;
