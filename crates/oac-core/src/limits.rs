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
pub(crate) const TIMEOUT_SECONDS: std::ops::RangeInclusive<u32> = 1..=86_400;
pub(crate) const DEFAULT_TIMEOUT_SECONDS: u32 = 3600;
pub(crate) const METADATA_PAIRS: usize = 16;
pub(crate) const METADATA_BYTES: usize = 512;
pub(crate) const IDEMPOTENCY_KEY_BYTES: usize = 128;

/// Sessions stored in one transaction: a whole one takes the database about as long as a commit.
pub(crate) const ADMISSIONS_PER_TRANSACTION: usize = 64;
/// Sessions that wait to be stored; who asks for a further one is told to come again. Seconds of work for a database.
pub(crate) const ADMISSIONS_WAITING: usize = 4_096;
/// A row that another transaction holds is looked at again after this, unless other work comes first.
pub(crate) const HELD_PAUSE: Duration = Duration::from_millis(10);
/// Rows are held for milliseconds. From then on another node is as good as one whose row is still held.
pub(crate) const HELD_SHORTLY: Duration = Duration::from_millis(100);
/// So long a row that others hold is waited for, which is how long a database waits for a lock (core.md section 3).
pub(crate) const HELD_LONGEST: Duration = Duration::from_secs(3);
/// Turns of one Session that are queued, waiting or running.
pub(crate) const UNFINISHED_TURNS: u64 = 64;
/// Events read for a reader at once.
pub(crate) const EVENTS_PAGE: u64 = 100;

/// Output kept per Turn; later bytes are counted and dropped.
pub(crate) const MAX_STORED_OUTPUT_BYTES: u64 = 16 << 20;
/// One stored row, and so one `output` event.
pub(crate) const MAX_OUTPUT_ROW_BYTES: usize = 32 << 10;
/// Output stored in one transaction, roughly: a batch at or above it takes no further record.
pub(crate) const MAX_BATCH_BYTES: u64 = 1 << 20;
/// Bytes that are only counted are counted this often, so that a command which never stops writing costs few transactions.
pub(crate) const COUNT_WAIT: Duration = Duration::from_millis(100);
/// Output read for a reader at once, at most 128 KiB: what a reader that stopped reading holds beside its connection's
/// buffer.
pub(crate) const READER_PAGE_ROWS: u64 = 4;
/// How long output is kept after its Turn ended.
pub(crate) const OUTPUT_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long samples of hosts are kept.
pub(crate) const SAMPLES_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Open event streams of one Session.
pub(crate) const STREAMS_PER_SESSION: usize = 32;
/// A comment keeps an idle event stream open through proxies.
pub(crate) const STREAM_COMMENT: Duration = Duration::from_secs(15);

/// A port's connection inside the sandbox: the runtime tries two addresses for 5 s each.
pub(crate) const PORT_CONNECT_WAIT: Duration = Duration::from_secs(15);
/// After a port was not connected because its link broke, its end is waited for, and then the next link.
pub(crate) const PORT_LINK_END_WAIT: Duration = Duration::from_secs(5);
/// From the last moment a request through a port moved to the head of its answer.
pub(crate) const PORT_HEAD_WAIT: Duration = Duration::from_secs(300);
/// The head of an answer through a port.
pub(crate) const PORT_HEAD_BYTES: usize = 64 << 10;
/// Everything a port sends before the head of its answer was understood: informational answers too.
pub(crate) const PORT_BEFORE_ANSWER_BYTES: usize = 512 << 10;
/// What is left to do for a port's connection once its answer has ended.
pub(crate) const PORT_GOODBYE: Duration = Duration::from_secs(5);

/// How often in a row a stream reads again after the database was busy, and the pause before it.
pub(crate) const STREAM_FAILURES: u32 = 20;
pub(crate) const STREAM_RETRY: Duration = Duration::from_millis(500);

/// How long a runtime waits between SIGTERM and SIGKILL when its Turn is canceled.
pub(crate) const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// Links between upgrade and welcome.
pub(crate) const OPENING_LINKS: usize = 256;
/// Of these, those of one address.
pub(crate) const OPENING_LINKS_OF_ADDRESS: usize = 64;
/// Hellos of one address refused in one minute before further wrong ones are answered `link_busy`.
pub(crate) const REJECTED_HELLOS: u32 = 60;
pub(crate) const REJECTED_HELLOS_WINDOW: Duration = Duration::from_secs(60);
/// Addresses whose refusals are remembered; the oldest window is forgotten first.
pub(crate) const REJECTED_ADDRESSES: usize = 4096;
/// How often links are compared with their allocations beside being told (revocation ends a link within 5 s).
pub(crate) const LINK_SWEEP: Duration = Duration::from_secs(2);

/// Pause after driving a link's Turns failed, doubling to the maximum.
pub(crate) const DRIVE_PAUSE: Duration = Duration::from_millis(500);
pub(crate) const DRIVE_PAUSE_MAX: Duration = Duration::from_secs(15);
/// How often a driver without work looks beside being woken.
pub(crate) const DRIVE_TIMER: Duration = Duration::from_secs(60);
/// That the runtime has a Turn is stored with its first output, at the latest after this.
pub(crate) const CONFIRM_WAIT: Duration = Duration::from_millis(20);
/// How often final acknowledgements are stored, and how many wait for it; further ones are not stored.
pub(crate) const ACKED_TIMER: Duration = Duration::from_secs(1);
pub(crate) const ACKED_NOTED: usize = 10_000;
/// How often old output, events and idempotency records are removed.
pub(crate) const PRUNE_TIMER: Duration = Duration::from_secs(600);
/// Tries of an admission that finds its Environment placed by someone else each time it places it itself.
pub(crate) const ADMISSION_TRIES: usize = 4;

/// Open file operations of one Session.
pub(crate) const FILE_TRANSFERS_PER_SESSION: usize = 8;
/// Open port streams of one Session.
pub(crate) const PORT_STREAMS_PER_SESSION: usize = 32;
/// How long file and port access waits for its sandbox.
pub(crate) const REACH_WAIT: Duration = Duration::from_secs(60);
/// After the last one ended, files or ports count as open this long, so that a burst of them is one activity.
pub(crate) const ACCESS_LINGER: Duration = Duration::from_secs(5);
/// How often what stays open renews its Session's last activity.
pub(crate) const ACCESS_RENEWAL: Duration = Duration::from_secs(30);
/// Pause before activity that could not be stored is stored again.
pub(crate) const ACCESS_RETRY: Duration = Duration::from_secs(1);
/// A file transfer in which nothing moves is ended after this.
pub(crate) const FILE_STALL: Duration = Duration::from_secs(120);
/// Pieces of a download that wait for its client; each is what one read of the sandbox's stream gave.
pub(crate) const FILE_PIECES: usize = 2;
/// Further tries of a read whose link broke before the sandbox answered.
pub(crate) const FILE_READ_TRIES: u32 = 2;
