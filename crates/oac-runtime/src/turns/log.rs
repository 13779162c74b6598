//! A Turn's output log: what its process wrote, in the order read, and how it ended.
//!
//! The log is a row of segment files `output-<offset>`, named by the offset of their first byte (20 digits). A segment
//! is a row of records: kind (1 stdout, 2 stderr, 3 exit), payload length (3 bytes), CRC-32 of kind, length and payload
//! (4 bytes), payload; numbers big-endian. The exit record is the last one, so a command that ends at once needs one
//! flush for its output and its end together. Records are appended, flushed with fdatasync, and only then offered; a
//! crash can tear records at the end that nobody was offered, and opening cuts them off. What is acknowledged is
//! discarded by removing whole segments, never by changing one (INV-S6).

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, FileExt},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use oac_link::service::{Exit, OutputStreamName};

use crate::{
    limits,
    turns::reserve::{self, Room},
};

const HEADER_BYTES: usize = 8;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const EXIT: u8 = 3;

/// Output as it was read from one pipe, at most [`limits::RECORD_BYTES`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub stream: OutputStreamName,
    pub data: Bytes,
}

/// What is appended together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub chunks: Vec<Chunk>,
    pub exit: Option<Exit>,
}

impl Batch {
    pub(crate) fn bytes(&self) -> u64 {
        self.chunks.iter().map(|c| c.data.len() as u64).sum()
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for chunk in &self.chunks {
            let kind = match chunk.stream {
                OutputStreamName::Stdout => STDOUT,
                OutputStreamName::Stderr => STDERR,
            };
            push_record(&mut out, kind, &chunk.data);
        }
        if let Some(exit) = &self.exit {
            let json = serde_json::to_vec(exit)
                .unwrap_or_else(|error| unreachable!("an exit record is plain data: {error}"));
            push_record(&mut out, EXIT, &json);
        }
        out
    }
}

fn push_record(out: &mut Vec<u8>, kind: u8, payload: &[u8]) {
    let length = (payload.len() as u32).to_be_bytes();
    let head = [kind, length[1], length[2], length[3]];
    out.extend_from_slice(&head);
    out.extend_from_slice(&checksum(&head, payload));
    out.extend_from_slice(payload);
}

fn checksum(head: &[u8], payload: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(payload);
    hasher.finalize().to_be_bytes()
}

fn segment_path(directory: &Path, start: u64) -> PathBuf {
    directory.join(format!("output-{start:020}"))
}

/// The start offsets of the segments present, ascending.
pub(crate) fn segments(directory: &Path) -> io::Result<Vec<u64>> {
    let mut starts = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let digits = name.to_str().and_then(|n| n.strip_prefix("output-"));
        if let Some(start) = digits.filter(|d| d.len() == 20).and_then(|d| d.parse().ok()) {
            starts.push(start);
        }
    }
    starts.sort_unstable();
    Ok(starts)
}

pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The one writer of a log.
#[derive(Debug)]
pub(crate) struct LogWriter {
    directory: PathBuf,
    segment: File,
    segment_start: u64,
    /// Length of the segment file up to its last whole batch.
    segment_bytes: u64,
    /// Offset behind the last byte written.
    offset: u64,
}

impl LogWriter {
    /// Makes the first segment; the caller flushes the directory.
    pub(crate) fn create(directory: &Path) -> io::Result<Self> {
        let path = segment_path(directory, 0);
        Ok(Self {
            directory: directory.to_owned(),
            segment: OpenOptions::new().write(true).create_new(true).open(path)?,
            segment_start: 0,
            segment_bytes: 0,
            offset: 0,
        })
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn segment_start(&self) -> u64 {
        self.segment_start
    }

    /// Like [`Self::append`] for what is left after the process has ended: in the room that is kept for it, if there is
    /// no other, and then in that of a start, which nothing needs before an end is told.
    pub(crate) fn append_at_end(&mut self, batch: &Batch) -> io::Result<()> {
        let root = self.directory.parent().map(Path::to_owned).unwrap_or_default();
        let mut appended = self.append(batch);
        for room in [Room::End, Room::Start] {
            if let Err(error) = &appended
                && reserve::release(&root, room, error)
            {
                appended = self.append(batch);
            }
        }
        appended
    }

    /// Appends and flushes; everything or, as far as a later append or opening is concerned, nothing.
    pub(crate) fn append(&mut self, batch: &Batch) -> io::Result<()> {
        if self.segment_bytes >= limits::SEGMENT_BYTES {
            let path = segment_path(&self.directory, self.offset);
            // A command that removed it must not keep its own end from being told.
            fs::DirBuilder::new()
                .mode(0o700)
                .recursive(true)
                .create(&self.directory)?;
            let segment = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .open(path)?;
            sync_directory(&self.directory)?;
            self.segment = segment;
            self.segment_bytes = 0;
            self.segment_start = self.offset;
        }
        let bytes = batch.encode();
        let written = self
            .segment
            .write_all_at(&bytes, self.segment_bytes)
            .and_then(|()| self.segment.sync_data());
        if let Err(error) = written {
            // What was written of it would be in the way of the next try.
            let _ = self.segment.set_len(self.segment_bytes);
            return Err(error);
        }
        self.segment_bytes += bytes.len() as u64;
        self.offset += batch.bytes();
        Ok(())
    }
}

/// What a log holds when it is opened again.
#[derive(Debug)]
pub(crate) struct Found {
    pub writer: LogWriter,
    /// Offset of the first byte still held: everything below was acknowledged.
    pub first: u64,
    pub exit: Option<Exit>,
}

/// Opens the log of an earlier runtime: cuts off a torn end and finds offset and exit.
pub(crate) fn open(directory: &Path) -> io::Result<Found> {
    let starts = segments(directory)?;
    let first = starts.first().copied().unwrap_or(0);
    let mut found: Option<(LogWriter, Option<Exit>)> = None;
    for start in starts {
        if let Some((writer, exit)) = &found
            && (writer.offset != start || exit.is_some())
        {
            // Behind a torn segment nothing was ever offered.
            fs::remove_file(segment_path(directory, start))?;
            continue;
        }
        let path = segment_path(directory, start);
        let segment = OpenOptions::new().read(true).write(true).open(path)?;
        let (mut offset, mut exit, mut valid) = (start, None, 0);
        while exit.is_none()
            && let Some((record, next)) = read_record(&segment, valid)?
        {
            match record {
                Record::Output(chunk) => offset += chunk.data.len() as u64,
                Record::Exit(end) => exit = Some(end),
            }
            valid = next;
        }
        if segment.metadata()?.len() != valid {
            segment.set_len(valid)?;
            segment.sync_all()?;
        }
        let writer = LogWriter {
            directory: directory.to_owned(),
            segment,
            segment_start: start,
            segment_bytes: valid,
            offset,
        };
        found = Some((writer, exit));
    }
    let (writer, exit) = match found {
        Some(found) => found,
        None => (LogWriter::create(directory)?, None),
    };
    Ok(Found { writer, first, exit })
}

/// Removes the segments that lie wholly below `acknowledged`; the last one stays, for it is written to.
/// Returns the offset of the first byte still held.
pub(crate) fn discard(directory: &Path, acknowledged: u64) -> io::Result<u64> {
    let starts = segments(directory)?;
    let mut first = starts.first().copied().unwrap_or(0);
    for pair in starts.windows(2) {
        if pair[1] > acknowledged {
            break;
        }
        fs::remove_file(segment_path(directory, pair[0]))?;
        first = pair[1];
    }
    Ok(first)
}

enum Record {
    Output(Chunk),
    Exit(Exit),
}

/// The record at `position` and where the next one begins; `None` where no whole and sound record is.
fn read_record(file: &File, position: u64) -> io::Result<Option<(Record, u64)>> {
    let mut head = [0; HEADER_BYTES];
    if !read_whole(file, &mut head, position)? {
        return Ok(None);
    }
    let length = u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
    if length > limits::RECORD_BYTES {
        return Ok(None);
    }
    let mut payload = vec![0; length];
    let sound = read_whole(file, &mut payload, position + HEADER_BYTES as u64)?
        && head[4..] == checksum(&head[..4], &payload);
    let output = |stream, payload: Vec<u8>| {
        Record::Output(Chunk {
            stream,
            data: payload.into(),
        })
    };
    let record = match head[0] {
        _ if !sound => None,
        STDOUT => Some(output(OutputStreamName::Stdout, payload)),
        STDERR => Some(output(OutputStreamName::Stderr, payload)),
        EXIT => oac_wire::strict::from_slice(&payload).ok().map(Record::Exit),
        _ => None,
    };
    Ok(record.map(|record| (record, position + (HEADER_BYTES + length) as u64)))
}

fn read_whole(file: &File, into: &mut [u8], position: u64) -> io::Result<bool> {
    match file.read_exact_at(into, position) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// A reader's place in a log.
#[derive(Debug)]
pub(crate) struct LogCursor {
    directory: PathBuf,
    /// Offset of the next byte to hand out.
    offset: u64,
    open: Option<OpenSegment>,
}

#[derive(Debug)]
struct OpenSegment {
    file: File,
    start: u64,
    /// Where the next record begins in the file, and its offset.
    position: u64,
    offset: u64,
}

impl LogCursor {
    /// A cursor at `offset`, which is neither below the acknowledged nor above the written one.
    pub(crate) fn new(directory: &Path, offset: u64) -> Self {
        Self {
            directory: directory.to_owned(),
            offset,
            open: None,
        }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether a log at this place still holds the cursor's offset. A command may have removed it.
    pub(crate) fn is_held(&mut self) -> bool {
        if self.open.is_none() {
            match open_segment(&self.directory, self.offset, None) {
                Ok(segment) => self.open = Some(segment),
                Err(error) => return error.kind() != io::ErrorKind::NotFound,
            }
        }
        true
    }

    /// Chunks from the cursor's offset on, below `written` and about [`limits::READ_BYTES`] together. What lies below
    /// `written` was flushed.
    pub(crate) fn read(&mut self, written: u64) -> io::Result<Vec<Chunk>> {
        let mut chunks = Vec::new();
        let mut bytes = 0;
        while self.offset < written && bytes < limits::READ_BYTES {
            let (mut chunk, start) = self.next_chunk()?;
            let end = start + chunk.data.len() as u64;
            if end <= self.offset {
                continue;
            }
            // A record that straddles the offset asked for is cut.
            let _ = chunk.data.split_to((self.offset - start) as usize);
            self.offset = end;
            bytes += chunk.data.len();
            chunks.push(chunk);
        }
        Ok(chunks)
    }

    fn next_chunk(&mut self) -> io::Result<(Chunk, u64)> {
        loop {
            let segment = match &mut self.open {
                Some(segment) => segment,
                None => self
                    .open
                    .insert(open_segment(&self.directory, self.offset, None)?),
            };
            match read_record(&segment.file, segment.position)? {
                Some((Record::Output(chunk), next)) => {
                    let start = segment.offset;
                    segment.offset += chunk.data.len() as u64;
                    segment.position = next;
                    return Ok((chunk, start));
                }
                // The end of this segment; what is below the written offset goes on in the next.
                Some((Record::Exit(_), _)) | None => {
                    let next = open_segment(&self.directory, self.offset, Some(segment.start))?;
                    self.open = Some(next);
                }
            }
        }
    }
}

fn open_segment(directory: &Path, offset: u64, behind: Option<u64>) -> io::Result<OpenSegment> {
    let start = segments(directory)?.into_iter().rev().find(|s| *s <= offset);
    let start = start
        .filter(|s| behind.is_none_or(|b| *s > b))
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the log does not hold this offset"))?;
    Ok(OpenSegment {
        file: File::open(segment_path(directory, start))?,
        start,
        position: 0,
        offset: start,
    })
}
