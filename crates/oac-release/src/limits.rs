//! Every bound of releases, named once (releases.md sections 2 and 7, installer.md section 8).

use std::time::Duration;

/// `manifest.json`, `SHA256SUMS`, `index.json`.
pub const METADATA_BYTES: usize = 1024 * 1024;
/// Entries of `artifacts`.
pub const ARTIFACTS: usize = 64;
/// A destination below the payload root.
pub const KEY_BYTES: usize = 128;
pub const FILENAME_BYTES: usize = 160;
/// One artifact.
pub const ARTIFACT_BYTES: u64 = 16 * 1024 * 1024 * 1024;
/// What the bootstrap script takes of an installer.
pub const INSTALLER_BYTES: u64 = 64 * 1024 * 1024;
/// What a release build takes of one, so that a slow link fetches it within the token's hour.
pub const BUILT_INSTALLER_BYTES: u64 = 24 * 1024 * 1024;

/// What an operator pastes, below the limit of a terminal's line (installer.md section 1).
pub const COMMAND_BYTES: usize = 4_000;

/// One try for a metadata file.
pub const METADATA_CALL: Duration = Duration::from_secs(15);
/// Before the second and the third try for metadata; before each of two resumptions of a transfer.
pub const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
/// Redirects of one artifact.
pub const REDIRECTS: usize = 5;
/// A transfer that brings less than this within [`STALL`] has stalled.
pub const STALL_BYTES: u64 = 64 * 1024;
pub const STALL: Duration = Duration::from_secs(60);
/// What is hashed and written at a time.
pub const CHUNK_BYTES: usize = 256 * 1024;
