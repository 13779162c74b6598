//! A command's bytes on standard output and error, as they are, without holding up anything else: a reader that is slow
//! must not keep Ctrl-C from being heard.

use tokio::io::{AsyncWriteExt, Stderr, Stdout};

use super::written;
use crate::client::turns::Stream;

/// Both streams.
pub struct Streams {
    stdout: Stdout,
    stderr: Stderr,
}

/// Whether anybody reads what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    There,
    Gone,
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            stdout: tokio::io::stdout(),
            stderr: tokio::io::stderr(),
        }
    }
}

impl Streams {
    pub async fn write(&mut self, stream: Stream, bytes: &[u8]) -> Reader {
        let result = match stream {
            Stream::Stdout => match self.stdout.write_all(bytes).await {
                Ok(()) => self.stdout.flush().await,
                failed => failed,
            },
            Stream::Stderr => match self.stderr.write_all(bytes).await {
                Ok(()) => self.stderr.flush().await,
                failed => failed,
            },
        };
        let gone = matches!(&result, Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe);
        written(result);
        if gone { Reader::Gone } else { Reader::There }
    }
}
