//! The numbers of protocol.md section 14 that belong to the connection, in milliseconds.

/// TCP, TLS and upgrade together.
pub const DIAL_MILLIS: u64 = 10_000;
/// Core's wait for hello.
pub const HELLO_MILLIS: u64 = 15_000;
/// The node's wait for welcome after its hello, and for its own first report before it.
pub const WELCOME_MILLIS: u64 = 15_000;
pub const HEARTBEAT_MILLIS: u64 = 10_000;
/// Either peer closes after this long without a received byte of a protocol frame.
pub const SILENCE_MILLIS: u64 = 35_000;
/// Presence removal before the reservation is freed all the same.
pub const REMOVAL_MILLIS: u64 = 5_000;
pub const BACKOFF_FIRST_MILLIS: u64 = 1_000;
pub const BACKOFF_LAST_MILLIS: u64 = 30_000;
/// An attempt that lasted this long starts the backoff anew.
pub const BACKOFF_RESET_MILLIS: u64 = 30_000;
/// Request budgets.
pub const BUDGET_MILLIS: std::ops::RangeInclusive<u64> = 1..=120_000;
pub const DEFAULT_BUDGET_MILLIS: u64 = 30_000;
/// Requests pending per connection at Core, those whose caller gave up included.
pub const PENDING_REQUESTS: usize = 32;
/// Entries waiting in the node's queue.
pub const WAITING_REQUESTS: usize = 32;
/// Operations whose native work has not ended.
pub const UNFINISHED_OPERATIONS: usize = 32;
/// The node's wait for a retention_ack; one exchange is pending at a time.
pub const RETENTION_MILLIS: u64 = 35_000;
/// Statuses of one health report, and entries of one retention exchange.
pub const NAMED_GENERATIONS: usize = 8;
/// Heartbeats that wait for one recording; they share it, and each gets its acknowledgement.
pub const HEARTBEATS_OWED: usize = 8;
