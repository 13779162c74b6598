//! Every limit, interval and fixed name of the runtime (sessions.md sections 3, 6, 7 and 10).

use std::time::Duration;

pub(crate) const BOOTSTRAP_BYTES: u64 = 16 * 1024;

/// Threads for file work, and how long an idle one stays: they count as processes of the sandbox.
pub(crate) const BLOCKING_THREADS: usize = 8;
pub(crate) const BLOCKING_THREAD_LIFE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// One attempt to reach Core, from the first packet to the end of the upgrade.
pub(crate) const DIAL_TIMEOUT: Duration = Duration::from_secs(20);
/// One address of a host that has several.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
pub(crate) const RETRY_FIRST: Duration = Duration::from_secs(1);
pub(crate) const RETRY_MAX: Duration = Duration::from_secs(30);
/// After a newer connection of the same allocation was accepted.
pub(crate) const RETRY_SUPERSEDED: Duration = Duration::from_secs(30);
/// A link that lasted this long starts the delays over.
pub(crate) const RETRY_RESET: Duration = Duration::from_secs(30);

/// Port streams at once: those of every stream of a link, and those whose ends are still on their way.
pub(crate) const PORT_STREAMS: usize = oac_link::limits::YAMUX_STREAMS;
/// One loopback address of a port.
pub(crate) const PORT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Of the threads for file work, how many may serve file operations at once: the records of Turns keep the others.
pub(crate) const FILE_THREADS: usize = BLOCKING_THREADS / 2;
/// A file's bytes handled at once; an upload holds two such pieces, a download one beside what its stream buffers.
pub(crate) const FILE_CHUNK_BYTES: usize = 256 * 1024;

/// Wakes under way at once; their one line, how long it may take, and how long the command waits in all.
pub(crate) const WAKES: usize = 8;
pub(crate) const WAKE_LINE_BYTES: u64 = 1024;
pub(crate) const WAKE_READ: Duration = Duration::from_secs(5);
pub(crate) const WAKE_WAIT: Duration = Duration::from_secs(20);
pub(crate) const WAKE_RETRY: Duration = Duration::from_millis(200);

/// Between SIGTERM and SIGKILL when the runtime itself is told to end.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(10);
/// What the runtime waits beyond that for exit records.
pub(crate) const STOP_EXTRA: Duration = Duration::from_secs(5);

/// Output that is written but not acknowledged; at the bound the pipes of a running process are not read.
pub(crate) const UNACKNOWLEDGED_BYTES: u64 = 32 * 1024 * 1024;
/// Output that was read and waits for the log.
pub(crate) const PENDING_BYTES: u64 = 1024 * 1024;
/// One read of a pipe, and the payload of one record.
pub(crate) const RECORD_BYTES: usize = oac_link::limits::RECORD_BYTES;
/// A segment of the log is closed beyond this size; acknowledged segments are removed whole.
pub(crate) const SEGMENT_BYTES: u64 = 4 * 1024 * 1024;
/// The first output of a burst waits this long for what belongs to it, an end most of all, so that one flush of the
/// disk serves a short command.
pub(crate) const GROUP_COMMIT: Duration = Duration::from_millis(1);
/// After a process ended, how long its pipes may stay open in other hands.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// A log that cannot be written is tried again this often.
pub(crate) const WRITE_RETRY: Duration = Duration::from_secs(1);
/// Room on the disk that is kept for the record of a Turn's start, and for what was read of its output but not written
/// when its process ended.
pub(crate) const RESERVE_START_BYTES: u64 = 256 * 1024;
pub(crate) const RESERVE_END_BYTES: u64 = 2 * PENDING_BYTES;
/// Output handed to one answer at a time.
pub(crate) const READ_BYTES: usize = 256 * 1024;

pub(crate) const ARGS: usize = 1024;
pub(crate) const ARGS_BYTES: usize = 128 * 1024;
pub(crate) const ENV_PAIRS: usize = 256;
pub(crate) const ENV_BYTES: usize = 64 * 1024;
pub(crate) const STDIN_BYTES: usize = 8 * 1024 * 1024;
pub(crate) const TIMEOUT_MS: u64 = 86_400_000;
pub(crate) const GRACE_MS: u64 = 600_000;

/// The base environment of every Turn.
pub(crate) const BASE_ENV: [(&str, &str); 3] = [
    ("HOME", "/home/runtime"),
    (
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ),
    ("LANG", "C.UTF-8"),
];

/// Of how a Turn's processes weigh when the sandbox is out of memory, relative to the runtime, which weighs nothing
/// more than its size: half of the sandbox's memory each.
pub(crate) const OUT_OF_MEMORY_WEIGHT: &str = "500";
