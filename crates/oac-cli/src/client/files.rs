//! Files of a Session's sandbox (sessions.md section 4).

use oac_model::{Digest, SessionId};
use reqwest::{Body, Method, Response, header};
use serde::Deserialize;

use super::{ANSWER_LIMIT, Client, Document, Key, query, sessions::path};
use crate::Failure;

/// Core waits a minute for the sandbox before it answers; this is that and some more.
const REACH_LIMIT: std::time::Duration = ANSWER_LIMIT.saturating_mul(2);

/// An upload is answered at its end. The caller watches the progress; this only bounds what nobody watches.
const WRITE_LIMIT: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// A file's record as a listing or an upload gives it.
#[derive(Debug, Clone, Deserialize)]
pub struct Record {
    pub path: String,
    #[serde(rename = "type")]
    pub kind: Kind,
    pub size: u64,
    pub mode: Mode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    File,
    Directory,
    Symlink,
    #[serde(other)]
    Other,
}

/// Permission bits, as a number or as an octal text.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "ModeShape")]
pub struct Mode(pub u32);

#[derive(Deserialize)]
#[serde(untagged)]
enum ModeShape {
    Number(u32),
    Octal(String),
}

impl TryFrom<ModeShape> for Mode {
    type Error = std::num::ParseIntError;

    fn try_from(shape: ModeShape) -> Result<Self, Self::Error> {
        match shape {
            ModeShape::Number(mode) => Ok(Self(mode)),
            ModeShape::Octal(text) => u32::from_str_radix(&text, 8).map(Self),
        }
    }
}

#[derive(Debug, Deserialize)]
pub struct Page {
    pub data: Vec<Record>,
    pub next: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Written {
    pub file: Record,
    pub sha256: Digest,
}

fn file_path(session: SessionId, file: &str) -> String {
    format!("{}/files?path={}", path(session), query(file))
}

impl Client {
    /// The head of a file's download, from byte `from` on if that is asked for; whatever the status.
    pub async fn open_file(
        &self,
        session: SessionId,
        file: &str,
        resume: Option<(u64, &header::HeaderValue)>,
    ) -> Result<Response, Failure> {
        let mut request = self.request(Method::GET, Key::Project, &file_path(session, file))?;
        if let Some((from, version)) = resume {
            request = request
                .header(header::RANGE, format!("bytes={from}-"))
                .header(header::IF_RANGE, version);
        }
        self.answer(request, REACH_LIMIT).await
    }

    /// Writes a file whole; the sandbox compares `digest` before the file takes its name. Without `mode` a replaced file
    /// keeps its own.
    pub async fn write_file(
        &self,
        session: SessionId,
        file: &str,
        mode: Option<u32>,
        body: Body,
        length: u64,
        digest: &[u8; 32],
    ) -> Result<Document<Written>, Failure> {
        let digest = base64_simd::STANDARD.encode_to_string(digest);
        let mut path = file_path(session, file);
        if let Some(mode) = mode {
            path.push_str(&format!("&mode={mode:o}"));
        }
        let request = self
            .request(Method::PUT, Key::Project, &path)?
            .header(header::CONTENT_LENGTH, length)
            .header(header::CONTENT_TYPE, "application/octet-stream")
            .header("Content-Digest", format!("sha-256=:{digest}:"))
            .body(body);
        self.document_within(request, WRITE_LIMIT).await
    }

    /// One page of a folder's entries, in byte order of their names.
    pub async fn list_folder(
        &self,
        session: SessionId,
        folder: &str,
        cursor: Option<&str>,
    ) -> Result<Page, Failure> {
        let mut path = format!("{}/files/list?path={}", path(session), query(folder));
        if let Some(cursor) = cursor {
            path.push_str(&format!("&cursor={}", query(cursor)));
        }
        let request = self.request(Method::GET, Key::Project, &path)?;
        Ok(self.document_within(request, REACH_LIMIT).await?.value)
    }
}
