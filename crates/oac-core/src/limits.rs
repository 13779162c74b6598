//! The named bounds of the Session API and the sandbox link (sessions.md sections 3, 6 and 10).

use std::time::Duration;

/// JSON body of POST inputs.
pub(crate) const INPUT_BODY_BYTES: usize = 12 << 20;
pub(crate) const INPUT_ARGS: usize = 1024;
pub(crate) const INPUT_ARGS_BYTES: usize = 128 << 10;
pub(crate) const INPUT_ENV_PAIRS: usize = 256;
pub(crate) const INPUT_ENV_BYTES: usize = 64 << 10;
pub(crate) const INPUT_STDIN_BYTES: usize = 8 << 20;
pub(crate) const PATH_BYTES: usize = 4096;
pub(crate) const TIMEOUT_SECONDS: std::ops::RangeInclusive<i64> = 1..=86_400;
pub(crate) const DEFAULT_TIMEOUT_SECONDS: i64 = 3600;
pub(crate) const METADATA_PAIRS: usize = 16;
pub(crate) const METADATA_BYTES: usize = 512;
pub(crate) const SESSION_NAME_BYTES: usize = 128;
pub(crate) const LABEL_PAIRS: usize = 32;
pub(crate) const LABEL_BYTES: usize = 63;
pub(crate) const IDEMPOTENCY_KEY_BYTES: usize = 128;
/// How long an idempotency record answers replays.
pub(crate) const IDEMPOTENCY_AGE: Duration = Duration::from_secs(24 * 3600);

/// Turns of one Session that are queued, waiting or running.
pub(crate) const UNFINISHED_TURNS: usize = 64;
/// Rows of one list page, at most and by default.
pub(crate) const LIST_PAGE: u32 = 100;

/// Output kept per Turn; later bytes are counted and dropped.
pub(crate) const MAX_STORED_OUTPUT_BYTES: u64 = 16 << 20;
/// One stored row, and so one `output` event.
pub(crate) const MAX_OUTPUT_ROW_BYTES: usize = 32 << 10;
/// Output stored in one transaction, roughly: a batch at or above it takes no further record.
pub(crate) const MAX_BATCH_BYTES: u64 = 1 << 20;
/// Output read for a reader at once.
pub(crate) const READER_PAGE_ROWS: u32 = 16;
/// How long output is kept after its Turn ended.
pub(crate) const OUTPUT_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// The latest events of a Session that are kept.
pub(crate) const KEPT_EVENTS: u64 = 10_000;
/// Open event streams of one Session.
pub(crate) const STREAMS_PER_SESSION: usize = 32;
/// A comment keeps an idle event stream open through proxies.
pub(crate) const STREAM_COMMENT: Duration = Duration::from_secs(15);

/// How long a runtime waits between SIGTERM and SIGKILL when its Turn is canceled.
pub(crate) const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// Links between upgrade and welcome.
pub(crate) const OPENING_LINKS: usize = 256;
pub(crate) const HELLO_WAIT: Duration = Duration::from_secs(10);
pub(crate) const HELLO_BYTES: usize = 8 << 10;
/// Hellos of one address refused in one minute before the next are answered `link_busy` unread.
pub(crate) const REJECTED_HELLOS: u32 = 60;
pub(crate) const REJECTED_HELLOS_WINDOW: Duration = Duration::from_secs(60);
/// Addresses whose refusals are remembered; the oldest window is forgotten first.
pub(crate) const REJECTED_ADDRESSES: usize = 4096;
