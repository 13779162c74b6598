//! The answers: metadata from memory, files from the disk, the rest from elsewhere. A request is matched against valid
//! metadata; no path is made of it.

use std::{
    io::{Seek as _, SeekFrom},
    sync::Arc,
};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::StreamExt as _;
use oac_model::{Digest, SourceCommit};
use oac_release::{layout::Role, limits, metadata::Metadata, store::Shelf};
use tokio::{io::AsyncReadExt as _, sync::Semaphore};
use tokio_util::io::ReaderStream;

use super::{
    blocking,
    range::{self, Wanted},
};
use crate::{
    Core,
    config::ReleaseUrl,
    http::{ApiError, limits::DOWNLOADS, stall::Urgency},
};

/// Under which name something was asked for, and so how long its answer stays true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    /// As the current release's.
    Current,
    /// As one commit's: it never changes.
    Release,
}

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

impl Named {
    fn cache(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Current => "no-cache",
            Self::Release => "public, max-age=31536000, immutable",
        })
    }
}

/// The current release, or 404.
pub(crate) fn current(shelf: &Shelf) -> Result<SourceCommit, ApiError> {
    shelf.current().ok_or_else(ApiError::not_found)
}

/// `index.json`.
pub(crate) fn index(core: &Core, headers: &HeaderMap) -> Result<Response, ApiError> {
    let redirects = core.config.release_url.is_some();
    let index = core
        .releases
        .shelf()
        .index(redirects)
        .ok_or_else(ApiError::not_found)?;
    let bytes =
        serde_json::to_vec(&index).unwrap_or_else(|error| unreachable!("an index is plain data: {error}"));
    Ok(text(Named::Current, "application/json", bytes, headers))
}

/// One of a release's two metadata files.
pub(crate) fn metadata(
    shelf: &Shelf,
    commit: SourceCommit,
    named: Named,
    kind: &'static str,
    of: fn(&Metadata) -> &[u8],
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let release = shelf.release(commit).ok_or_else(ApiError::not_found)?;
    Ok(text(named, kind, of(&release.metadata).to_vec(), headers))
}

fn text(named: Named, kind: &'static str, bytes: Vec<u8>, headers: &HeaderMap) -> Response {
    let etag = etag(Digest::of(&bytes));
    if range::is_known(headers, &etag) {
        return answer(StatusCode::NOT_MODIFIED, named.cache(), &etag, &[], Body::empty());
    }
    let length = HeaderValue::from(bytes.len());
    let extra = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CONTENT_LENGTH, length),
    ];
    answer(StatusCode::OK, named.cache(), &etag, &extra, Body::from(bytes))
}

/// The files that are being sent.
#[derive(Debug, Clone)]
pub(crate) struct Downloads(Arc<Semaphore>);

impl Default for Downloads {
    fn default() -> Self {
        Self::of(DOWNLOADS)
    }
}

impl Downloads {
    /// At most `limit` at once.
    fn of(limit: usize) -> Self {
        Self(Arc::new(Semaphore::new(limit)))
    }
}

/// How files are sent.
pub(crate) struct Sending<'a> {
    /// Where what is not held is found.
    pub(crate) release_url: Option<&'a ReleaseUrl>,
    pub(crate) downloads: &'a Downloads,
    /// Of the connection that the file is sent on.
    pub(crate) urgency: Urgency,
}

/// A file of a release: what is held, else a redirect where one is allowed. Over the limit of files that are sent at
/// once, 503.
pub(crate) async fn artifact(
    sending: Sending<'_>,
    shelf: Arc<Shelf>,
    commit: SourceCommit,
    filename: &str,
    named: Named,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let release = shelf.release(commit).ok_or_else(ApiError::not_found)?;
    let artifact = release.metadata.manifest().named(filename);
    let artifact = artifact.ok_or_else(ApiError::not_found)?.clone();
    let (looked_at, name) = (shelf.clone(), artifact.filename.clone());
    let opened = blocking(move || {
        looked_at
            .open(commit, &name)
            .map(|found| found.map(|(file, _)| file))
    })
    .await;
    let opened = opened.unwrap_or_else(|error| {
        tracing::error!(event = "release_file_unreadable", file = artifact.filename, %error, "a release file cannot be opened");
        None
    });
    let Some(mut file) = opened else {
        let elsewhere = sending.release_url.filter(|_| artifact.role != Role::Installer);
        let base = elsewhere.ok_or_else(ApiError::not_found)?;
        return Ok(redirect(&base.to(commit, &artifact.filename)));
    };
    let (size, etag) = (artifact.size_bytes, etag(artifact.sha256));
    // What nobody hashed yet may turn out wrong: no cache may go on serving it then.
    let cache = if release.is_held(filename) {
        named.cache()
    } else {
        NO_STORE
    };
    if range::is_known(headers, &etag) {
        return Ok(answer(StatusCode::NOT_MODIFIED, cache, &etag, &[], Body::empty()));
    }
    let kind = (
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    let accept = (header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let content_range = |text: String| {
        let value = HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""));
        (header::CONTENT_RANGE, value)
    };
    let (status, first, count, range) = match range::wanted(headers, size, &etag) {
        Wanted::Whole => (StatusCode::OK, 0, size, None),
        Wanted::Part { first, last } => (
            StatusCode::PARTIAL_CONTENT,
            first,
            last - first + 1,
            Some(format!("bytes {first}-{last}/{size}")),
        ),
        Wanted::Nothing => {
            let extra = [accept, content_range(format!("bytes */{size}"))];
            let status = StatusCode::RANGE_NOT_SATISFIABLE;
            return Ok(answer(status, NO_STORE, &etag, &extra, Body::empty()));
        }
    };
    let slot = sending.downloads.0.clone().try_acquire_owned();
    let slot = slot.map_err(|_| ApiError::downloads_busy())?;
    let urgent = sending.urgency.begin();
    let sought = blocking(move || file.seek(SeekFrom::Start(first)).map(|_| file)).await;
    let file = sought.map_err(|error| {
        tracing::error!(event = "release_file_unreadable", file = artifact.filename, %error, "a release file cannot be read");
        ApiError::not_found()
    })?;
    let stream =
        ReaderStream::with_capacity(tokio::fs::File::from_std(file).take(count), limits::CHUNK_BYTES);
    // Both end with the body.
    let stream = stream.inspect(move |_| {
        let _ = (&slot, &urgent);
    });
    let mut extra = vec![kind, accept, (header::CONTENT_LENGTH, HeaderValue::from(count))];
    extra.extend(range.map(content_range));
    Ok(answer(status, cache, &etag, &extra, Body::from_stream(stream)))
}

fn etag(digest: Digest) -> String {
    format!("\"{digest}\"")
}

fn redirect(to: &str) -> Response {
    let location = HeaderValue::try_from(to).unwrap_or(HeaderValue::from_static(""));
    let headers = [(header::LOCATION, location), (header::CACHE_CONTROL, NO_STORE)];
    (StatusCode::FOUND, headers).into_response()
}

fn answer(
    status: StatusCode,
    cache: HeaderValue,
    etag: &str,
    extra: &[(HeaderName, HeaderValue)],
    body: Body,
) -> Response {
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, cache);
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    if let Ok(etag) = HeaderValue::try_from(etag) {
        headers.insert(header::ETAG, etag);
    }
    for (name, value) in extra {
        headers.insert(name, value.clone());
    }
    response
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use oac_release::{
        layout,
        made::{commit, made},
        store,
    };

    use super::*;

    /// The answer for a file of `shelf`, asked for by its commit.
    async fn asked(shelf: &Arc<Shelf>, range: Option<&'static str>) -> Response {
        asked_of(&Downloads::default(), shelf, range).await.unwrap()
    }

    async fn asked_of(
        downloads: &Downloads,
        shelf: &Arc<Shelf>,
        range: Option<&'static str>,
    ) -> Result<Response, ApiError> {
        let sending = Sending {
            release_url: None,
            downloads,
            urgency: Urgency::default(),
        };
        let mut headers = HeaderMap::new();
        headers.extend(range.map(|range| (header::RANGE, HeaderValue::from_static(range))));
        let name = layout::NODE.filename(commit('a'));
        let asked = artifact(
            sending,
            shelf.clone(),
            commit('a'),
            &name,
            Named::Release,
            &headers,
        );
        asked.await
    }

    #[tokio::test]
    async fn over_the_limit_of_files_that_are_sent_at_once_a_client_is_told_to_come_again() {
        let temp = tempfile::tempdir().unwrap();
        let (offer, releases) = (temp.path().join("offer"), temp.path().join("releases"));
        std::fs::create_dir(&releases).unwrap();
        made(commit('a'), "x").write(&offer);
        store::publish(&releases, &offer, false).unwrap();
        let shelf = Arc::new(Shelf::read(&releases, &Shelf::default(), &HashMap::new()).unwrap());
        let downloads = Downloads::of(2);
        let first = asked_of(&downloads, &shelf, None).await.unwrap();
        let second = asked_of(&downloads, &shelf, Some("bytes=0-0")).await.unwrap();
        let refused = asked_of(&downloads, &shelf, None)
            .await
            .unwrap_err()
            .into_response();
        assert_eq!(refused.status(), 503);
        assert_eq!(refused.headers()[header::RETRY_AFTER], "2");
        // An answer without a body needs no place.
        let past = asked_of(&downloads, &shelf, Some("bytes=9999999-")).await;
        assert_eq!(past.unwrap().status(), 416);
        drop(second);
        let whole = asked_of(&downloads, &shelf, None).await.unwrap();
        axum::body::to_bytes(whole.into_body(), usize::MAX).await.unwrap();
        assert!(
            asked_of(&downloads, &shelf, None).await.is_ok(),
            "it was sent to its end"
        );
        drop(first);
    }

    // inv: INV-R6, INV-R10
    #[tokio::test]
    async fn only_what_was_hashed_and_found_right_may_be_kept_by_caches() {
        let temp = tempfile::tempdir().unwrap();
        let (offer, releases) = (temp.path().join("offer"), temp.path().join("releases"));
        std::fs::create_dir(&releases).unwrap();
        made(commit('a'), "x").write(&offer);
        store::publish(&releases, &offer, false).unwrap();
        let unread = Arc::new(Shelf::read(&releases, &Shelf::default(), &HashMap::new()).unwrap());
        let mut verdicts = HashMap::new();
        let mut shelf = Shelf::clone(&unread);
        loop {
            let Some((commit, artifact, key)) = shelf.unread().next() else {
                break;
            };
            let right = store::verify(&releases, commit, &artifact, key).unwrap();
            verdicts.insert((key, artifact.sha256), right.unwrap());
            shelf = Shelf::read(&releases, &shelf, &verdicts).unwrap();
        }
        let held = Arc::new(shelf);
        let forever = "public, max-age=31536000, immutable";
        for (shelf, range, status, cache) in [
            (&unread, None, 200, "no-store"),
            (&unread, Some("bytes=0-0"), 206, "no-store"),
            (&unread, Some("bytes=9999999-"), 416, "no-store"),
            (&held, None, 200, forever),
            (&held, Some("bytes=0-0"), 206, forever),
            (&held, Some("bytes=9999999-"), 416, "no-store"),
        ] {
            let answer = asked(shelf, range).await;
            assert_eq!(answer.status(), status);
            assert_eq!(
                answer.headers()[header::CACHE_CONTROL],
                cache,
                "{status} {range:?}"
            );
        }
    }
}
