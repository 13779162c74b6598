//! Which bytes of a WebSocket stream belong to protocol frames.
//!
//! The silence limit counts received bytes of text messages, so that a large frame on a slow link is no silence, and
//! counts neither ping nor pong (protocol.md section 6). A WebSocket library reports whole messages only; this reader
//! walks along the raw bytes (after TLS) and needs no copy of them. It also sees a message's announced size before
//! the library makes room for it, so that a greeting above 32 KiB is refused unread (protocol.md section 2).

use oac_wire::limits::{CONTROL_FRAME_BYTES, REQUEST_FRAME_BYTES};

/// Walks one direction of a WebSocket connection.
#[derive(Debug, Clone)]
pub struct FrameBytes {
    at: At,
    /// Data messages begun so far; the first is the greeting.
    messages: u64,
    /// Announced bytes of the current data message.
    message_bytes: u64,
}

/// What a piece of the stream held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// At least one byte belonged to a data message, its header included.
    pub protocol: bool,
    /// A message announced more than its limit: 32 KiB for the first, 72 MiB for the others.
    pub oversized: bool,
}

#[derive(Debug, Clone, Copy)]
enum At {
    /// In the upgrade's HTTP head; how much of `\r\n\r\n` was seen.
    Head(u8),
    /// In a frame header: bytes seen so far and how many it has.
    Header { seen: [u8; HEADER], length: usize },
    /// In a payload.
    Payload { left: u64, counts: bool },
}

/// Two bytes, an eight-byte length, a four-byte mask.
const HEADER: usize = 14;
const MASKED: u8 = 0x80;
const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const OPCODE: u8 = 0x0f;
const END_OF_HEAD: &[u8; 4] = b"\r\n\r\n";

impl FrameBytes {
    /// A stream that begins with the head of the upgrade (a client's received bytes).
    pub fn after_http_head() -> Self {
        Self::starting(At::Head(0))
    }

    /// A stream that begins with the first frame.
    pub fn at_first_frame() -> Self {
        Self::starting(START)
    }

    fn starting(at: At) -> Self {
        Self {
            at,
            messages: 0,
            message_bytes: 0,
        }
    }

    /// Takes the next bytes.
    pub fn take(&mut self, mut bytes: &[u8]) -> Taken {
        let mut counted = false;
        while let Some(&byte) = bytes.first() {
            match self.at {
                At::Head(matched) => {
                    let expected = END_OF_HEAD[usize::from(matched)];
                    let matched = if byte == expected {
                        matched + 1
                    } else {
                        u8::from(byte == b'\r')
                    };
                    self.at = if usize::from(matched) == END_OF_HEAD.len() {
                        START
                    } else {
                        At::Head(matched)
                    };
                    bytes = &bytes[1..];
                }
                At::Header { mut seen, length } => {
                    seen[length] = byte;
                    bytes = &bytes[1..];
                    self.at = self.header(seen, length + 1);
                    counted |= is_data(seen[0]);
                }
                At::Payload { left, counts } => {
                    let taken = left.min(bytes.len() as u64);
                    counted |= counts && taken > 0;
                    bytes = &bytes[taken as usize..];
                    self.at = if taken == left {
                        START
                    } else {
                        At::Payload {
                            left: left - taken,
                            counts,
                        }
                    };
                }
            }
        }
        let limit = if self.messages <= 1 {
            CONTROL_FRAME_BYTES
        } else {
            REQUEST_FRAME_BYTES
        };
        Taken {
            protocol: counted,
            oversized: self.message_bytes > limit as u64,
        }
    }

    fn header(&mut self, seen: [u8; HEADER], length: usize) -> At {
        if length < 2 {
            return At::Header { seen, length };
        }
        let extended = match seen[1] & !MASKED {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask = if seen[1] & MASKED == 0 { 0 } else { 4 };
        if length < 2 + extended + mask {
            return At::Header { seen, length };
        }
        let left = match extended {
            0 => u64::from(seen[1] & !MASKED),
            _ => seen[2..2 + extended]
                .iter()
                .fold(0u64, |n, b| n << 8 | u64::from(*b)),
        };
        match seen[0] & OPCODE {
            CONTINUATION => self.message_bytes = self.message_bytes.saturating_add(left),
            TEXT | BINARY => {
                self.messages += 1;
                self.message_bytes = left;
            }
            _ => {}
        }
        if left == 0 {
            return START;
        }
        At::Payload {
            left,
            counts: is_data(seen[0]),
        }
    }
}

const START: At = At::Header {
    seen: [0; HEADER],
    length: 0,
};

fn is_data(first: u8) -> bool {
    matches!(first & OPCODE, CONTINUATION | TEXT | BINARY)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(opcode: u8, payload: usize, masked: bool) -> Vec<u8> {
        let mut bytes = vec![0x80 | opcode];
        let mask = if masked { MASKED } else { 0 };
        match payload {
            0..=125 => bytes.push(mask | payload as u8),
            126..=65535 => {
                bytes.push(mask | 126);
                bytes.extend((payload as u16).to_be_bytes());
            }
            _ => {
                bytes.push(mask | 127);
                bytes.extend((payload as u64).to_be_bytes());
            }
        }
        bytes.extend(vec![9; if masked { 4 } else { 0 } + payload]);
        bytes
    }

    // inv: INV-P21
    #[test]
    fn pings_pongs_and_the_upgrade_are_no_protocol_bytes() {
        let mut stream = FrameBytes::after_http_head();
        assert!(
            !stream
                .take(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n")
                .protocol
        );
        for control in [frame(9, 125, false), frame(10, 0, false), frame(8, 2, false)] {
            assert!(!stream.take(&control).protocol);
        }
        assert!(stream.take(&frame(1, 0, false)[..1]).protocol);
        assert!(stream.take(&frame(1, 0, false)[1..]).protocol);
    }

    #[test]
    fn a_message_above_its_limit_is_known_before_its_payload_arrives() {
        let head = |payload: usize, opcode: u8| frame(opcode, payload, false)[..10].to_vec();
        let (first, later) = (CONTROL_FRAME_BYTES, REQUEST_FRAME_BYTES);
        assert!(
            FrameBytes::at_first_frame()
                .take(&head(first + 65_536, TEXT))
                .oversized
        );
        let mut stream = FrameBytes::at_first_frame();
        assert!(!stream.take(&frame(TEXT, first, false)).oversized);
        assert!(!stream.take(&frame(9, 100, false)).oversized);
        assert!(!stream.take(&frame(TEXT, later, false)).oversized);
        assert!(
            stream.take(&frame(CONTINUATION, 1, false)).oversized,
            "pieces add up"
        );
        let mut stream = FrameBytes::at_first_frame();
        stream.take(&frame(TEXT, 1, false));
        assert!(stream.take(&head(later + 1, BINARY)).oversized);
    }

    proptest! {
        // inv: INV-P21
        #[test]
        fn every_piece_of_a_text_message_counts_and_no_piece_of_a_ping(
            frames in prop::collection::vec((prop::sample::select(vec![0u8, 1, 9, 10]), 0usize..70_000, any::<bool>()), 1..8),
            cut in 1usize..5_000,
        ) {
            let mut stream = FrameBytes::at_first_frame();
            for (opcode, payload, masked) in frames {
                for piece in frame(opcode, payload, masked).chunks(cut) {
                    prop_assert_eq!(stream.take(piece).protocol, opcode < 2);
                }
            }
        }
    }
}
