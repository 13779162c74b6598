//! Files of the sandbox (sessions.md sections 4 and 7): what both ends say, and Core's typed calls.
//!
//! Bodies stream in both directions with the stream's own back-pressure. What a sandbox answers is believed only as far
//! as it fits what was asked: a length or range that does not, a list that is too long, a record that is malformed make
//! that one call fail as [`CallError::Malformed`]. A body is exactly as long as its answer says, or ends with an error.

mod range;
mod refusal;

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use hyper::body::{Body, Frame, SizeHint};
use oac_model::Digest;
use oac_wire::Nullable;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use range::ByteRange;
pub use refusal::FileRefusal;

use crate::{
    client::{CallError, read_within},
    exchange::{Exchange, LinkError, RequestBody, ResponseBody, StreamClass, empty},
    limits,
    mux::LinkClient,
    service::ErrorAnswer,
};

/// On answers with a file's bytes: its permission bits, in decimal.
pub const MODE_HEADER: &str = "oac-file-mode";
/// On answers with a file's bytes: its modification time, in milliseconds since 1970.
pub const MODIFIED_HEADER: &str = "oac-file-modified-ms";

/// What a directory holds under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileType {
    File,
    Directory,
    Symlink,
    /// A FIFO, socket or device.
    Other,
}

/// One entry of a directory; a symbolic link is itself, not what it names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Its last component. Bytes that are not UTF-8 are U+FFFD here.
    pub name: String,
    #[serde(rename = "type")]
    pub kind: FileType,
    pub size: u64,
    /// Permission bits, at most 0o7777.
    pub mode: u32,
    /// Milliseconds since 1970.
    pub modified_ms: i64,
}

/// Answer to `GET /v1/files/list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileList {
    /// In byte order of name, at most [`limits::LIST_ENTRIES`].
    pub data: Vec<FileEntry>,
    /// Where the next page begins; null at the end.
    pub next: Nullable<String>,
}

/// Answer to `PUT /v1/files`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutFileAnswer {
    pub file: FileEntry,
    /// Of the bytes as they were written.
    pub sha256: Digest,
}

/// What a PUT asks for beside its bytes.
#[derive(Debug, Clone, Default)]
pub struct PutFile {
    /// Exactly as many bytes follow.
    pub length: u64,
    /// Refuse to replace a file.
    pub only_new: bool,
    /// Permission bits; without them a new file gets the usual ones and a replaced one keeps its own.
    pub mode: Option<u32>,
    /// Refuse other bytes than these, before anything is replaced.
    pub digest: Option<Digest>,
}

/// What became of a PUT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePut {
    /// There was no such file.
    pub created: bool,
    pub answer: PutFileAnswer,
}

/// Why a file operation gave no result.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error(transparent)]
    Call(#[from] CallError),
    /// The sandbox refused, and changed nothing.
    #[error("the sandbox refused: {0}")]
    Refused(FileRefusal),
    /// 416; the file has `size` bytes.
    #[error("the range lies beyond the file's {size} bytes")]
    Range { size: u64 },
}

impl FileError {
    /// Nothing was sent: it may be tried on another link.
    pub fn was_not_sent(&self) -> bool {
        matches!(
            self,
            Self::Call(CallError::Link(LinkError::Closed | LinkError::TooManyStreams))
        )
    }
}

impl From<LinkError> for FileError {
    fn from(error: LinkError) -> Self {
        Self::Call(CallError::Link(error))
    }
}

/// A file's bytes, or a range of them, as they arrive.
#[derive(Debug)]
pub struct FileDownload {
    /// Of the whole file.
    pub size: u64,
    /// First byte and length, when a range was asked for.
    pub range: Option<(u64, u64)>,
    pub mode: u32,
    pub modified_ms: i64,
    /// Another one once the file has changed in any way; see [`is_version`].
    pub version: String,
    pub body: FileBody,
}

/// Exactly as many bytes as were announced, or an error.
#[derive(Debug)]
pub struct FileBody {
    body: ResponseBody,
    left: u64,
}

impl LinkClient {
    /// Reads a file from its beginning, or one range of it; with `if_version`, the whole file if that is no longer its
    /// version. `path` as Core checked it: no NUL, at most 4096 bytes.
    pub async fn get_file(
        &self,
        path: &str,
        range: Option<ByteRange>,
        if_version: Option<&str>,
    ) -> Result<FileDownload, FileError> {
        let mut request = Request::get(format!("/v1/files?path={}", encode(path)));
        if let Some(range) = range {
            request = request.header(header::RANGE, range.to_string());
        }
        let if_version = if_version.filter(|_| range.is_some());
        if let Some(version) = if_version {
            request = request.header(header::IF_RANGE, format!("\"{version}\""));
        }
        let answer = self
            .request(StreamClass::Bulk, built(request.body(empty())))
            .await?;
        match (answer.status(), range) {
            (StatusCode::OK, range) if range.is_none() || if_version.is_some() => download(answer, None),
            (StatusCode::PARTIAL_CONTENT, Some(range)) => download(answer, Some(range)),
            (StatusCode::RANGE_NOT_SATISFIABLE, Some(range)) => {
                let size = content_range(answer.headers())
                    .filter(|(part, size)| part.is_none() && range.of(*size).is_none())
                    .ok_or(CallError::Malformed)?
                    .1;
                Err(FileError::Range { size })
            }
            _ => Err(refused(answer).await),
        }
    }

    /// Writes a file whole or not at all. When this fails otherwise than by a refusal, and all of `body` was taken, the
    /// file may or may not have been replaced. Never repeat it unasked.
    pub async fn put_file(&self, path: &str, put: PutFile, body: RequestBody) -> Result<FilePut, FileError> {
        let mut query = format!("/v1/files?path={}", encode(path));
        if let Some(mode) = put.mode {
            query += &format!("&mode={mode:o}");
        }
        let mut request = Request::put(query).header(header::CONTENT_LENGTH, put.length);
        if put.only_new {
            request = request.header(header::IF_NONE_MATCH, "*");
        }
        if let Some(digest) = put.digest {
            request = request.header(DIGEST_HEADER, write_digest(&digest));
        }
        let answer = self.request(StreamClass::Bulk, built(request.body(body))).await?;
        let created = match answer.status() {
            StatusCode::CREATED => true,
            StatusCode::OK => false,
            _ => return Err(refused(answer).await),
        };
        let answer: PutFileAnswer = read(answer).await?;
        let file = &answer.file;
        let fits = file.size == put.length
            && file.kind == FileType::File
            && is_entry(file)
            && put.digest.is_none_or(|digest| digest == answer.sha256)
            && (!put.only_new || created);
        if fits {
            Ok(FilePut { created, answer })
        } else {
            Err(CallError::Malformed.into())
        }
    }

    /// Removes a file, a link or an empty directory.
    pub async fn delete_file(&self, path: &str) -> Result<(), FileError> {
        let request = Request::delete(format!("/v1/files?path={}", encode(path)));
        let answer = self
            .request(StreamClass::Bulk, built(request.body(empty())))
            .await?;
        match answer.status() {
            StatusCode::NO_CONTENT => Ok(()),
            _ => Err(refused(answer).await),
        }
    }

    /// One page of a directory, from `cursor` on, which is the `next` of the page before.
    pub async fn list_files(&self, path: &str, cursor: Option<&str>) -> Result<FileList, FileError> {
        let mut query = format!("/v1/files/list?path={}", encode(path));
        if let Some(cursor) = cursor {
            query += &format!("&cursor={}", encode(cursor));
        }
        let answer = self
            .request(StreamClass::Bulk, built(Request::get(query).body(empty())))
            .await?;
        if answer.status() != StatusCode::OK {
            return Err(refused(answer).await);
        }
        let list: FileList = read(answer).await?;
        let fits = list.data.len() <= limits::LIST_ENTRIES
            && list.data.iter().all(is_entry)
            && list.next.0.as_deref().is_none_or(is_cursor)
            && (list.next.0.is_none() || !list.data.is_empty());
        if fits {
            Ok(list)
        } else {
            Err(CallError::Malformed.into())
        }
    }
}

/// RFC 9530.
pub const DIGEST_HEADER: &str = "content-digest";

/// `Content-Digest` with SHA-256 alone.
pub fn write_digest(digest: &Digest) -> String {
    format!("sha-256=:{}:", oac_wire::B64(digest.as_bytes().to_vec()).encode())
}

/// Text that is no `Content-Digest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Content-Digest is malformed")]
pub struct BadDigest;

/// The SHA-256 of a `Content-Digest`; other algorithms are passed over.
pub fn read_digest(text: &str) -> Result<Option<Digest>, BadDigest> {
    let mut found = None;
    for member in text.split(',') {
        let (name, value) = member
            .trim_matches([' ', '\t'])
            .split_once('=')
            .ok_or(BadDigest)?;
        let encoded = value
            .strip_prefix(':')
            .and_then(|value| value.strip_suffix(':'))
            .ok_or(BadDigest)?;
        if name.is_empty() || name.bytes().any(|b| b.is_ascii_uppercase() || b == b' ') {
            return Err(BadDigest);
        }
        if name == "sha-256" {
            let bytes = oac_wire::B64::decode(encoded.as_bytes()).ok_or(BadDigest)?.0;
            let bytes = <[u8; 32]>::try_from(bytes).map_err(|_| BadDigest)?;
            found = Some(Digest::from_bytes(bytes));
        }
    }
    Ok(found)
}

/// A cursor as either end accepts it: nothing that would need encoding.
pub fn is_cursor(text: &str) -> bool {
    (1..=limits::LIST_CURSOR_BYTES).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

/// A version as either end accepts it.
pub fn is_version(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn is_entry(entry: &FileEntry) -> bool {
    !entry.name.is_empty()
        // A byte that is not UTF-8 takes three when it is shown.
        && entry.name.len() <= 3 * 255
        && !entry.name.contains(['/', '\0'])
        && !matches!(entry.name.as_str(), "." | "..")
        && entry.mode <= 0o7777
}

/// Percent-encodes everything but the plainest characters.
fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The bytes of a percent-encoded value; `None` for a malformed one.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
            out.push((high * 16 + low) as u8);
        } else {
            out.push(byte);
        }
    }
    Some(out)
}

fn built(request: http::Result<Request<RequestBody>>) -> Request<RequestBody> {
    request.unwrap_or_else(|error| unreachable!("encoded paths and numbers are valid: {error}"))
}

async fn read<T: DeserializeOwned>(answer: Exchange) -> Result<T, CallError> {
    read_within(answer, limits::LIST_JSON_BYTES).await
}

async fn refused(answer: Exchange) -> FileError {
    let status = answer.status();
    match read_within::<ErrorAnswer>(answer, limits::ANSWER_JSON_BYTES).await {
        Ok(ErrorAnswer { code, .. }) => match FileRefusal::from_code(&code) {
            Some(refusal) if refusal.status() == status => FileError::Refused(refusal),
            _ => CallError::Answered { status, code }.into(),
        },
        Err(error) => error.into(),
    }
}

fn number<T: std::str::FromStr>(headers: &HeaderMap, name: impl header::AsHeaderName) -> Option<T> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    (values.next().is_none()).then(|| value.parse().ok())?
}

/// `Content-Range`: first and last byte, unless it is `*`, and the size.
fn content_range(headers: &HeaderMap) -> Option<(Option<(u64, u64)>, u64)> {
    let text = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (part, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    let size = size.parse().ok()?;
    if part == "*" {
        return Some((None, size));
    }
    let (first, last) = part.split_once('-')?;
    Some((Some((first.parse().ok()?, last.parse().ok()?)), size))
}

fn download(answer: Exchange, asked: Option<ByteRange>) -> Result<FileDownload, FileError> {
    let headers = answer.headers();
    let known = || {
        let length: u64 = number(headers, header::CONTENT_LENGTH)?;
        let mode: u32 = number(headers, MODE_HEADER)?;
        let modified_ms: i64 = number(headers, MODIFIED_HEADER)?;
        let version = headers.get(header::ETAG)?.to_str().ok()?;
        let version = version.strip_prefix('"')?.strip_suffix('"')?;
        let (size, range) = match asked {
            None => (length, None),
            Some(asked) => {
                let (part, size) = content_range(headers)?;
                let (first, last) = part?;
                let range = asked.of(size)?;
                let fits = range == (first, length) && last.checked_sub(first)?.checked_add(1)? == length;
                (size, Some(range).filter(|_| fits))
            }
        };
        let fits = mode <= 0o7777 && asked.is_some() == range.is_some() && is_version(version);
        fits.then(|| (length, size, range, mode, modified_ms, version.to_owned()))
    };
    let (length, size, range, mode, modified_ms, version) = known().ok_or(CallError::Malformed)?;
    Ok(FileDownload {
        size,
        range,
        mode,
        modified_ms,
        version,
        body: FileBody {
            body: answer.into_body(),
            left: length,
        },
    })
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = CallError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CallError>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        loop {
            let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
            let data = match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.is_empty() => continue,
                    Ok(data) => data,
                    // Trailers say nothing here.
                    Err(_) => continue,
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(LinkError::Broken(error).into()))),
                None => return Poll::Ready(Some(Err(LinkError::Closed.into()))),
            };
            let Some(left) = self.left.checked_sub(data.len() as u64) else {
                self.left = 0;
                return Poll::Ready(Some(Err(CallError::Malformed)));
            };
            self.left = left;
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_path_survives_the_query_and_only_well_formed_text_is_decoded() {
        for path in ["a b", "/tmp/ü\n&=%+?#", "\u{1}\u{7f}", "x"] {
            let encoded = encode(path);
            assert!(format!("/v1/files?path={encoded}").parse::<http::Uri>().is_ok());
            assert_eq!(decode(&encoded).unwrap(), path.as_bytes());
        }
        assert_eq!(decode("%FF"), Some(vec![0xff]));
        for bad in ["%", "%f", "%fg", "%+1"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_sha_256_of_a_content_digest_is_found_beside_others_and_nonsense_is_refused() {
        let digest = Digest::of("x");
        let text = write_digest(&digest);
        assert_eq!(read_digest(&text), Ok(Some(digest)));
        assert_eq!(read_digest(&format!("sha-512=:AAAA:, {text}")), Ok(Some(digest)));
        assert_eq!(read_digest("md5=:AAAA:"), Ok(None));
        for bad in [
            "",
            "sha-256",
            "sha-256=",
            "sha-256=abc",
            "sha-256=:abc",
            "sha-256=:AAAA:",
            "SHA-256=:AAAA:",
            "=:AAAA:",
            "sha-256=:AAAA:,",
        ] {
            assert_eq!(read_digest(bad), Err(BadDigest), "{bad}");
        }
    }
}
