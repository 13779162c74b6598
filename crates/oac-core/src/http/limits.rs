//! The named limits of the HTTP edge (core.md section 4).

use std::time::Duration;

/// Files of releases that are sent at once, to anyone.
pub const DOWNLOADS: usize = 256;
/// How long a client may take nothing of such a file.
pub const STALL: Duration = Duration::from_secs(60);
/// A JSON body under `/core/v1` and `/v1`, unless the route says otherwise.
pub const JSON_BODY_BYTES: usize = 1024 * 1024;
/// A JSON body of a machine route.
pub const MACHINE_BODY_BYTES: usize = 16 * 1024;
/// What is read of the body of a refused request before the refusal is sent, and for how long.
pub const REST_BYTES: usize = 64 << 20;
pub const REST_WAIT: Duration = Duration::from_secs(5);
/// Rows of one page of a list.
pub const PAGE_ROWS: u64 = 100;
/// A Project's, key's or node's name, in bytes.
pub const NAME_BYTES: usize = 128;
