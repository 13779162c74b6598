//! The numbers of protocol.md section 14 that bound frames and their members.

/// hello, welcome, heartbeat, heartbeat_ack, retention, retention_ack; also the read limit before the greeting ends.
pub const CONTROL_FRAME_BYTES: usize = 32 * 1024;
/// request and response.
pub const REQUEST_FRAME_BYTES: usize = 72 * 1024 * 1024;
/// Standard input of a command.
pub const STDIN_BYTES: usize = 50 * 1024 * 1024 + 32;
/// Each output stream of a command.
pub const OUTPUT_BYTES: usize = 1024 * 1024;
/// `retained.data`.
pub const OPAQUE_BYTES: usize = 64 * 1024;
/// A readiness token.
pub const TOKEN_BYTES: usize = 64;
/// `active_operations`, pending requests per connection, and the node's queue.
pub const OPERATIONS: usize = 32;
/// Statuses in a health report, entries in a control frame.
pub const STATUSES: usize = 8;
/// Highest `max_active` and `max_retained`.
pub const CAPACITY: i64 = 1_000_000;
/// `timeout_ms` of a request.
pub const TIMEOUT_MS: std::ops::RangeInclusive<i64> = 1..=120_000;
/// Arguments of a command, and their bytes together.
pub const ARGS: usize = 1024;
pub const ARGS_BYTES: usize = 1024 * 1024;
/// Link credential.
pub const CREDENTIAL_BYTES: usize = 4096;
/// Largest `size`: integers a JSON reader of any language holds exactly.
pub const SIZE_MAX: i64 = (1 << 53) - 1;
