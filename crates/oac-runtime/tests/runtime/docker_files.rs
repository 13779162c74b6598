//! Files of a sandbox of the engine, with its user's rights, its disks and its restarts.

use std::{io::Write as _, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use oac_link::{
    LinkClient, RequestBody,
    files::{FileError, FileRefusal, FileType, PutFile},
};
use oac_model::Digest;
use tokio::time::timeout;

use crate::{
    acceptor::{Acceptor, LONG, perform, shell},
    engine::{Container, Network, run_image},
    files::{get, pattern, put, read, refusal},
};

struct World {
    acceptor: Acceptor,
    container: Container,
    _network: Network,
}

impl World {
    async fn start(disk: Option<&str>) -> (Self, LinkClient) {
        let network = Network::new();
        let mut acceptor = Acceptor::bind(&format!("{}:0", network.gateway)).await;
        let host = acceptor.address().to_string();
        let image = run_image().id.to_string();
        let container = match disk {
            Some(size) => Container::start_with_small_disk(&image, &network, &host, size),
            None => Container::start(&image, &network, &host, &[]),
        };
        let (client, _) = acceptor.link().await;
        let world = Self {
            acceptor,
            container,
            _network: network,
        };
        (world, client)
    }

    fn pid(&self) -> String {
        self.container.inspect("{{.State.Pid}}")
    }
}

/// `length` bytes in pieces, never all in memory.
fn many(length: u64) -> (RequestBody, Digest) {
    const PIECE: u64 = 1 << 20;
    let piece = Bytes::from(pattern(PIECE as usize, 3));
    let pieces =
        (0..length.div_ceil(PIECE)).map(move |n| piece.slice(..PIECE.min(length - n * PIECE) as usize));
    let mut hash = sha2::Sha256::default();
    for piece in pieces.clone() {
        sha2::Digest::update(&mut hash, &piece);
    }
    let digest = Digest::from_bytes(sha2::Digest::finalize(hash).into());
    let frames = stream::iter(pieces).map(|piece| Ok(Frame::data(piece)));
    (StreamBody::new(frames).boxed_unsync(), digest)
}

#[tokio::test]
async fn a_sandboxs_files_are_reached_with_its_users_rights_below_its_workspace() {
    let (_world, client) = World::start(None).await;
    // Relative paths begin in the workspace.
    assert!(put(&client, "deep/file", b"here").await.unwrap().created);
    assert_eq!(
        get(&client, "/workspace/deep/file").await.unwrap(),
        b"here".as_slice()
    );
    let told = perform(
        &client,
        shell("cat /workspace/deep/file; stat -c ' %u %a' /workspace/deep/file"),
    )
    .await;
    assert_eq!(told.stdout, b"here 1000 644\n");
    let list = client.list_files("deep", None).await.unwrap();
    assert_eq!((list.data.len(), list.data[0].kind), (1, FileType::File));
    // What its user may not do, files may not.
    let prepare = "cd /workspace; echo old > kept; chmod 444 kept; mkdir closed blind; echo x > closed/x; chmod 0 closed; \
                   chmod 333 blind; mkfifo /tmp/fifo; mkdir -p /tmp/a; ln -s /tmp/a link";
    assert_eq!(perform(&client, shell(prepare)).await.exit().code.0, Some(0));
    for (path, expected) in [
        ("closed/x", FileRefusal::AccessDenied),
        ("/tmp/fifo", FileRefusal::NotRegular),
        ("/dev/zero", FileRefusal::NotRegular),
        ("/proc/1/environ", FileRefusal::NotRegular),
    ] {
        let found = refusal(get(&client, path).await);
        assert_eq!(found, expected, "GET {path}");
    }
    for (path, expected) in [
        ("/etc/new", FileRefusal::ReadOnly),
        ("kept", FileRefusal::AccessDenied),
        ("closed/new", FileRefusal::AccessDenied),
        ("/tmp/fifo", FileRefusal::NotRegular),
        ("/dev/null", FileRefusal::NotRegular),
    ] {
        assert_eq!(refusal(put(&client, path, b"new").await), expected, "PUT {path}");
    }
    assert_eq!(get(&client, "kept").await.unwrap(), b"old\n".as_slice());
    assert_eq!(
        refusal(client.delete_file("/etc/passwd").await),
        FileRefusal::ReadOnly
    );
    // A directory that may be written and not read, and one reached through a link.
    assert!(put(&client, "blind/file", b"x").await.unwrap().created);
    assert!(put(&client, "link/../a/file", b"y").await.unwrap().created);
    assert_eq!(get(&client, "/tmp/a/file").await.unwrap(), b"y".as_slice());
}

#[tokio::test]
async fn a_full_disk_refuses_a_file_and_keeps_the_old_one() {
    let (world, client) = World::start(Some("10m")).await;
    let old = pattern(6 << 20, 1);
    put(&client, "/small/file", &old).await.unwrap();
    // It would not fit beside the old one: refused before a byte of it.
    let new = pattern(6 << 20, 2);
    assert_eq!(
        refusal(put(&client, "/small/file", &new).await),
        FileRefusal::NoSpace
    );
    // The disk fills while the bytes come.
    let (begin, begun) = tokio::sync::oneshot::channel();
    let (go, going) = tokio::sync::oneshot::channel::<()>();
    let first = stream::once(async move {
        let _ = begin.send(());
        Ok(Frame::data(Bytes::from(pattern(1 << 20, 2))))
    });
    let rest = stream::once(async move {
        let _ = going.await;
        Ok(Frame::data(Bytes::from(pattern(2 << 20, 2))))
    });
    let body = StreamBody::new(first.chain(rest)).boxed_unsync();
    let how = PutFile {
        length: 3 << 20,
        ..PutFile::default()
    };
    let fill = async {
        begun.await.unwrap();
        let rest = format!("/proc/{}/root/small/rest", world.pid());
        let mut file = std::fs::File::create(&rest).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        go.send(()).unwrap();
        rest
    };
    let (put_result, rest) = tokio::join!(timeout(LONG, client.put_file("/small/file", how, body)), fill);
    assert_eq!(refusal(put_result.unwrap()), FileRefusal::NoSpace);
    assert!(get(&client, "/small/file").await.unwrap() == old);
    std::fs::remove_file(rest).unwrap();
    let names = client.list_files("/small", None).await.unwrap().data;
    assert!(
        names.iter().all(|entry| !entry.name.starts_with(".oac-put-")),
        "{names:?}"
    );
    put(&client, "/small/file", b"small").await.unwrap();
    assert_eq!(get(&client, "/small/file").await.unwrap(), b"small".as_slice());
}

#[tokio::test]
async fn a_file_of_512_mib_passes_whole_and_one_byte_more_is_refused() {
    let (_world, client) = World::start(None).await;
    let length = oac_link::limits::PUT_FILE_BYTES;
    let (body, digest) = many(length);
    let how = PutFile {
        length,
        digest: Some(digest),
        ..PutFile::default()
    };
    // The sandbox has 512 MiB of memory and lives.
    let put = timeout(4 * LONG, client.put_file("large", how, body))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(put.answer.sha256, digest);
    let download = client.get_file("large", None, None).await.unwrap();
    assert_eq!(download.size, length);
    let mut hash = sha2::Sha256::default();
    let mut body = download.body;
    while let Some(frame) = timeout(LONG, body.frame()).await.unwrap() {
        sha2::Digest::update(&mut hash, frame.unwrap().into_data().unwrap());
    }
    assert_eq!(Digest::from_bytes(sha2::Digest::finalize(hash).into()), digest);
    let (body, _) = many(length + 1);
    let how = PutFile {
        length: length + 1,
        ..PutFile::default()
    };
    let above = timeout(LONG, client.put_file("large", how, body)).await.unwrap();
    assert!(
        matches!(above, Err(FileError::Refused(FileRefusal::TooLarge))),
        "{above:?}"
    );
    client.delete_file("large").await.unwrap();
}

// inv: INV-S16
#[tokio::test]
async fn a_runtime_killed_in_the_middle_of_many_uploads_leaves_each_file_old_or_new_and_nothing_else() {
    let (mut world, mut client) = World::start(None).await;
    let seed = u64::from(std::process::id());
    eprintln!("seed {seed}");
    let mut random = seed | 1;
    let mut known = vec![Bytes::new(); 4];
    for n in 0..known.len() {
        put(&client, &format!("folder/{n}"), b"").await.unwrap();
    }
    for round in 0..6_u8 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let pause = Duration::from_micros((random >> 40) % 60_000);
        let news: Vec<_> = (0..known.len())
            .map(|n| Bytes::from(pattern((1 << 20) + n, round * 16 + n as u8 + 1)))
            .collect();
        let pid = world.pid();
        {
            let puts = news.iter().enumerate().map(|(n, bytes)| {
                let client = client.clone();
                async move { drop(put(&client, &format!("folder/{n}"), bytes).await) }
            });
            tokio::select! {
                _ = futures_util::future::join_all(puts) => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        // The engine starts it again, after its own delay.
        (client, _) = world.acceptor.link().await;
        for (n, new) in news.into_iter().enumerate() {
            let download = client.get_file(&format!("folder/{n}"), None, None).await.unwrap();
            let found = read(download).await.unwrap();
            assert!(
                found == known[n] || found == new,
                "round {round}, file {n}: neither the old nor the new"
            );
            known[n] = found;
        }
        let names: Vec<_> = client.list_files("folder", None).await.unwrap().data;
        assert_eq!(names.len(), known.len(), "round {round}: {names:?}");
    }
}
