//! Every limit and interval of the link (sessions.md sections 6, 7 and 10).

use std::time::Duration;

/// The hello message.
pub const HELLO_BYTES: usize = 8 * 1024;
/// Welcome and refused messages.
pub const ANSWER_BYTES: usize = 8 * 1024;
/// From the upgrade to the hello, and from the hello to its answer.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// One WebSocket message in either direction. Give it to both libraries as message and frame limit.
pub const MESSAGE_BYTES: usize = 256 * 1024;
/// Bytes gathered into one binary message before it is sent.
pub const SEND_BUFFER_BYTES: usize = 64 * 1024;
/// Each side sends a ping this often.
pub const PING_INTERVAL: Duration = Duration::from_secs(15);
/// A side that has heard nothing for this long closes.
pub const SILENCE: Duration = Duration::from_secs(45);
/// Reads in a row of a peer that sends without a pause, after which others run.
pub const READS_AT_ONCE: u32 = 256;
/// How long a closing side waits for its last messages to leave (INV-S11 allows 5 s in all).
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Open streams of one link.
pub const STREAMS: usize = 64;
/// Of these, how many are kept for control and Turn output.
pub const RESERVED_STREAMS: usize = 16;
/// What yamux itself accepts: a closed stream stays known until the last frames of both sides have passed.
pub const YAMUX_STREAMS: usize = 2 * STREAMS;
/// A stream's window at first.
pub const WINDOW_BYTES: usize = 256 * 1024;
/// A stream's window at most.
pub const WINDOW_MAX_BYTES: usize = 4 * 1024 * 1024;
/// Largest payload of one yamux frame sent, so that no stream holds up the others for long.
pub const FRAME_BYTES: usize = 16 * 1024;
/// Frames of files and ports that yamux holds at once, and so what a control call waits for at most.
pub const BULK_FRAMES_QUEUED: usize = 8;
/// The same of Turn output.
pub const OUTPUT_FRAMES_QUEUED: usize = 8;
/// Stream openings that wait for the driver.
pub const OPENINGS_QUEUED: usize = STREAMS;
/// Bytes of one direction of a port stream in hand, at each end.
pub const PORT_BUFFER_BYTES: usize = 16 * 1024;
/// How often a port stream is looked at beside being read and written.
pub const RESET_LOOK: Duration = Duration::from_secs(1);
/// A port stream with one direction ended is dropped after this long without a byte in the other.
pub const HALF_CLOSED_IDLE: Duration = Duration::from_secs(60);
/// A side of a port stream that takes no byte for this long, while some wait for it, is given up.
pub const PORT_STALL: Duration = Duration::from_secs(300);
/// JSON answers of the runtime's service; a status lists every Turn with a record.
pub const ANSWER_JSON_BYTES: usize = 1024 * 1024;
/// The body of `PUT /v1/turns/{id}`: stdin of 8 MiB as base64 and 192 KiB of args and env, escaped.
pub const PUT_TURN_BYTES: usize = 13 * 1024 * 1024;
/// Other JSON bodies sent to the runtime.
pub const REQUEST_JSON_BYTES: usize = 16 * 1024;
/// Payload of one output record.
pub const RECORD_BYTES: usize = 32 * 1024;
/// One line of an output answer: a record as base64, or the end with its error text.
pub const OUTPUT_LINE_BYTES: usize = 64 * 1024;
/// A file's path.
pub const PATH_BYTES: usize = 4096;
/// The bytes of one PUT of a file.
pub const PUT_FILE_BYTES: u64 = 512 * 1024 * 1024;
/// Entries of one page of a directory.
pub const LIST_ENTRIES: usize = 1000;
/// One page of a directory; the runtime ends a page before it, which a thousand ordinary names never reach.
pub const LIST_JSON_BYTES: usize = 2 * 1024 * 1024;
/// A page's cursor: a name of 255 bytes, encoded.
pub const LIST_CURSOR_BYTES: usize = 1024;
