//! Every bound of this crate (node.md sections 2, 7, 8 and 13).

use std::time::Duration;

/// Of `g.json`, `provider.json`, `g.preparing` and the installation's records.
pub const CONFIGURATION_BYTES: usize = 16 * 1024;
/// Of `g.collecting`, `g.dropped` and `g.lease-identity`.
pub const JOURNAL_BYTES: usize = 4 * 1024;
/// Of `manifest.json` and `runtime-artifacts.json`.
pub const MANIFEST_BYTES: usize = 1024 * 1024;
/// Artifacts of one release (releases.md section 2).
pub const ARTIFACTS: usize = 64;
/// Directory levels below `releases/<commit>`; a key has few segments.
pub const RELEASE_DEPTH: usize = 16;
/// One preparation or repair.
pub const ATTEMPT: Duration = Duration::from_secs(30 * 60);
/// One collection.
pub const COLLECTION: Duration = Duration::from_secs(2 * 60);
/// After the first, second, third, fourth and every later failure.
pub const BACKOFF: [Duration; 5] = [
    Duration::from_secs(60),
    Duration::from_secs(2 * 60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(10 * 60),
    Duration::from_secs(30 * 60),
];
/// After a busy lock or lease.
pub const BUSY: Duration = Duration::from_secs(60);
