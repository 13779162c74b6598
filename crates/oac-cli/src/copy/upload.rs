//! From here into a sandbox.

use std::{
    cell::Cell,
    fs::{File, Metadata},
    io::{Read, Seek, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    rc::Rc,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use oac_model::Digest;
use reqwest::Body;
use sha2::{Digest as _, Sha256};
use tokio::{io::AsyncReadExt, sync::watch, time::Instant};

use super::{
    AT_ONCE, ATTEMPTS, CHUNK_BYTES, FILE_BYTES, Report, STILL, is_general, not_begun, place::Remote,
};
use crate::{Failure, client::Client};

/// What is to be copied.
#[derive(Default)]
struct Plan {
    files: Vec<(PathBuf, Remote)>,
    /// Folders that hold nothing that is copied.
    empty: Vec<Remote>,
}

pub(super) async fn run(client: &Client, from: &Path, to: &Remote, report: &Report) -> Result<(), Failure> {
    let metadata = std::fs::metadata(from).map_err(|source| failed(from, source))?;
    let target = target(client, from, to, &metadata).await?;
    let mut plan = Plan::default();
    if metadata.is_dir() {
        walk(from, &target, &mut plan, report)?;
    } else if metadata.is_file() {
        plan.files.push((from.to_owned(), target));
    } else {
        return Err(Failure::Usage(format!(
            "{} is neither a file nor a folder: pipe its bytes through `-`",
            from.display()
        )));
    }
    for (path, _) in &plan.files {
        report.expect(std::fs::metadata(path).map_or(0, |m| m.len()));
    }
    let mut transfers = stream::iter(plan.files)
        .map(|(path, to)| async move {
            let done = send(client, &path, &to, report).await;
            (path, done)
        })
        .buffer_unordered(AT_ONCE);
    while let Some((path, done)) = transfers.next().await {
        match done {
            Ok(bytes) => report.copied(&path.display().to_string(), bytes),
            // Alone, it is all there is to say.
            Err(failure) if !metadata.is_dir() => return Err(failure),
            // Missing folders are made, so what is not there is the Session.
            Err(failure @ Failure::Refused { status: 404, .. }) => return Err(failure),
            Err(failure) if is_general(&failure) => return Err(failure),
            Err(failure) => report.failed(&path.display().to_string(), &failure),
        }
    }
    for folder in plan.empty {
        report.skipped(&folder.path, "an empty folder; make it with `oac session exec`");
    }
    Ok(())
}

/// Standard input as a file.
pub(super) async fn run_pipe(client: &Client, to: &Remote, report: &Report) -> Result<(), Failure> {
    if to.says_folder() {
        return Err(Failure::Usage(
            "standard input has no name: give the path of a file".to_owned(),
        ));
    }
    // Core wants the length before the bytes.
    let spool = |source| failed(Path::new("a temporary file"), source);
    let name = Path::new("standard input");
    let mut file = tempfile::tempfile().map_err(spool)?;
    // Read beside everything else, so that a request to end is heard while nothing comes.
    let mut stdin = tokio::io::stdin();
    let (mut chunk, mut bytes) = (vec![0; CHUNK_BYTES], 0);
    loop {
        let read = stdin.read(&mut chunk).await.map_err(|e| failed(name, e))?;
        if read == 0 {
            break;
        }
        bytes += read as u64;
        if bytes > FILE_BYTES {
            return Err(too_large(name));
        }
        file.write_all(&chunk[..read]).map_err(spool)?;
    }
    report.expect(bytes);
    let bytes = send_open(client, file, name, None, to, report).await?;
    report.copied(&to.path, bytes);
    Ok(())
}

fn failed(path: &Path, source: std::io::Error) -> Failure {
    Failure::File {
        path: path.to_owned(),
        source,
    }
}

fn too_large(path: &Path) -> Failure {
    Failure::Usage(format!(
        "{} is over 512 MiB, the most a file may have: copy it in parts",
        path.display()
    ))
}

/// Where `from` goes: into a folder that exists or is said to be one, else under the name given.
async fn target(client: &Client, from: &Path, to: &Remote, metadata: &Metadata) -> Result<Remote, Failure> {
    let text = from.as_os_str().as_encoded_bytes();
    let contents = metadata.is_dir() && (text == b"." || text.ends_with(b"/."));
    if contents {
        return Ok(to.clone());
    }
    let into = to.says_folder() || is_folder(client, to).await?;
    if !into {
        return Ok(to.clone());
    }
    let Some(name) = from.file_name() else {
        return Ok(to.clone());
    };
    match name.to_str() {
        Some(name) => Ok(to.join(name)),
        None => Err(not_utf8(from)),
    }
}

fn not_utf8(path: &Path) -> Failure {
    Failure::Usage(format!(
        "{} has a name that is not UTF-8: rename it",
        path.display()
    ))
}

async fn is_folder(client: &Client, place: &Remote) -> Result<bool, Failure> {
    match client.list_folder(place.session, &place.path, None).await {
        Ok(_) => Ok(true),
        Err(failure @ Failure::Refused { status: 400..500, .. }) if !is_general(&failure) => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// Everything below `from`. Links are not followed: they could lead anywhere, or around.
fn walk(from: &Path, to: &Remote, plan: &mut Plan, report: &Report) -> Result<(), Failure> {
    let mut folders = vec![(from.to_owned(), to.clone())];
    while let Some((folder, to)) = folders.pop() {
        let mut entries: Vec<_> = match std::fs::read_dir(&folder).and_then(Iterator::collect) {
            Ok(entries) => entries,
            Err(source) => {
                report.failed(&folder.display().to_string(), &failed(&folder, source));
                continue;
            }
        };
        if entries.is_empty() {
            plan.empty.push(to.clone());
        }
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let shown = path.display().to_string();
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                report.failed(&shown, &not_utf8(&path));
                continue;
            };
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push((path, to.join(&name))),
                Ok(kind) if kind.is_file() => plan.files.push((path, to.join(&name))),
                Ok(kind) if kind.is_symlink() => report.skipped(&shown, "a symbolic link"),
                Ok(_) => report.skipped(&shown, "a special file"),
                Err(source) => report.failed(&shown, &failed(&path, source)),
            }
        }
    }
    Ok(())
}

async fn send(client: &Client, path: &Path, to: &Remote, report: &Report) -> Result<u64, Failure> {
    let file = File::open(path).map_err(|source| failed(path, source))?;
    let metadata = file.metadata().map_err(|source| failed(path, source))?;
    if metadata.len() > FILE_BYTES {
        return Err(too_large(path));
    }
    let mode = metadata.permissions().mode() & 0o777;
    send_open(client, file, path, Some(mode), to, report).await
}

async fn send_open(
    client: &Client,
    mut file: File,
    path: &Path,
    mode: Option<u32>,
    to: &Remote,
    report: &Report,
) -> Result<u64, Failure> {
    let broken = |source| failed(path, source);
    let (length, digest) = hash(&mut file).await.map_err(broken)?;
    let file = Rc::new(file);
    let mut attempt = 0;
    loop {
        attempt += 1;
        let mut again = &*file;
        again.rewind().map_err(broken)?;
        let copy = file.try_clone().map_err(broken)?;
        let done = send_once(client, copy, length, &digest, mode, to, report).await;
        match done {
            Ok(written) if *written.as_bytes() == digest => return Ok(length),
            Ok(_) => {
                return Err(Failure::Unfinished(
                    "what arrived is not what was sent: copy it again".to_owned(),
                ));
            }
            // Without a connection nothing was sent.
            Err(Failure::Unreachable { source, .. }) if !source.is_connect() => {
                let now = std::fs::metadata(path).map(|m| m.len());
                return Err(Failure::Unfinished(match now {
                    Ok(now) if now < length => {
                        "it became shorter while it was read: copy it again".to_owned()
                    }
                    // What Core says early in a long upload may be lost with the connection.
                    _ => format!(
                        "the connection to {} broke; whether the file was written is unknown: copy it again, and if that \
                         breaks too, try a small file there",
                        client.url()
                    ),
                }));
            }
            Err(failure) => match not_begun(&failure) {
                Some(pause) if attempt < ATTEMPTS => tokio::time::sleep(pause).await,
                _ => return Err(failure),
            },
        }
    }
}

async fn hash(file: &mut File) -> std::io::Result<(u64, [u8; 32])> {
    let (mut sha256, mut length) = (Sha256::new(), 0);
    file.rewind()?;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok((length, sha256.finalize().into())),
            n => {
                sha256.update(&chunk[..n]);
                length += n as u64;
            }
        }
        // Ctrl-C and the other transfers have their turn.
        tokio::task::yield_now().await;
    }
}

async fn send_once(
    client: &Client,
    file: File,
    length: u64,
    digest: &[u8; 32],
    mode: Option<u32>,
    to: &Remote,
    report: &Report,
) -> Result<Digest, Failure> {
    let (moved, mut progress) = watch::channel(0_usize);
    let body = Body::wrap_stream(stream::unfold(
        (file, length, moved),
        |(mut file, left, moved)| async move {
            if left == 0 {
                return None;
            }
            let mut chunk = vec![0; CHUNK_BYTES.min(usize::try_from(left).unwrap_or(CHUNK_BYTES))];
            let read = match file.read(&mut chunk) {
                Ok(0) => Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof)),
                Ok(n) => {
                    chunk.truncate(n);
                    moved.send_modify(|total| *total += n);
                    Ok(Bytes::from(chunk))
                }
                Err(e) => Err(e),
            };
            let left = left.saturating_sub(read.as_ref().map_or(left, |c| c.len() as u64));
            Some((read, (file, left, moved)))
        },
    ));
    let told = Cell::new(0_usize);
    let watched = async {
        let mut open = true;
        loop {
            let still = Instant::now() + STILL;
            let changed = async {
                match open {
                    true => progress.changed().await,
                    false => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = changed => {
                    open = changed.is_ok();
                    let total = *progress.borrow_and_update();
                    report.moved(total - told.replace(total));
                }
                () = tokio::time::sleep_until(still) => break,
            }
        }
    };
    let written = tokio::select! {
        written = client.write_file(to.session, &to.path, mode, body, length, digest) => written,
        () = watched => Err(Failure::NoAnswer { url: client.url().to_owned(), seconds: STILL.as_secs() }),
    };
    match written {
        Ok(written) => {
            report.moved((length as usize).saturating_sub(told.get()));
            Ok(written.value.sha256)
        }
        Err(failure) => {
            report.unmoved(told.get() as u64);
            Err(failure)
        }
    }
}
