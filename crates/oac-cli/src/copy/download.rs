//! From a sandbox to here. Nothing the sandbox says chooses a place outside the one given.

use std::{
    fs::{DirBuilder, Permissions},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use reqwest::{
    Response, StatusCode,
    header::{self, HeaderMap, HeaderValue},
};
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;
use tokio::time::timeout;

use super::{AT_ONCE, ATTEMPTS, Report, STILL, is_general, names, not_begun, place::Remote};
use crate::{
    Failure,
    client::{Client, files::Kind, turns::Stream},
    output::{
        self,
        streams::{Reader, Streams},
    },
};

/// The pause before a broken download is asked for again; longer with each attempt.
const BROKEN_PAUSE: Duration = Duration::from_millis(500);
/// So many entries of a tree are copied at most; a sandbox that lists more has no end.
const ENTRIES: usize = 200_000;
/// The deepest folder, counted from the one named.
const DEPTH: usize = 256;

/// One file to be fetched.
struct Fetch {
    from: Remote,
    to: PathBuf,
    mode: u32,
}

pub(super) async fn run(client: &Client, from: &Remote, to: &Path, report: &Report) -> Result<(), Failure> {
    let into = to.as_os_str().as_encoded_bytes().ends_with(b"/") || to.is_dir();
    if !from.says_folder() {
        match open(client, from, None).await {
            Ok(response) => {
                let to = match from.name() {
                    Some(name) if into => to.join(names::plain(name).unwrap_or(name)),
                    _ => to.to_owned(),
                };
                let mode = header_mode(response.headers()).unwrap_or(0o644);
                report.expect(response.content_length().unwrap_or(0));
                let fetch = Fetch {
                    from: from.clone(),
                    to,
                    mode,
                };
                let bytes = save(client, &fetch, Some(response), report).await?;
                report.copied(&fetch.to.display().to_string(), bytes);
                return Ok(());
            }
            // Perhaps a folder; if not, this is what is wrong.
            Err(failure @ Failure::Refused { status: 400..500, .. }) if !is_general(&failure) => {
                match client.list_folder(from.session, &from.path, None).await {
                    Ok(_) => {}
                    Err(Failure::Refused { status: 400..500, .. }) => return Err(failure),
                    Err(other) => return Err(other),
                }
            }
            Err(failure) => return Err(failure),
        }
    }
    let root = match from.name() {
        Some(name) if into => to.join(names::plain(name).unwrap_or(name)),
        _ => to.to_owned(),
    };
    make_folder(&root)?;
    tree(client, from, &root, report).await
}

/// A file on standard output. Whether it went there to its end: who reads may want no more, and a disk may be full.
pub(super) async fn run_pipe(client: &Client, from: &Remote, report: &Report) -> Result<bool, Failure> {
    let response = open(client, from, None).await?;
    let expected = response.content_length();
    let wanted = digest_of(response.headers());
    let (mut streams, mut sha256, mut bytes) = (Streams::default(), Sha256::new(), 0_u64);
    let mut body = response.bytes_stream();
    loop {
        match timeout(STILL, body.next()).await {
            Ok(Some(Ok(chunk))) => {
                sha256.update(&chunk);
                bytes += chunk.len() as u64;
                if streams.write(Stream::Stdout, &chunk).await == Reader::Gone || output::is_lost() {
                    return Ok(false);
                }
            }
            Ok(None) if expected.is_none_or(|n| n == bytes) => break,
            _ => {
                return Err(Failure::Unfinished(format!(
                    "the file broke off after {bytes} bytes: copy it again"
                )));
            }
        }
    }
    if wanted.is_some_and(|wanted| wanted != <[u8; 32]>::from(sha256.finalize())) {
        return Err(damaged());
    }
    report.copied(&from.path, bytes);
    Ok(true)
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    let path = path.to_owned();
    move |source| Failure::File {
        path: path.clone(),
        source,
    }
}

fn damaged() -> Failure {
    Failure::Unfinished("what arrived is not what the sandbox holds: copy it again".to_owned())
}

/// A folder of this machine, made if it is missing. Links are not taken for folders below the one the user named.
fn make_folder(path: &Path) -> Result<(), Failure> {
    match DirBuilder::new().recursive(true).create(path) {
        Ok(()) => Ok(()),
        Err(source) => Err(failed(path)(source)),
    }
}

fn make_inner(path: &Path) -> Result<(), Failure> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(Failure::Unfinished(
            "something that is no folder is in its place: move it away".to_owned(),
        )),
        Err(_) => std::fs::create_dir(path).map_err(failed(path)),
    }
}

/// Lists the tree, making its folders, then fetches its files.
async fn tree(client: &Client, from: &Remote, root: &Path, report: &Report) -> Result<(), Failure> {
    let mut folders = vec![(from.clone(), root.to_owned(), 0)];
    let (mut fetches, mut entries) = (Vec::new(), 0);
    while let Some((folder, to, depth)) = folders.pop() {
        let mut cursor: Option<String> = None;
        loop {
            let page = match client
                .list_folder(folder.session, &folder.path, cursor.as_deref())
                .await
            {
                Ok(page) => page,
                Err(failure) if is_general(&failure) || depth == 0 => return Err(failure),
                Err(failure) => {
                    report.failed(&folder.path, &failure);
                    break;
                }
            };
            // Every page counts, so that an endless list of empty ones ends too.
            entries += 1 + page.data.len();
            if entries > ENTRIES {
                return Err(Failure::Unfinished(format!(
                    "{from} holds over {ENTRIES} entries: copy its folders one by one, or as an archive"
                )));
            }
            for record in page.data {
                let Some(name) = names::plain(&record.path) else {
                    report.failed(
                        &record.path,
                        &Failure::Unfinished(
                            "its name cannot be kept here: rename it in the sandbox".to_owned(),
                        ),
                    );
                    continue;
                };
                let (inner, target) = (folder.join(name), to.join(name));
                match record.kind {
                    Kind::Directory if depth < DEPTH => match make_inner(&target) {
                        Ok(()) => folders.push((inner, target, depth + 1)),
                        Err(failure) => report.failed(&inner.path, &failure),
                    },
                    Kind::Directory => report.failed(
                        &inner.path,
                        &Failure::Unfinished("it lies too deep: copy it by itself".to_owned()),
                    ),
                    Kind::File => {
                        report.expect(record.size);
                        fetches.push(Fetch {
                            from: inner,
                            to: target,
                            mode: record.mode.0,
                        });
                    }
                    Kind::Symlink => report.skipped(&inner.path, "a symbolic link"),
                    Kind::Other => report.skipped(&inner.path, "a special file"),
                }
            }
            match page.next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
    }
    let mut transfers = stream::iter(fetches)
        .map(|fetch| async move {
            let done = save(client, &fetch, None, report).await;
            (fetch, done)
        })
        .buffer_unordered(AT_ONCE);
    while let Some((fetch, done)) = transfers.next().await {
        match done {
            Ok(bytes) => report.copied(&fetch.to.display().to_string(), bytes),
            Err(failure) if is_general(&failure) => return Err(failure),
            Err(failure) => report.failed(&fetch.from.path, &failure),
        }
    }
    Ok(())
}

async fn open(
    client: &Client,
    from: &Remote,
    resume: Option<(u64, &HeaderValue)>,
) -> Result<Response, Failure> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let response = client.open_file(from.session, &from.path, resume).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let failure = client.refusal(response).await;
        match not_begun(&failure) {
            Some(pause) if attempt < ATTEMPTS => tokio::time::sleep(pause).await,
            _ => return Err(failure),
        }
    }
}

/// A file takes the place of a file, or of a link to one. A device is not to be lost, which root could do to `/dev/null`
/// or, through the link that it is, to `/dev/stdout`.
fn check_replaced(path: &Path) -> Result<(), Failure> {
    let (Ok(own), followed) = (std::fs::symlink_metadata(path), std::fs::metadata(path)) else {
        return Ok(());
    };
    let what = if own.is_dir() {
        "a folder"
    } else if followed.is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        "a device, a pipe or a socket"
    } else {
        return Ok(());
    };
    Err(Failure::Unfinished(format!(
        "{} is {what}: a file cannot take its place; `-` is standard output",
        path.display()
    )))
}

/// A file as it arrives, beside its place until it is whole.
struct Partial {
    file: NamedTempFile,
    sha256: Sha256,
    bytes: u64,
    /// The whole file's length and digest, as far as Core said.
    length: Option<u64>,
    digest: Option<[u8; 32]>,
    /// What a continuation must still be a part of.
    version: Option<HeaderValue>,
}

/// Fetches one file and gives it its name once it is whole. A broken download goes on where it broke if Core can tell
/// that the file is still the same, else begins anew; it leaves nothing behind.
async fn save(
    client: &Client,
    fetch: &Fetch,
    begun: Option<Response>,
    report: &Report,
) -> Result<u64, Failure> {
    check_replaced(&fetch.to)?;
    let mut begun = begun;
    let mut partial: Option<Partial> = None;
    for attempt in 1..=ATTEMPTS {
        let resume = partial
            .as_ref()
            .and_then(|p| Some((p.bytes, p.version.as_ref()?)));
        let response = match begun.take() {
            Some(response) => response,
            None => match open(client, &fetch.from, resume).await {
                Ok(response) => response,
                Err(failure) if failure.is_passing() && attempt < ATTEMPTS => {
                    tokio::time::sleep(BROKEN_PAUSE * attempt).await;
                    continue;
                }
                Err(failure) => return Err(failure),
            },
        };
        let mut now = match partial.take() {
            Some(partial) if response.status() == StatusCode::PARTIAL_CONTENT => partial,
            before => {
                report.unmoved(before.map_or(0, |p| p.bytes));
                Partial::begin(fetch, response.headers(), response.content_length())?
            }
        };
        if now.take(response, report).await? {
            return now.finish(&fetch.to);
        }
        partial = Some(now);
    }
    Err(Failure::Unfinished(
        "the file broke off again and again: copy it later".to_owned(),
    ))
}

impl Partial {
    fn begin(fetch: &Fetch, headers: &HeaderMap, length: Option<u64>) -> Result<Self, Failure> {
        let folder = match fetch.to.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        // The umask of this account applies; set-user-id and the like stay in the sandbox.
        let mode = fetch.mode & 0o777;
        let file = tempfile::Builder::new()
            .prefix(".oac-")
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(folder)
            .map_err(|source| Failure::beside(&fetch.to, source))?;
        Ok(Self {
            file,
            sha256: Sha256::new(),
            bytes: 0,
            length,
            digest: digest_of(headers),
            version: headers
                .get(header::ETAG)
                .filter(|tag| !tag.as_bytes().starts_with(b"W/"))
                .cloned(),
        })
    }

    /// Takes a body in; whether the file is whole.
    async fn take(&mut self, response: Response, report: &Report) -> Result<bool, Failure> {
        let mut body = response.bytes_stream();
        loop {
            match timeout(STILL, body.next()).await {
                Ok(Some(Ok(chunk))) => {
                    self.file.write_all(&chunk).map_err(failed(self.file.path()))?;
                    self.sha256.update(&chunk);
                    self.bytes += chunk.len() as u64;
                    report.moved(chunk.len());
                }
                Ok(None) => return Ok(self.length.is_none_or(|length| length == self.bytes)),
                Ok(Some(Err(_))) | Err(_) => return Ok(false),
            }
        }
    }

    fn finish(self, to: &Path) -> Result<u64, Failure> {
        let sha256: [u8; 32] = self.sha256.finalize().into();
        if self.digest.is_some_and(|digest| digest != sha256) {
            return Err(damaged());
        }
        self.file.persist(to).map_err(|error| failed(to)(error.error))?;
        Ok(self.bytes)
    }
}

/// The SHA-256 that an answer's head gives of the whole file.
fn digest_of(headers: &HeaderMap) -> Option<[u8; 32]> {
    let text = ["repr-digest", "content-digest"]
        .iter()
        .find_map(|name| headers.get(*name))?
        .to_str()
        .ok()?;
    let encoded = text.split(',').find_map(|one| {
        one.trim()
            .strip_prefix("sha-256=:")
            .and_then(|rest| rest.strip_suffix(':'))
    })?;
    base64_simd::STANDARD.decode_to_vec(encoded).ok()?.try_into().ok()
}

fn header_mode(headers: &HeaderMap) -> Option<u32> {
    let text = headers.get("oac-file-mode")?.to_str().ok()?;
    u32::from_str_radix(text, 8).ok()
}
