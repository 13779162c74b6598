//! Which bytes of a WebSocket stream belong to protocol frames.
//!
//! The silence limit counts received bytes of text messages, so that a large frame on a slow link is no silence, and
//! counts neither ping nor pong (protocol.md section 6). A WebSocket library reports whole messages only; this reader
//! walks along the raw bytes (after TLS) and needs no copy of them.

/// Walks one direction of a WebSocket connection.
#[derive(Debug, Clone)]
pub struct FrameBytes {
    at: At,
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
const END_OF_HEAD: &[u8; 4] = b"\r\n\r\n";

impl FrameBytes {
    /// A stream that begins with the head of the upgrade (a client's received bytes).
    pub fn after_http_head() -> Self {
        Self { at: At::Head(0) }
    }

    /// A stream that begins with the first frame.
    pub fn at_first_frame() -> Self {
        Self { at: START }
    }

    /// Takes the next bytes; true when at least one of them belongs to a text message, its header included.
    pub fn take(&mut self, mut bytes: &[u8]) -> bool {
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
                    self.at = header(seen, length + 1);
                    counted |= is_text(seen[0]);
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
        counted
    }
}

const START: At = At::Header {
    seen: [0; HEADER],
    length: 0,
};

fn is_text(first: u8) -> bool {
    matches!(first & 0x0f, CONTINUATION | TEXT)
}

fn header(seen: [u8; HEADER], length: usize) -> At {
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
    if left == 0 {
        return START;
    }
    At::Payload {
        left,
        counts: is_text(seen[0]),
    }
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
        assert!(!stream.take(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n"));
        assert!(!stream.take(&frame(9, 125, false)));
        assert!(!stream.take(&frame(10, 0, false)));
        assert!(!stream.take(&frame(8, 2, false)));
        assert!(stream.take(&frame(1, 0, false)[..1]));
        assert!(stream.take(&frame(1, 0, false)[1..]));
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
                    prop_assert_eq!(stream.take(piece), opcode < 2);
                }
            }
        }
    }
}
