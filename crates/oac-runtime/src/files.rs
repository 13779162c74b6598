//! The files of this sandbox (sessions.md sections 4 and 7).
//!
//! Guarantees: a file that PUT replaces is at every moment wholly the old or wholly the new one (INV-S16); a body is
//! exactly as long as announced or broken off; nothing but a regular file is read, and reading one never waits for
//! anybody; no file is held in memory. File work runs on a bounded share of the threads for it, so that files never keep
//! the records of Turns from being written; no thread is held while a stream waits for its other end. Each operation
//! counts as activity until its last step is done.

mod download;
mod listing;
mod path;
mod refusal;
mod upload;

use std::{future::Future, path::PathBuf, pin::Pin, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::{Response, body::Incoming};
use oac_link::{
    files::{
        ByteRange, DIGEST_HEADER, FileRefusal, MODE_HEADER, MODIFIED_HEADER, PutFile, decode, read_digest,
    },
    service::codes,
};
use rustix::fs::{AtFlags, FileType, statat, unlinkat};
use tokio::sync::Semaphore;

use self::{
    path::{Missing, place, sync},
    refusal::{refusal, words},
    upload::Upload,
};
use crate::{
    activity::{Active, Activity},
    limits,
    service::{Answer, Refusal, json, no_content},
    task,
};

/// The files of one runtime; clones share their bounds.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    activity: Activity,
    threads: Threads,
    uploads: Arc<PathBuf>,
}

/// The share of the blocking threads that files may use.
#[derive(Debug, Clone)]
struct Threads(Arc<Semaphore>);

impl Threads {
    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.start(work).await.await
    }

    /// Waits for a thread; what it returns waits for the work, which has begun.
    async fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = T> + Send + 'static {
        let place = self.0.clone().acquire_owned().await;
        task::blocking(move || {
            let _place = place;
            work()
        })
    }
}

impl From<FileRefusal> for Refusal {
    fn from(refusal: FileRefusal) -> Self {
        Self::new(refusal.status(), refusal.as_str(), words(refusal))
    }
}

impl Files {
    /// `uploads` is where unfinished uploads are noted. What a killed runtime left is removed; blocking.
    pub(crate) fn open(uploads: PathBuf, activity: Activity) -> Self {
        upload::remove_leftovers(&uploads);
        Self {
            activity,
            threads: Threads(Arc::new(Semaphore::new(limits::FILE_THREADS))),
            uploads: Arc::new(uploads),
        }
    }

    /// `/v1/files?path=`.
    pub(crate) async fn file(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let active = self.begin()?;
        let query = Query::parse(request.uri().query())?;
        match *request.method() {
            Method::GET => {
                let path = query.path_alone()?;
                self.get(path, request.headers(), active).await
            }
            Method::PUT => self.put(query, request, active).await,
            Method::DELETE => {
                let path = query.path_alone()?;
                self.threads
                    .run(move || {
                        let _active = active;
                        delete(&path)
                    })
                    .await?;
                Ok(no_content())
            }
            _ => Err(Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                codes::INVALID,
                "this path has another method",
            )),
        }
    }

    /// `/v1/files/list?path=&cursor=`.
    pub(crate) async fn list(&self, query: Option<&str>) -> Result<Answer, Refusal> {
        let active = self.begin()?;
        let query = Query::parse(query)?;
        if query.mode.is_some() {
            return Err(Refusal::invalid("the query must be path and cursor"));
        }
        let list = self
            .threads
            .run(move || {
                let _active = active;
                listing::list(&query.path, query.cursor.as_deref())
            })
            .await?;
        Ok(json(StatusCode::OK, &list))
    }

    fn begin(&self) -> Result<Active, Refusal> {
        self.activity.begin().ok_or_else(|| {
            Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                codes::BUSY,
                "the sandbox is being suspended",
            )
        })
    }

    async fn get(&self, path: Vec<u8>, headers: &HeaderMap, active: Active) -> Result<Answer, Refusal> {
        let range = headers
            .get(header::RANGE)
            .map(|value| value.to_str().ok().and_then(ByteRange::parse).ok_or(()))
            .transpose()
            .map_err(|()| Refusal::invalid("Range must be one range of bytes"))?;
        let opened = self.threads.run(move || download::open(&path)).await?;
        let size = u64::try_from(opened.stat.st_size).unwrap_or(0);
        let version = format!("\"{}\"", listing::version(&opened.stat));
        let is_same = headers
            .get(header::IF_RANGE)
            .is_none_or(|asked| asked.as_bytes() == version.as_bytes());
        let range = range.filter(|_| is_same);
        let (status, offset, length) = match range {
            None => (StatusCode::OK, 0, size),
            Some(range) => match range.of(size) {
                Some((offset, length)) => (StatusCode::PARTIAL_CONTENT, offset, length),
                None => {
                    let refusal = Refusal::new(
                        StatusCode::RANGE_NOT_SATISFIABLE,
                        codes::INVALID,
                        "the file has none of these bytes",
                    );
                    return Ok(with(
                        refusal.answer(),
                        header::CONTENT_RANGE,
                        format!("bytes */{size}"),
                    ));
                }
            },
        };
        let mode = listing::mode(&opened.stat);
        let modified_ms = listing::modified_ms(&opened.stat);
        let body = download::stream(opened.file, offset, length, self.threads.clone(), active);
        let mut answer = Response::new(StreamBody::new(body).boxed_unsync());
        *answer.status_mut() = status;
        answer = with(answer, header::CONTENT_LENGTH, length.to_string());
        answer = with(answer, header::ETAG, version);
        answer = with(answer, HeaderName::from_static(MODE_HEADER), mode.to_string());
        answer = with(
            answer,
            HeaderName::from_static(MODIFIED_HEADER),
            modified_ms.to_string(),
        );
        if status == StatusCode::PARTIAL_CONTENT {
            let range = format!("bytes {offset}-{}/{size}", offset + length - 1);
            answer = with(answer, header::CONTENT_RANGE, range);
        }
        Ok(answer)
    }

    async fn put(&self, query: Query, request: Request<Incoming>, active: Active) -> Result<Answer, Refusal> {
        let put = asked(&query, request.headers())?;
        let length = put.length;
        if length > oac_link::limits::PUT_FILE_BYTES {
            return Err(FileRefusal::TooLarge.into());
        }
        let uploads = self.uploads.clone();
        let upload = self
            .threads
            .run(move || Upload::begin(&uploads, &query.path, put, active))
            .await?;
        let mut body = request.into_body();
        let mut received = 0;
        let mut writing: Writing = Box::pin(std::future::ready(Ok(upload)));
        let upload = loop {
            // The piece before is written while this one arrives.
            let (batch, bytes) = gather(&mut body).await?;
            let mut upload = writing.await?;
            if batch.is_empty() {
                break upload;
            }
            received += bytes;
            let started = self.threads.start(move || upload.write(&batch).map(|()| upload));
            writing = Box::pin(started.await);
        };
        if received != length {
            return Err(Refusal::invalid("the body has another length than it says"));
        }
        let (created, answer) = self.threads.run(move || upload.finish()).await?;
        let status = if created {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        };
        Ok(json(status, &answer))
    }
}

type Writing = Pin<Box<dyn Future<Output = Result<Upload, FileRefusal>> + Send>>;

/// About one piece of the body; empty at its end.
async fn gather(body: &mut Incoming) -> Result<(Vec<Bytes>, u64), Refusal> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while bytes < limits::FILE_CHUNK_BYTES {
        match body.frame().await {
            None => break,
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    bytes += data.len();
                    batch.push(data);
                }
            }
            Some(Err(_)) => return Err(Refusal::invalid("the body broke off")),
        }
    }
    Ok((batch, bytes as u64))
}

/// Removes a file, a link or an empty directory.
fn delete(path: &[u8]) -> Result<(), FileRefusal> {
    let place = place(path, Missing::Refuse)?;
    if place.name == b"." {
        // A path that ends in `.` or `..`, or is the root, names a directory that has no name here.
        return Err(FileRefusal::BadPath);
    }
    let name = place.name.as_slice();
    let stat = statat(&place.dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(refusal)?;
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let flags = if is_directory || place.is_directory {
        AtFlags::REMOVEDIR
    } else {
        AtFlags::empty()
    };
    match unlinkat(&place.dir, name, flags) {
        // What some file systems say of a directory that is not empty.
        Err(rustix::io::Errno::EXIST) => return Err(FileRefusal::NotEmpty),
        removed => removed.map_err(refusal)?,
    }
    sync(&place.dir, None)
}

/// What a PUT's query and headers ask for.
fn asked(query: &Query, headers: &HeaderMap) -> Result<PutFile, Refusal> {
    if query.cursor.is_some() {
        return Err(Refusal::invalid("the query must be path and mode"));
    }
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    let length = text(header::CONTENT_LENGTH)
        .and_then(|length| length.parse().ok())
        .ok_or_else(|| {
            Refusal::new(
                StatusCode::LENGTH_REQUIRED,
                codes::INVALID,
                "Content-Length is needed",
            )
        })?;
    let only_new = match text(header::IF_NONE_MATCH) {
        None => false,
        Some("*") => true,
        Some(_) => return Err(Refusal::invalid("If-None-Match must be *")),
    };
    let digest = match text(HeaderName::from_static(DIGEST_HEADER)) {
        None => None,
        Some(text) => read_digest(text).map_err(|_| Refusal::invalid("Content-Digest is malformed"))?,
    };
    Ok(PutFile {
        length,
        only_new,
        mode: query.mode,
        digest,
    })
}

struct Query {
    path: Vec<u8>,
    cursor: Option<String>,
    mode: Option<u32>,
}

impl Query {
    fn parse(text: Option<&str>) -> Result<Self, Refusal> {
        let (mut path, mut cursor, mut mode) = (None, None, None);
        for pair in text.unwrap_or("").split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let taken = match name {
                "path" => path.replace(decode(value).ok_or(FileRefusal::BadPath)?).is_some(),
                "cursor" => cursor.replace(value.to_owned()).is_some(),
                "mode" => {
                    let bits = u32::from_str_radix(value, 8).ok().filter(|bits| *bits <= 0o777);
                    let bits = bits.ok_or_else(|| Refusal::invalid("mode must be octal, at most 777"))?;
                    mode.replace(bits).is_some()
                }
                _ => true,
            };
            if taken {
                return Err(Refusal::invalid("the query has an unknown or repeated name"));
            }
        }
        Ok(Self {
            path: path.ok_or(FileRefusal::BadPath)?,
            cursor,
            mode,
        })
    }

    fn path_alone(self) -> Result<Vec<u8>, Refusal> {
        if self.cursor.is_some() || self.mode.is_some() {
            return Err(Refusal::invalid("the query must be path"));
        }
        Ok(self.path)
    }
}

fn with(mut answer: Answer, name: HeaderName, value: String) -> Answer {
    let value = HeaderValue::try_from(value)
        .unwrap_or_else(|error| unreachable!("numbers are header values: {error}"));
    answer.headers_mut().insert(name, value);
    answer
}
