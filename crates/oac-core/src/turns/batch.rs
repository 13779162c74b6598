//! From the records a runtime sends to the rows Core stores (sessions.md section 3, "Output").
//!
//! A batch always continues exactly where the stored bytes end: what is already stored is cut off, a gap is an error,
//! neighbouring records of one stream become one row, and bytes beyond the bound of a Turn are counted, not kept.

use crate::limits::{MAX_OUTPUT_ROW_BYTES, MAX_STORED_OUTPUT_BYTES};

/// One row to store: bytes of one stream, the first of which has number `offset`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row<S> {
    pub offset: u64,
    pub stream: S,
    pub bytes: Vec<u8>,
}

/// The runtime sent a record that starts after the bytes known so far: following it would lose bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the runtime's output continues at byte {found}, expected {expected}")]
pub(crate) struct Gap {
    pub expected: u64,
    pub found: u64,
}

/// Bytes received but not yet stored.
#[derive(Debug)]
pub(crate) struct Batch<S> {
    start: u64,
    end: u64,
    /// Bytes held in `rows`; less than `end - start` once the bound of the Turn is reached.
    held: u64,
    rows: Vec<Row<S>>,
}

impl<S: Copy + PartialEq> Batch<S> {
    /// An empty batch that continues at byte `start`.
    pub(crate) fn at(start: u64) -> Self {
        Self {
            start,
            end: start,
            held: 0,
            rows: Vec::new(),
        }
    }

    /// Where the stored output ends before this batch.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Where it ends with it: everything before is stored or counted.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn rows(&self) -> &[Row<S>] {
        &self.rows
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Bytes that are only counted, because the Turn's bound is reached.
    pub(crate) fn dropped(&self) -> u64 {
        self.end - self.start - self.held
    }

    /// Adds a record. Bytes before the end are repetitions and are cut off.
    pub(crate) fn push(&mut self, offset: u64, stream: S, data: &[u8]) -> Result<(), Gap> {
        if offset > self.end {
            return Err(Gap {
                expected: self.end,
                found: offset,
            });
        }
        let known = usize::try_from(self.end - offset).unwrap_or(usize::MAX);
        let Some(new) = data.get(known..) else {
            return Ok(());
        };
        let room = usize::try_from(MAX_STORED_OUTPUT_BYTES.saturating_sub(self.end)).unwrap_or(usize::MAX);
        let mut kept = &new[..new.len().min(room)];
        let mut at = self.end;
        while !kept.is_empty() {
            let row = match self.rows.last_mut() {
                Some(row) if row.stream == stream && row.bytes.len() < MAX_OUTPUT_ROW_BYTES => row,
                _ => {
                    self.rows.push(Row {
                        offset: at,
                        stream,
                        bytes: Vec::new(),
                    });
                    self.rows.last_mut().expect("just pushed")
                }
            };
            let (now, rest) = kept.split_at(kept.len().min(MAX_OUTPUT_ROW_BYTES - row.bytes.len()));
            row.bytes.extend_from_slice(now);
            at += now.len() as u64;
            self.held += now.len() as u64;
            kept = rest;
        }
        self.end += new.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OUT: u8 = 1;
    const ERR: u8 = 2;

    fn bytes(batch: &Batch<u8>) -> Vec<u8> {
        batch.rows().iter().flat_map(|r| r.bytes.clone()).collect()
    }

    // inv: INV-S4
    #[test]
    fn a_batch_cuts_what_is_stored_and_refuses_a_gap() {
        let mut batch = Batch::at(5);
        batch.push(0, OUT, b"abc").unwrap();
        assert!(batch.is_empty());
        batch.push(3, OUT, b"defg").unwrap();
        assert_eq!((batch.rows()[0].offset, bytes(&batch)), (5, b"fg".to_vec()));
        assert_eq!(
            batch.push(8, OUT, b"x"),
            Err(Gap {
                expected: 7,
                found: 8
            })
        );
        assert_eq!(batch.end(), 7);
    }

    #[test]
    fn neighbours_of_one_stream_share_a_row_and_streams_do_not() {
        let mut batch = Batch::at(0);
        for (offset, stream) in [(0, OUT), (1, OUT), (2, ERR), (3, OUT)] {
            batch.push(offset, stream, b"x").unwrap();
        }
        let shape: Vec<_> = batch
            .rows()
            .iter()
            .map(|r| (r.offset, r.stream, r.bytes.len()))
            .collect();
        assert_eq!(shape, [(0, OUT, 2), (2, ERR, 1), (3, OUT, 1)]);
    }

    #[test]
    fn bytes_beyond_the_bound_of_a_turn_are_counted_and_dropped() {
        let mut batch = Batch::at(MAX_STORED_OUTPUT_BYTES - 2);
        batch.push(batch.end(), OUT, b"12").unwrap();
        assert_eq!(batch.dropped(), 0);
        batch.push(batch.end(), ERR, b"34").unwrap();
        assert_eq!(batch.dropped(), 2);
        assert_eq!(bytes(&batch), b"12");
        assert_eq!(batch.end(), MAX_STORED_OUTPUT_BYTES + 2);
        let mut later = Batch::at(batch.end());
        later.push(batch.end(), OUT, b"5").unwrap();
        assert!(later.rows().is_empty() && later.dropped() == 1);
    }

    proptest! {
        // inv: INV-S4
        #[test]
        fn rows_are_contiguous_bounded_and_hold_exactly_the_bytes_sent(
            records in prop::collection::vec((0_u8..2, any::<u8>(), 0..70_000_usize), 0..8),
            repeat in 0_usize..50,
        ) {
            let mut batch = Batch::at(0);
            let mut expected: Vec<(u8, u8)> = Vec::new();
            for (stream, seed, length) in &records {
                let data: Vec<u8> = (0..*length).map(|i| seed.wrapping_add((i % 251) as u8)).collect();
                let end = expected.len();
                // A record that begins with bytes already sent, as after a reconnect.
                let back = repeat.min(end);
                let mut sent: Vec<u8> = expected[end - back..].iter().map(|(_, b)| *b).collect();
                sent.extend(&data);
                batch.push((end - back) as u64, *stream, &sent).unwrap();
                expected.extend(data.iter().map(|b| (*stream, *b)));
            }
            let mut at = 0;
            let mut got = Vec::new();
            for row in batch.rows() {
                prop_assert_eq!(row.offset, at);
                prop_assert!(!row.bytes.is_empty() && row.bytes.len() <= MAX_OUTPUT_ROW_BYTES);
                at += row.bytes.len() as u64;
                got.extend(row.bytes.iter().map(|b| (row.stream, *b)));
            }
            prop_assert_eq!(got, expected);
            prop_assert_eq!(at, batch.end());
        }
    }
}
