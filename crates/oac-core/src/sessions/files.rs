//! Files of a Session's sandbox (sessions.md sections 2, 4 and 7).
//!
//! Bytes stream from end to end with back-pressure: nobody holds more of a file than a few pieces. A download is exactly
//! as long as announced or its connection breaks. An upload is sent to the sandbox once: what was not sent may wait for
//! another link, what may have been done is told as that and never repeated.

mod answer;
mod headers;
mod shapes;
mod transfer;

use std::sync::Arc;

use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use oac_link::{
    CallError, LinkClient, LinkError,
    files::{FileDownload, FileError, MODE_HEADER, PutFile},
};
use oac_store::FileOperationKind;
use tokio::time::timeout;

use self::{
    answer::{failed, unknown_outcome},
    shapes::{FilePage, FileQuery, ListQuery, PutQuery, WrittenFile},
    transfer::Upload,
};
use super::reach::Reach;
use crate::{
    Core,
    http::{ApiError, auth::ProjectAuth, strict::StrictQuery, target::Target},
    limits,
    metrics::Asked,
};

/// A regular file's bytes, whole or one range. Starts or wakes the sandbox.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/files",
    params(
        ("session_id" = String, Path, format = Uuid),
        FileQuery,
        ("Range" = Option<String>, Header, description = "One range of bytes; others are passed over"),
        ("If-Range" = Option<String>, Header, description = "The ETag of the answer that this one goes on from")
    ),
    responses(
        (
            status = 200,
            description = "The bytes; ETag names the file's version, OAC-File-Mode its permission bits in octal",
            content((Vec<u8> = "application/octet-stream"))
        ),
        (
            status = 206,
            description = "The bytes of the range, which Content-Range names",
            content((Vec<u8> = "application/octet-stream"))
        )
    )
)]
pub(crate) async fn read_file(
    State(core): State<Arc<Core>>,
    auth: ProjectAuth,
    by: Asked,
    StrictQuery(query): StrictQuery<FileQuery>,
    target: Target,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    query.path.check()?;
    let range = headers::range(&headers).filter(|_| method == Method::GET);
    let version = headers::if_range(&headers);
    let range = range.filter(|_| version != Some(None));
    let version = version.flatten();
    let reach = Reach::begin(&core, auth.project_id, &target, FileOperationKind::Read, by).await?;
    let path = query.path.as_str();
    let version = version.as_deref();
    let ask = |client: LinkClient| async move { client.get_file(path, range, version).await };
    let download = asked(&reach, ask).await?;
    Ok(download_response(download, |body| {
        transfer::download(&core.tasks, body, reach.into_access())
    }))
}

/// Writes a file, whole or not at all, and makes missing directories. Starts or wakes the sandbox.
#[utoipa::path(
    put,
    path = "/v1/sessions/{session_id}/files",
    params(
        ("session_id" = String, Path, format = Uuid),
        PutQuery,
        ("Content-Length" = u64, Header, description = "At most 536870912"),
        ("If-None-Match" = Option<String>, Header, description = "Only `*`: refuse to replace a file"),
        ("Content-Digest" = Option<String>, Header, description = "With sha-256: refuse other bytes")
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "Replaced", body = WrittenFile),
        (status = 201, description = "Made", body = WrittenFile)
    )
)]
pub(crate) async fn write_file(
    State(core): State<Arc<Core>>,
    auth: ProjectAuth,
    StrictQuery(query): StrictQuery<PutQuery>,
    target: Target,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let mut body = Some(body);
    write(&core, auth, &query, &target, &parts, &mut body).await
}

/// `body` is left where it is unless it was given to a sandbox.
async fn write(
    core: &Arc<Core>,
    auth: ProjectAuth,
    query: &PutQuery,
    target: &Target,
    parts: &Parts,
    body: &mut Option<Body>,
) -> Result<Response, ApiError> {
    query.path.check()?;
    let headers = &parts.headers;
    let put = PutFile {
        length: headers::length(headers)?,
        only_new: headers::only_new(headers)?,
        mode: query.mode()?,
        digest: headers::digest(headers)?,
    };
    let reach = Reach::begin(
        core,
        auth.project_id,
        target,
        FileOperationKind::Write,
        Asked::of(&parts.extensions),
    )
    .await?;
    let client = reach.client().await?;
    let Some(bytes) = body.take() else {
        return Err(unknown_outcome());
    };
    let upload = Upload::new(bytes, put.length);
    let path = query.path.as_str();
    match send(&reach, client, path, put, &upload).await {
        Ok(written) => {
            let status = if written.created {
                StatusCode::CREATED
            } else {
                StatusCode::OK
            };
            Ok((status, Json(WrittenFile::new(path, written.answer))).into_response())
        }
        Err(error) => {
            let error = upload.failure(error);
            *body = upload.rest();
            Err(error)
        }
    }
}

/// Sends the upload on `client`, or on the next link if that one had ended before anything was sent.
async fn send(
    reach: &Reach,
    mut client: LinkClient,
    path: &str,
    put: PutFile,
    upload: &Upload,
) -> Result<oac_link::files::FilePut, UploadError> {
    loop {
        let sending = client.put_file(path, put.clone(), upload.body());
        let sent = tokio::select! {
            sent = sending => sent,
            () = upload.stalled() => return Err(UploadError::Stalled),
        };
        match sent {
            Err(FileError::Call(CallError::Link(LinkError::Closed))) if upload.is_untouched() => {
                client = reach.client().await.map_err(UploadError::Reach)?;
            }
            sent => return sent.map_err(UploadError::File),
        }
    }
}

/// Why an upload gave no answer.
enum UploadError {
    File(FileError),
    Reach(ApiError),
    /// Nothing moved for too long.
    Stalled,
}

/// Removes a file, a link or an empty directory. Starts or wakes the sandbox.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{session_id}/files",
    params(("session_id" = String, Path, format = Uuid), FileQuery),
    responses((status = 204, description = "Removed"))
)]
pub(crate) async fn delete_file(
    State(core): State<Arc<Core>>,
    auth: ProjectAuth,
    by: Asked,
    StrictQuery(query): StrictQuery<FileQuery>,
    target: Target,
    headers: HeaderMap,
) -> Result<StatusCode, ApiError> {
    query.path.check()?;
    headers::no_conditions(&headers)?;
    let reach = Reach::begin(&core, auth.project_id, &target, FileOperationKind::Write, by).await?;
    loop {
        let client = reach.client().await?;
        let deleted = timeout(limits::FILE_STALL, client.delete_file(query.path.as_str())).await;
        return match deleted {
            Ok(Ok(())) => Ok(StatusCode::NO_CONTENT),
            Ok(Err(FileError::Call(CallError::Link(LinkError::Closed)))) => continue,
            Ok(Err(FileError::Call(CallError::Link(LinkError::Broken(_)) | CallError::Malformed)))
            | Err(_) => Err(unknown_outcome()),
            Ok(Err(error)) => Err(failed(error)),
        };
    }
}

/// A directory's entries in byte order of their names, at most 1000 a page. Starts or wakes the sandbox.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/files/list",
    params(("session_id" = String, Path, format = Uuid), ListQuery),
    responses((status = 200, body = FilePage))
)]
pub(crate) async fn list_files(
    State(core): State<Arc<Core>>,
    auth: ProjectAuth,
    by: Asked,
    StrictQuery(query): StrictQuery<ListQuery>,
    target: Target,
) -> Result<Json<FilePage>, ApiError> {
    query.check()?;
    let reach = Reach::begin(&core, auth.project_id, &target, FileOperationKind::Read, by).await?;
    let path = query.path.as_str();
    let cursor = query.cursor.as_deref();
    let ask = |client: LinkClient| async move { client.list_files(path, cursor).await };
    let list = asked(&reach, ask).await?;
    Ok(Json(FilePage::new(path, list)))
}

/// Asks the sandbox for something that changes nothing; once more on the next link when one breaks before the answer.
async fn asked<T, F>(reach: &Reach, ask: impl Fn(LinkClient) -> F) -> Result<T, ApiError>
where
    F: Future<Output = Result<T, FileError>>,
{
    let mut broken = 0;
    loop {
        let client = reach.client().await?;
        match timeout(limits::FILE_STALL, ask(client)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(FileError::Call(CallError::Link(LinkError::Closed)))) => {}
            Ok(Err(FileError::Call(CallError::Link(LinkError::Broken(_)))))
                if broken < limits::FILE_READ_TRIES =>
            {
                broken += 1;
            }
            Ok(Err(error)) => return Err(failed(error)),
            Err(_) => return Err(ApiError::sandbox_unreachable()),
        }
    }
}

fn download_response(
    download: FileDownload,
    body: impl FnOnce(oac_link::files::FileBody) -> Body,
) -> Response {
    let (status, length) = match download.range {
        None => (StatusCode::OK, download.size),
        Some((_, length)) => (StatusCode::PARTIAL_CONTENT, length),
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    };
    set(header::CONTENT_LENGTH, length.to_string());
    set(header::CONTENT_TYPE, "application/octet-stream".to_owned());
    // A browser must not take a sandbox's bytes for a page of Core's.
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned());
    set(header::CACHE_CONTROL, "no-store".to_owned());
    set(header::ACCEPT_RANGES, "bytes".to_owned());
    set(header::ETAG, format!("\"{}\"", download.version));
    set(HeaderName::from_static(MODE_HEADER), shapes::octal(download.mode));
    if let Some((first, length)) = download.range {
        let last = first + length - 1;
        set(
            header::CONTENT_RANGE,
            format!("bytes {first}-{last}/{}", download.size),
        );
    }
    *response.body_mut() = body(download.body);
    response
}
