//! The two pipes of a process, read in turns so that neither starves the other.

use std::{future::poll_fn, io, pin::Pin, task::Poll};

use bytes::Bytes;
use oac_link::service::OutputStreamName;
use tokio::{
    io::{AsyncRead, ReadBuf},
    net::unix::pipe,
};

use crate::{limits, turns::log::Chunk};

pub(crate) struct Pipes {
    stdout: Option<pipe::Receiver>,
    stderr: Option<pipe::Receiver>,
    buffer: Box<[u8]>,
    stderr_first: bool,
}

impl Pipes {
    pub(crate) fn new(stdout: pipe::Receiver, stderr: pipe::Receiver) -> Self {
        Self {
            stdout: Some(stdout),
            stderr: Some(stderr),
            buffer: vec![0; limits::RECORD_BYTES].into(),
            stderr_first: false,
        }
    }

    pub(crate) fn are_open(&self) -> bool {
        self.stdout.is_some() || self.stderr.is_some()
    }

    /// The next bytes of either pipe; `None` when that pipe has ended. Losing the future loses no bytes.
    pub(crate) async fn read(&mut self) -> (OutputStreamName, Option<Bytes>) {
        self.stderr_first = !self.stderr_first;
        poll_fn(|cx| {
            let mut order = [OutputStreamName::Stdout, OutputStreamName::Stderr];
            if self.stderr_first {
                order.reverse();
            }
            for stream in order {
                let pipe = match stream {
                    OutputStreamName::Stdout => &mut self.stdout,
                    OutputStreamName::Stderr => &mut self.stderr,
                };
                let Some(open) = pipe else { continue };
                let mut buffer = ReadBuf::new(&mut self.buffer);
                match Pin::new(open).poll_read(cx, &mut buffer) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                        let data = Bytes::copy_from_slice(buffer.filled());
                        return Poll::Ready((stream, Some(data)));
                    }
                    Poll::Ready(_) => {
                        *pipe = None;
                        return Poll::Ready((stream, None));
                    }
                }
            }
            Poll::Pending
        })
        .await
    }

    /// What the pipes hold at this moment, and nothing that a survivor in another session writes from now on.
    pub(crate) fn finish(&mut self) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        let both = [
            (OutputStreamName::Stdout, self.stdout.take()),
            (OutputStreamName::Stderr, self.stderr.take()),
        ];
        for (stream, pipe) in both {
            let Some(pipe) = pipe else { continue };
            let mut held = rustix::io::ioctl_fionread(&pipe).unwrap_or(0) as usize;
            while held > 0 {
                let size = held.min(self.buffer.len());
                match rustix::io::read(&pipe, &mut self.buffer[..size]) {
                    Ok(n) if n > 0 => {
                        held -= n;
                        let data = Bytes::copy_from_slice(&self.buffer[..n]);
                        chunks.push(Chunk { stream, data });
                    }
                    Err(error) if io::Error::from(error).kind() == io::ErrorKind::Interrupted => {}
                    _ => break,
                }
            }
        }
        chunks
    }
}
