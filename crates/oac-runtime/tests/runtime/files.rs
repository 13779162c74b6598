//! Files of the real program, in a folder of this test.

use std::{
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::Path,
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use oac_link::{
    CallError, LinkClient, LinkError, RequestBody,
    files::{ByteRange, FileDownload, FileError, FilePut, FileRefusal, FileType, PutFile},
    full,
};
use oac_model::Digest;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::acceptor::{LONG, Sandbox, perform, run, until};

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|n| (n % 251) as u8 ^ seed).collect()
}

pub(crate) async fn put(client: &LinkClient, path: &str, bytes: &[u8]) -> Result<FilePut, FileError> {
    let how = PutFile {
        length: bytes.len() as u64,
        ..PutFile::default()
    };
    put_as(client, path, how, bytes).await
}

pub(crate) async fn put_as(
    client: &LinkClient,
    path: &str,
    how: PutFile,
    bytes: &[u8],
) -> Result<FilePut, FileError> {
    let body = full(Bytes::copy_from_slice(bytes));
    timeout(LONG, client.put_file(path, how, body)).await.unwrap()
}

pub(crate) async fn read(download: FileDownload) -> Result<Bytes, CallError> {
    let collected = timeout(LONG, download.body.collect()).await.unwrap();
    collected.map(|whole| whole.to_bytes())
}

pub(crate) async fn get(client: &LinkClient, path: &str) -> Result<Bytes, FileError> {
    let download = timeout(LONG, client.get_file(path, None, None)).await.unwrap()?;
    Ok(read(download).await?)
}

pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, FileError>) -> FileRefusal {
    match result {
        Err(FileError::Refused(refusal)) => refusal,
        other => panic!("no refusal but {other:?}"),
    }
}

/// A body of `first`, then whatever `then` is: an error, or nothing for ever.
fn broken(first: &[u8], error: bool) -> RequestBody {
    let first = Frame::data(Bytes::copy_from_slice(first));
    let then: futures_util::future::BoxFuture<'static, _> = if error {
        Box::pin(std::future::ready(Err("the client left".into())))
    } else {
        Box::pin(std::future::pending())
    };
    StreamBody::new(stream::iter([Ok(first)]).chain(stream::once(then))).boxed_unsync()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_file_is_written_with_its_folders_and_read_whole_and_in_ranges() {
    let (_sandbox, client) = Sandbox::linked().await;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a/b c/ü\n.bin");
    let bytes = pattern(3 << 20, 0);
    let made = put(&client, text(&path), &bytes).await.unwrap();
    assert!(made.created);
    assert_eq!(made.answer.sha256, Digest::of(&bytes));
    let file = &made.answer.file;
    assert_eq!((file.name.as_str(), file.kind), ("ü\n.bin", FileType::File));
    assert_eq!(file.size, bytes.len() as u64);
    assert_eq!(
        fs::metadata(&path).unwrap().mtime() * 1000,
        file.modified_ms / 1000 * 1000
    );
    assert_eq!(fs::read(&path).unwrap(), bytes);
    assert_eq!(names(path.parent().unwrap()).len(), 1);

    assert!(get(&client, text(&path)).await.unwrap() == bytes);
    for (range, first, length) in [
        (ByteRange::From(5), 5, bytes.len() - 5),
        (ByteRange::Between(1 << 20, (2 << 20) - 1), 1 << 20, 1 << 20),
        (ByteRange::Between(10, u64::MAX), 10, bytes.len() - 10),
        (ByteRange::Last(7), bytes.len() - 7, 7),
    ] {
        let download = client.get_file(text(&path), Some(range), None).await.unwrap();
        assert_eq!(download.size, bytes.len() as u64);
        assert_eq!(download.range, Some((first as u64, length as u64)));
        assert!(read(download).await.unwrap() == bytes[first..first + length]);
    }
    let beyond = client
        .get_file(text(&path), Some(ByteRange::From(bytes.len() as u64)), None)
        .await;
    assert!(matches!(beyond, Err(FileError::Range { size }) if size == bytes.len() as u64));

    // The rest of the same version; of another one, everything.
    let range = Some(ByteRange::From(5));
    let version = client.get_file(text(&path), None, None).await.unwrap().version;
    let same = client.get_file(text(&path), range, Some(&version)).await.unwrap();
    assert_eq!(same.range, Some((5, bytes.len() as u64 - 5)));
    assert_eq!(same.version, version);
    fs::write(&path, "other").unwrap();
    let other = client.get_file(text(&path), range, Some(&version)).await.unwrap();
    assert_eq!(other.range, None);
    assert_ne!(other.version, version);
    assert_eq!(read(other).await.unwrap(), b"other".as_slice());

    let empty = folder.path().join("empty");
    assert!(put(&client, text(&empty), b"").await.unwrap().created);
    assert_eq!(get(&client, text(&empty)).await.unwrap(), b"".as_slice());
}

#[tokio::test]
async fn a_replaced_file_keeps_its_mode_and_a_given_mode_prevails() {
    let (_sandbox, client) = Sandbox::linked().await;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("script");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4750)).unwrap();
    assert!(!put(&client, text(&path), b"new").await.unwrap().created);
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(), 0o750, "without the set-user-id bit");
    let how = PutFile {
        length: 3,
        mode: Some(0o700),
        ..PutFile::default()
    };
    put_as(&client, text(&path), how, b"say").await.unwrap();
    assert_eq!(mode(), 0o700);
    let download = client.get_file(text(&path), None, None).await.unwrap();
    assert_eq!(download.mode, 0o700);
}

#[tokio::test]
async fn of_many_writers_that_want_a_new_file_exactly_one_makes_it() {
    let (_sandbox, client) = Sandbox::linked().await;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("lock");
    let writers = (0..16_u8).map(|n| {
        let (client, path) = (client.clone(), path.clone());
        async move {
            let how = PutFile {
                length: 1000,
                only_new: true,
                ..PutFile::default()
            };
            (n, put_as(&client, text(&path), how, &[n; 1000]).await)
        }
    });
    let results = futures_util::future::join_all(writers).await;
    let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(|(_, result)| result.is_ok());
    assert_eq!(won.len(), 1);
    for (_, result) in lost {
        assert_eq!(refusal(result), FileRefusal::Exists);
    }
    assert_eq!(fs::read(&path).unwrap(), [won[0].0; 1000]);
    assert_eq!(names(folder.path()), ["lock"]);
}

// inv: INV-S16
#[tokio::test]
async fn a_transfer_that_breaks_or_has_another_digest_leaves_the_old_file_and_nothing_else() {
    let (sandbox, client) = Sandbox::linked().await;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "old").unwrap();
    let how = |digest| PutFile {
        length: 2 << 20,
        digest,
        ..PutFile::default()
    };
    let bytes = pattern(2 << 20, 1);
    let wrong = put_as(&client, text(&path), how(Some(Digest::of("other"))), &bytes).await;
    assert_eq!(refusal(wrong), FileRefusal::DigestMismatch);
    assert_eq!(names(folder.path()), ["file"]);

    let body = broken(&bytes[..1 << 20], true);
    let error = client.put_file(text(&path), how(None), body).await.unwrap_err();
    assert!(
        matches!(error, FileError::Call(CallError::Link(LinkError::Broken(_)))),
        "{error:?}"
    );
    // And one whose client goes away while nothing moves.
    let body = broken(&bytes[..1 << 20], false);
    let stuck = client.put_file(text(&path), how(None), body);
    let written = until("the sibling grows", async || {
        names(folder.path()).iter().any(|name| {
            name.starts_with(".oac-put-")
                && fs::metadata(folder.path().join(name)).is_ok_and(|file| file.len() > 0)
        })
    });
    tokio::select! {
        never = stuck => panic!("{never:?}"),
        () = written => {}
    }
    until("the siblings are gone", async || names(folder.path()) == ["file"]).await;
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert!(names(&sandbox.path("uploads")).is_empty());

    let right = put_as(&client, text(&path), how(Some(Digest::of(&bytes))), &bytes).await;
    assert!(!right.unwrap().created);
    assert!(fs::read(&path).unwrap() == bytes);
}

#[tokio::test]
async fn what_is_no_regular_file_is_refused_at_once_and_untouched() {
    let (_sandbox, client) = Sandbox::linked().await;
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let fifo = at("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        fifo.as_str(),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("file"), "x").unwrap();
    symlink("/dev/zero", at("zero")).unwrap();
    symlink(at("loop"), at("loop")).unwrap();
    symlink(&fifo, at("to-fifo")).unwrap();
    let long = format!("/{}", "n".repeat(256));
    for (path, read, written) in [
        (fifo.clone(), FileRefusal::NotRegular, FileRefusal::NotRegular),
        (at("to-fifo"), FileRefusal::NotRegular, FileRefusal::NotRegular),
        (at("socket"), FileRefusal::NotRegular, FileRefusal::NotRegular),
        (
            "/dev/zero".into(),
            FileRefusal::NotRegular,
            FileRefusal::NotRegular,
        ),
        (at("zero"), FileRefusal::NotRegular, FileRefusal::NotRegular),
        (at("folder"), FileRefusal::IsDirectory, FileRefusal::IsDirectory),
        (at("folder/."), FileRefusal::IsDirectory, FileRefusal::IsDirectory),
        ("/".into(), FileRefusal::IsDirectory, FileRefusal::IsDirectory),
        (at("file/"), FileRefusal::NotDirectory, FileRefusal::IsDirectory),
        (
            at("file/below"),
            FileRefusal::NotDirectory,
            FileRefusal::NotDirectory,
        ),
        (at("loop"), FileRefusal::LinkLoop, FileRefusal::LinkLoop),
        (at("loop/x"), FileRefusal::LinkLoop, FileRefusal::LinkLoop),
        (long.clone(), FileRefusal::NameTooLong, FileRefusal::NameTooLong),
        (String::new(), FileRefusal::BadPath, FileRefusal::BadPath),
        ("/a\0b".into(), FileRefusal::BadPath, FileRefusal::BadPath),
        ("/x".repeat(2049), FileRefusal::BadPath, FileRefusal::BadPath),
    ] {
        assert_eq!(refusal(get(&client, &path).await), read, "GET {path:?}");
        assert_eq!(
            refusal(put(&client, &path, b"new").await),
            written,
            "PUT {path:?}"
        );
    }
    for endless in ["/proc/self/status", "/proc/kmsg", "/sys/kernel/uevent_seqnum"] {
        assert_eq!(
            refusal(get(&client, endless).await),
            FileRefusal::NotRegular,
            "{endless}"
        );
    }
    for kept_by_nothing in ["/proc/new", "/proc/self/oom_score_adj"] {
        assert_eq!(
            refusal(put(&client, kept_by_nothing, b"0").await),
            FileRefusal::NotRegular,
            "{kept_by_nothing}"
        );
    }
    assert_eq!(refusal(get(&client, &at("missing")).await), FileRefusal::NotFound);
    assert_eq!(
        names(folder.path()),
        ["fifo", "file", "folder", "loop", "socket", "to-fifo", "zero"]
    );
    assert_eq!(fs::read(at("file")).unwrap(), b"x");
}

#[tokio::test]
async fn links_and_dots_lead_where_they_lead_a_command() {
    let (_sandbox, client) = Sandbox::linked().await;
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir_all(at("real/deep")).unwrap();
    symlink("real/deep", at("short")).unwrap();
    fs::write(at("real/file"), "old").unwrap();
    symlink("../file", at("real/deep/link")).unwrap();
    symlink("../made/new", at("real/dangling")).unwrap();
    // `..` behind a link is the parent of where it led.
    assert_eq!(
        get(&client, &at("short/../file")).await.unwrap(),
        b"old".as_slice()
    );
    assert_eq!(get(&client, &at("short/link")).await.unwrap(), b"old".as_slice());
    // Writing through a link replaces what it names, and keeps the link.
    assert!(!put(&client, &at("short/link"), b"new").await.unwrap().created);
    assert_eq!(fs::read(at("real/file")).unwrap(), b"new");
    assert!(fs::symlink_metadata(at("real/deep/link")).unwrap().is_symlink());
    assert!(put(&client, &at("real/dangling"), b"made").await.unwrap().created);
    assert_eq!(fs::read(at("made/new")).unwrap(), b"made");
    // Removing one removes the link.
    client.delete_file(&at("short/link")).await.unwrap();
    assert_eq!(fs::read(at("real/file")).unwrap(), b"new");
    assert!(names(&folder.path().join("real/deep")).is_empty());
    // The longest path there may be, made of names that the kernel takes.
    let base = at("p");
    let mut longest = base.clone();
    while longest.len() + 250 < 4096 {
        longest += "/";
        longest += &"d".repeat(200);
    }
    longest += "/";
    longest += &"f".repeat(4096 - longest.len());
    assert_eq!(longest.len(), 4096);
    assert!(put(&client, &longest, b"far").await.unwrap().created);
    assert_eq!(get(&client, &longest).await.unwrap(), b"far".as_slice());
    client.delete_file(&longest).await.unwrap();
    assert_eq!(refusal(get(&client, &longest).await), FileRefusal::NotFound);
    perform(&client, run(&["rm", "-r", &base])).await;
}

#[tokio::test]
async fn a_directory_is_listed_in_byte_order_page_by_page_whatever_changes_meanwhile() {
    let (_sandbox, client) = Sandbox::linked().await;
    let folder = TempDir::new().unwrap();
    let path = text(folder.path());
    for n in 0..2500 {
        fs::write(folder.path().join(format!("f{n:04}")), "").unwrap();
    }
    fs::create_dir(folder.path().join("A")).unwrap();
    symlink("nowhere", folder.path().join("z")).unwrap();
    let bytes = std::ffi::OsStr::from_bytes(b"z\xff");
    fs::write(folder.path().join(bytes), "four").unwrap();
    let first = client.list_files(path, None).await.unwrap();
    assert_eq!(first.data.len(), 1000);
    assert_eq!(
        (first.data[0].name.as_str(), first.data[0].kind),
        ("A", FileType::Directory)
    );
    assert_eq!(first.data[999].name, "f0998");
    // Before, at and behind the page's end.
    fs::write(folder.path().join("a"), "").unwrap();
    fs::remove_file(folder.path().join("f0998")).unwrap();
    fs::write(folder.path().join("f0998b"), "").unwrap();
    let second = client.list_files(path, first.next.0.as_deref()).await.unwrap();
    assert_eq!(
        (second.data.len(), second.data[0].name.as_str()),
        (1000, "f0998b")
    );
    let third = client.list_files(path, second.next.0.as_deref()).await.unwrap();
    assert_eq!(third.next.0, None);
    let mut all: Vec<_> = [first.data, second.data, third.data].concat();
    let last = all.split_off(all.len() - 2);
    assert_eq!((last[0].name.as_str(), last[0].kind), ("z", FileType::Symlink));
    assert_eq!((last[1].name.as_str(), last[1].size), ("z\u{fffd}", 4));
    let listed: Vec<_> = all.into_iter().map(|entry| entry.name).collect();
    let mut expected: Vec<_> = (0..2500).map(|n| format!("f{n:04}")).collect();
    expected.insert(0, "A".into());
    expected.insert(1000, "f0998b".into());
    assert_eq!(listed, expected);

    let empty = TempDir::new().unwrap();
    let list = client.list_files(text(empty.path()), None).await.unwrap();
    assert_eq!((list.data.len(), list.next.0), (0, None));
    let file = folder.path().join("f0000");
    assert_eq!(
        refusal(client.list_files(text(&file), None).await),
        FileRefusal::NotDirectory
    );
    assert_eq!(
        refusal(client.list_files(path, Some("nonsense")).await),
        FileRefusal::BadCursor
    );
}

#[tokio::test]
async fn a_file_or_an_empty_directory_is_removed_and_nothing_more() {
    let (_sandbox, client) = Sandbox::linked().await;
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir_all(at("full/below")).unwrap();
    fs::write(at("file"), "x").unwrap();
    for (path, refused) in [
        (at("full"), FileRefusal::NotEmpty),
        (at("missing"), FileRefusal::NotFound),
        (at("file/"), FileRefusal::NotDirectory),
        (at("file/below"), FileRefusal::NotDirectory),
        (at("full/."), FileRefusal::BadPath),
        ("/".into(), FileRefusal::BadPath),
    ] {
        assert_eq!(refusal(client.delete_file(&path).await), refused, "{path}");
    }
    for path in [at("full/below"), at("full/"), at("file")] {
        client.delete_file(&path).await.unwrap();
    }
    assert!(names(folder.path()).is_empty());
}

#[tokio::test]
async fn a_file_that_shrinks_while_it_is_read_breaks_the_body_and_one_that_grows_ends_where_it_ended() {
    let (_sandbox, client) = Sandbox::linked().await;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("file");
    let bytes = pattern(32 << 20, 0);
    // Far more than the stream's window, so most of it is unread when the file changes.
    for grows in [false, true] {
        fs::write(&path, &bytes).unwrap();
        let mut download = client.get_file(text(&path), None, None).await.unwrap();
        assert!(
            timeout(LONG, download.body.frame())
                .await
                .unwrap()
                .unwrap()
                .is_ok()
        );
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(if grows { 64 << 20 } else { 100 }).unwrap();
        let mut rest = 0;
        let ended = loop {
            match timeout(LONG, download.body.frame()).await.unwrap() {
                Some(Ok(frame)) => rest += frame.into_data().unwrap().len(),
                Some(Err(_)) => break false,
                None => break true,
            }
        };
        assert_eq!(ended, grows);
        assert!(rest < bytes.len());
    }
    // The link goes on.
    client.status().await.unwrap();
}

#[tokio::test]
async fn a_refusal_reaches_whoever_still_sends() {
    let (_sandbox, client) = Sandbox::linked().await;
    let folder = TempDir::new().unwrap();
    let bytes = Bytes::from(pattern(16 << 20, 0));
    for _ in 0..8 {
        let how = PutFile {
            length: bytes.len() as u64,
            ..PutFile::default()
        };
        let chunks: Vec<_> = bytes
            .chunks(64 << 10)
            .map(|chunk| Ok(Frame::data(Bytes::copy_from_slice(chunk))))
            .collect();
        let body = StreamBody::new(stream::iter(chunks)).boxed_unsync();
        let put = client.put_file(text(folder.path()), how, body);
        let refused = timeout(LONG, put).await.unwrap();
        assert_eq!(refusal(refused), FileRefusal::IsDirectory);
    }
}

#[tokio::test]
async fn transfers_that_nobody_moves_keep_neither_turns_nor_other_files_waiting() {
    let (_sandbox, client) = Sandbox::linked().await;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("big");
    fs::write(&path, pattern(16 << 20, 0)).unwrap();
    let mut stuck = Vec::new();
    for _ in 0..8 {
        stuck.push(client.get_file(text(&path), None, None).await.unwrap());
    }
    let told = timeout(LONG, perform(&client, run(&["echo", "here"])))
        .await
        .unwrap();
    assert_eq!(told.stdout, b"here\n");
    let other = folder.path().join("other");
    put(&client, text(&other), b"small").await.unwrap();
    assert_eq!(get(&client, text(&other)).await.unwrap(), b"small".as_slice());
    for download in stuck {
        assert_eq!(read(download).await.unwrap().len(), 16 << 20);
    }
}

// inv: INV-S16
#[tokio::test]
async fn a_runtime_killed_while_it_writes_leaves_a_whole_file_and_the_next_one_clears_up() {
    let (mut sandbox, mut client) = Sandbox::linked().await;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("below/file");
    let seed = u64::from(std::process::id());
    eprintln!("seed {seed}");
    let mut random = seed | 1;
    let mut known = None;
    for round in 0..12_u8 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let pause = Duration::from_micros(random >> 50);
        let bytes = pattern(1 << 20, round);
        {
            let put = put(&client, text(&path), &bytes);
            let pause = tokio::time::sleep(pause);
            // The answer may come first.
            tokio::select! { _ = put => {}, () = pause => {} }
        }
        sandbox.crash();
        let found = fs::read(&path).ok();
        assert!(
            found == known || found.as_ref() == Some(&bytes),
            "round {round}: neither the old nor the new file"
        );
        known = found;
        sandbox.start();
        (client, _) = sandbox.acceptor.link().await;
        let left = fs::read_dir(path.parent().unwrap()).map_or(0, |entries| {
            entries
                .filter(|entry| entry.as_ref().unwrap().file_name() != "file")
                .count()
        });
        assert_eq!(left, 0, "round {round}: a sibling was left");
    }
    put(&client, text(&path), b"last").await.unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"last");
}
