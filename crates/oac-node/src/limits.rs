//! Every bound of the node program, named once (node.md section 13, protocol.md section 14).

use std::time::Duration;

/// `identity.json`, `provider.json`, generation configurations.
pub const RECORD_BYTES: usize = 16 * 1024;
/// One line of an enrollment token on standard input.
pub const TOKEN_BYTES: usize = 4096;
/// A body that Core answers on a machine route.
pub const CORE_BODY_BYTES: usize = 16 * 1024;
/// GET identity, GET configuration, POST enroll.
pub const CORE_CALL: Duration = Duration::from_secs(15);
/// A write that moves no byte for this long closes the connection.
pub const WRITE_PROGRESS: Duration = Duration::from_secs(10);
/// The registration probe and each health probe.
pub const PROBE: Duration = Duration::from_secs(5);
/// At most one probe of a managing node begins in this time.
pub const PROBE_TURN: Duration = Duration::from_secs(1);
/// A generation that is ready is probed again after this long.
pub const READY_PROBE: Duration = Duration::from_secs(10);
/// One import of a Runtime image's archive.
pub const IMPORT: Duration = Duration::from_secs(1800);
/// Wait for in-process operations after SIGTERM.
pub const SHUTDOWN: Duration = Duration::from_secs(10);
/// A Close message is a courtesy; the socket is dropped when it cannot be written in this time.
pub const CLOSE_WRITE: Duration = Duration::from_secs(1);
/// What an adapter maintains by itself (Docker: the sweep) comes at start and this often.
pub const MAINTENANCE: Duration = Duration::from_secs(600);
/// One read of a proc or cgroup file.
pub const MEASUREMENT_BYTES: u64 = 1024 * 1024;
/// cgroup levels from the process's own to the root.
pub const CGROUP_LEVELS: usize = 128;
/// `--operations`: default and bounds.
pub const OPERATIONS: std::ops::RangeInclusive<usize> = 1..=32;
pub const DEFAULT_OPERATIONS: usize = 8;
/// Frames queued for writing on one connection: 32 answers of waiting and 32 of running requests, and as many
/// refusals; a Core that reads none of them loses the connection.
pub const OUTGOING_FRAMES: usize = 96;
