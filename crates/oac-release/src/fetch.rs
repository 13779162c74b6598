//! Releases from a server: a console, and wherever it sends its visitors (releases.md section 7, installer.md section 8).
//!
//! All calls block; call them from a thread that no async runtime runs on (`spawn_blocking` is one). Requests carry no
//! credential of any kind. What is asked for is named by a commit, so that a console that changes its current release
//! in the middle of a download changes nothing of it.

mod answer;
mod redirect;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use oac_dial::{Arriving, ReachError, Rest, Surroundings, Way, request_to};
use oac_model::SourceCommit;
use oac_proxy::Proxies;
use rustls::ClientConfig;
use url::Url;

use crate::{
    layout::RELEASES,
    limits,
    manifest::Artifact,
    metadata::{ARTIFACTS, MANIFEST, SUMS},
    pace::Pace,
    source::{ReadError, Sink, Source},
};
use answer::Verdict;

/// How often a wait looks at the clock.
const TICK: Duration = Duration::from_millis(100);

/// A monotonic clock, looked at while something is awaited. A test's may run ahead of the real one, so that nobody waits
/// for a minute to pass.
pub trait Clock: Send + Sync {
    fn now(&self) -> Duration;
    /// Nothing came for a tenth of a second.
    fn idle(&self) {}
}

struct Monotonic(Instant);

impl Clock for Monotonic {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// The releases of one console.
pub struct Remote {
    origin: Url,
    proxies: Proxies,
    tls: Arc<ClientConfig>,
    program: HeaderValue,
    clock: Arc<dyn Clock>,
    runtime: tokio::runtime::Runtime,
}

#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error("TLS could not be set up")]
    Tls(#[source] rustls::Error),
    #[error("the program could not prepare to wait for the network")]
    Runtime(#[source] std::io::Error),
}

impl Remote {
    /// Of the console at `origin`, an http or https one whose path is ignored. `program` names this program to servers,
    /// as `oac-node/0.1.0`.
    pub fn new(origin: &Url, surroundings: Surroundings, program: HeaderValue) -> Result<Self, RemoteError> {
        Self::by(origin, surroundings, program, Arc::new(Monotonic(Instant::now())))
    }

    /// As [`Self::new`], by another clock.
    pub fn by(
        origin: &Url,
        surroundings: Surroundings,
        program: HeaderValue,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, RemoteError> {
        Ok(Self {
            origin: origin.clone(),
            proxies: surroundings.proxies,
            tls: oac_dial::tls(surroundings.roots).map_err(RemoteError::Tls)?,
            program,
            clock,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(RemoteError::Runtime)?,
        })
    }

    fn transfers(&self) -> Transfers {
        Transfers {
            proxies: self.proxies.clone(),
            tls: self.tls.clone(),
            program: self.program.clone(),
            clock: self.clock.clone(),
        }
    }

    fn url(&self, commit: SourceCommit, path: &str) -> Url {
        let mut url = self.origin.clone();
        url.set_path(&format!("{RELEASES}/{commit}/{path}"));
        url.set_query(None);
        url.set_fragment(None);
        url
    }
}

impl Source for Remote {
    fn metadata(&mut self, commit: SourceCommit) -> Result<(Vec<u8>, Vec<u8>), ReadError> {
        let transfers = self.transfers();
        let read = |name: &str| {
            let url = self.url(commit, name);
            self.runtime.block_on(transfers.metadata(commit, &url, name))
        };
        let sums = read(SUMS)?;
        Ok((read(MANIFEST)?, sums))
    }

    fn artifact(
        &mut self,
        commit: SourceCommit,
        artifact: &Artifact,
        from: u64,
        sink: &mut dyn Sink,
    ) -> Result<(), ReadError> {
        let url = self.url(commit, &format!("{ARTIFACTS}/{}", artifact.filename));
        let transfers = self.transfers();
        self.runtime
            .block_on(transfers.artifact(&url, artifact, from, sink))
    }
}

struct Transfers {
    proxies: Proxies,
    tls: Arc<ClientConfig>,
    program: HeaderValue,
    clock: Arc<dyn Clock>,
}

/// How a try ended.
enum Ended {
    /// Another may go better.
    Broken(ReadError),
    /// None will.
    Final(ReadError),
}

impl Transfers {
    async fn metadata(&self, commit: SourceCommit, url: &Url, name: &str) -> Result<Vec<u8>, ReadError> {
        let mut pauses = limits::PAUSES.iter();
        loop {
            match self.metadata_once(commit, url, name).await {
                Ok(bytes) => return Ok(bytes),
                Err(Ended::Final(error)) => return Err(error),
                Err(Ended::Broken(error)) => match pauses.next() {
                    Some(pause) => self.pause(*pause).await,
                    None => return Err(error),
                },
            }
        }
    }

    async fn metadata_once(&self, commit: SourceCommit, url: &Url, name: &str) -> Result<Vec<u8>, Ended> {
        let way = self.way(url, name)?;
        let asked = self.within(
            limits::METADATA_CALL,
            way.ask(request(url, 0), limits::METADATA_BYTES),
        );
        let answer = match asked.await {
            None => {
                let cause = "no whole answer came within 15 s".into();
                let file = name.to_owned();
                return Err(Ended::Broken(ReadError::Broken { file, cause }));
            }
            Some(Err(ReachError::Large)) => {
                return Err(Ended::Final(wrong(name, "has more than 1 MiB")));
            }
            Some(Err(error)) => return Err(broken(name, error)),
            Some(Ok(answer)) => answer,
        };
        let status = answer.head.status;
        match answer.rest {
            Rest::Body(body) if status == StatusCode::OK => {
                if answer::is_encoded(&answer.head.headers) {
                    return Err(Ended::Final(wrong(name, answer::ENCODED)));
                }
                Ok(body.to_vec())
            }
            _ if status == StatusCode::NOT_FOUND => Err(Ended::Final(ReadError::NoRelease(commit))),
            _ => Err(refused(name, status)),
        }
    }

    async fn artifact(
        &self,
        url: &Url,
        artifact: &Artifact,
        from: u64,
        sink: &mut dyn Sink,
    ) -> Result<(), ReadError> {
        let mut pauses = limits::PAUSES.iter();
        let mut at = from;
        loop {
            match self.transfer(url, artifact, &mut at, sink).await {
                Ok(()) => return Ok(()),
                Err(Ended::Final(error)) => return Err(error),
                Err(Ended::Broken(error)) => match pauses.next() {
                    Some(pause) => self.pause(*pause).await,
                    None => return Err(error),
                },
            }
        }
    }

    /// One transfer, from `at`, which it moves.
    async fn transfer(
        &self,
        url: &Url,
        artifact: &Artifact,
        at: &mut u64,
        sink: &mut dyn Sink,
    ) -> Result<(), Ended> {
        let name = &artifact.filename;
        let size = artifact.size_bytes;
        let mut pace = Pace::begin(self.clock.now());
        let mut answer = self.opened(url, name, at, size, sink, &mut pace).await?;
        while *at < size {
            let Some(bytes) = self.next(&mut answer, name, &mut pace).await? else {
                let cause = "it ended early".into();
                let file = name.clone();
                return Err(Ended::Broken(ReadError::Broken { file, cause }));
            };
            pace.arrived(self.clock.now(), bytes.len() as u64);
            if bytes.len() as u64 > size - *at {
                return Err(Ended::Final(wrong(name, LONGER)));
            }
            sink.append(&bytes).map_err(kept)?;
            *at += bytes.len() as u64;
        }
        // A body that goes on is not the file, though its beginning may be.
        match self.next(&mut answer, name, &mut pace).await? {
            None => Ok(()),
            Some(_) => Err(Ended::Final(wrong(name, LONGER))),
        }
    }

    /// The answer that has the bytes from `at` on, behind all redirects.
    async fn opened(
        &self,
        url: &Url,
        name: &str,
        at: &mut u64,
        size: u64,
        sink: &mut dyn Sink,
        pace: &mut Pace,
    ) -> Result<Arriving, Ended> {
        let mut url = url.clone();
        let mut redirects = 0;
        loop {
            let way = self.way(&url, name)?;
            let request = request(&url, *at);
            let opened = self.paced(way.open(request), name, pace).await?;
            let answer = opened.map_err(|error| broken(name, error))?;
            match answer::judge(answer.head.status, &answer.head.headers, *at, size) {
                Verdict::Rest => return Ok(answer),
                Verdict::Whole => {
                    if *at > 0 {
                        sink.restart().map_err(kept)?;
                        *at = 0;
                    }
                    return Ok(answer);
                }
                Verdict::StartOver => {
                    sink.restart().map_err(kept)?;
                    *at = 0;
                }
                Verdict::Redirect => {
                    redirects += 1;
                    let wrong = |fault| {
                        let file = name.to_owned();
                        Ended::Final(ReadError::Redirect { file, fault })
                    };
                    if redirects > limits::REDIRECTS {
                        return Err(wrong("follows five others"));
                    }
                    let location = answer.head.headers.get(header::LOCATION);
                    url = redirect::follow(&url, location).map_err(wrong)?;
                }
                Verdict::Refuse(fault) => return Err(Ended::Final(wrong(name, fault))),
                Verdict::Status(status) => return Err(refused(name, status)),
            }
        }
    }

    async fn next(&self, answer: &mut Arriving, name: &str, pace: &mut Pace) -> Result<Option<Bytes>, Ended> {
        let chunk = self.paced(answer.chunk(), name, pace).await?;
        chunk.map_err(|error| broken(name, error))
    }

    fn way(&self, url: &Url, name: &str) -> Result<Way, Ended> {
        Way::new(url, &self.proxies, self.tls.clone(), self.program.clone()).map_err(|error| {
            Ended::Final(ReadError::Broken {
                file: name.to_owned(),
                cause: error.into(),
            })
        })
    }

    /// Awaits `work` for as long as the transfer has not stalled.
    async fn paced<T>(&self, work: impl Future<Output = T>, name: &str, pace: &mut Pace) -> Result<T, Ended> {
        let mut work = std::pin::pin!(work);
        loop {
            if pace.has_stalled(self.clock.now()) {
                let file = name.to_owned();
                return Err(Ended::Final(ReadError::Stalled { file }));
            }
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                () = tokio::time::sleep(TICK) => self.clock.idle(),
            }
        }
    }

    /// `None` when `work` takes longer.
    async fn within<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        let end = self.clock.now() + limit;
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                () = tokio::time::sleep(TICK) => self.clock.idle(),
            }
            if self.clock.now() >= end {
                return None;
            }
        }
    }

    async fn pause(&self, pause: Duration) {
        self.within(pause, std::future::pending::<()>()).await;
    }
}

const LONGER: &str = "has more bytes than the manifest states";

fn request(url: &Url, from: u64) -> Request<Full<Bytes>> {
    let mut request = request_to(url).header(header::ACCEPT_ENCODING, "identity");
    if from > 0 {
        request = request.header(header::RANGE, format!("bytes={from}-"));
    }
    request
        .body(Full::default())
        .unwrap_or_else(|_| unreachable!("a URL and these headers make a request"))
}

fn wrong(name: &str, fault: &'static str) -> ReadError {
    let file = name.to_owned();
    ReadError::Answer { file, fault }
}

fn kept(cause: crate::source::Cause) -> Ended {
    Ended::Final(ReadError::Sink(cause))
}

fn broken(name: &str, error: ReachError) -> Ended {
    let file = name.to_owned();
    // What a proxy refuses it refuses again, unless it says otherwise.
    let is_final = matches!(&error, ReachError::Refused { status, .. } if !answer::is_passing(*status));
    let cause = error.into();
    let error = ReadError::Broken { file, cause };
    if is_final {
        Ended::Final(error)
    } else {
        Ended::Broken(error)
    }
}

fn refused(name: &str, status: StatusCode) -> Ended {
    let error = ReadError::Status {
        file: name.to_owned(),
        status: status.as_u16(),
    };
    if answer::is_passing(status) {
        Ended::Broken(error)
    } else {
        Ended::Final(error)
    }
}
