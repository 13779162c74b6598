//! Many transfers, large ones, and those that somebody leaves.

use std::time::Duration;

use futures_util::StreamExt as _;
use oac_store::FileOperationKind;
use oac_testkit::core::send;
use reqwest::Method;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{Field, LONG, pattern};

impl Field {
    async fn open(&self) -> Vec<FileOperationKind> {
        let read = self.world.core.core().store.single();
        let rows = read.file_operations(self.placed.session).await.unwrap();
        rows.into_iter().map(|row| row.kind).collect()
    }

    /// Sends the head of a PUT of `length` bytes and `sent` of them.
    async fn begin_put(&self, name: &str, length: usize, sent: usize) -> TcpStream {
        let address = self.world.core.url.strip_prefix("http://").unwrap().to_owned();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "PUT /v1/sessions/{}/files?path={} HTTP/1.1\r\nHost: core\r\nAuthorization: Bearer {}\r\nContent-Length: {length}\r\n\r\n",
            self.placed.session,
            self.at(name).to_str().unwrap(),
            self.world.core.project_key.expose(),
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&pattern(sent)).await.unwrap();
        stream
    }

    /// Waits until a sibling of an unfinished upload has bytes.
    async fn until_receiving(&self) {
        self.world
            .eventually("an upload's bytes arrive", async || {
                std::fs::read_dir(self.folder.path()).unwrap().find_map(|entry| {
                    let entry = entry.unwrap();
                    let is_sibling = entry.file_name().to_str().unwrap().starts_with(".oac-put-");
                    (is_sibling && entry.metadata().is_ok_and(|file| file.len() > 0)).then_some(())
                })
            })
            .await;
    }

    async fn until_clean(&self, names: &[&str]) {
        self.world
            .eventually("the siblings are gone", async || {
                let entries = std::fs::read_dir(self.folder.path()).unwrap();
                let mut found: Vec<_> = entries
                    .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                    .collect();
                found.sort();
                (found == names).then_some(())
            })
            .await;
    }
}

async fn answer(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    // One short answer; the connection may stay open.
    while !text.contains("\r\n\r\n") || !text.ends_with('}') {
        let n = timeout(LONG, stream.read(&mut buffer)).await.unwrap().unwrap();
        if n == 0 {
            break;
        }
        text.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
    }
    text
}

#[tokio::test]
async fn eight_transfers_run_and_a_ninth_is_told_to_wait_until_one_ended() {
    let field = Field::start().await;
    std::fs::write(field.at("big"), pattern(16 << 20)).unwrap();
    let mut open = Vec::new();
    for _ in 0..8 {
        let response = field.request(Method::GET, "big").send().await.unwrap();
        assert_eq!(response.status(), 200);
        open.push(response);
    }
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let ninth = send(field.request(method, "other").header("Content-Length", "0")).await;
        assert_eq!((ninth.status.as_u16(), ninth.code()), (429, "invalid_request"));
        assert!(ninth.headers.contains_key("retry-after"));
    }
    // A Turn is not kept waiting by them.
    let input = serde_json::json!({ "args": ["true"], "cwd": "/" });
    let inputs = format!("/v1/sessions/{}/inputs", field.placed.session);
    let turn = crate::world::id(&field.world.post(&inputs, &input).await.expect(202)["turn"]["id"]);
    field
        .world
        .until_turn(field.placed.session, turn, "completed")
        .await;
    // One is left without a word, and its place is free; the others are whole.
    drop(open.pop());
    field
        .world
        .eventually("a place is free", async || {
            let answer = field.request(Method::GET, "big").send().await.unwrap();
            (answer.status() == 200).then_some(())
        })
        .await;
    for response in open {
        assert!(timeout(LONG, response.bytes()).await.unwrap().unwrap() == pattern(16 << 20));
    }
}

// inv: INV-S16
#[tokio::test]
async fn a_client_that_leaves_in_the_middle_leaves_the_old_file() {
    let field = Field::start().await;
    field.put("file", "old").await.expect(201);
    let stream = field.begin_put("file", 4 << 20, 2 << 20).await;
    field.until_receiving().await;
    assert_eq!(field.open().await, [FileOperationKind::Write]);
    drop(stream);
    field.until_clean(&["file"]).await;
    assert_eq!(std::fs::read(field.at("file")).unwrap(), b"old");
}

#[tokio::test]
async fn an_open_transfer_is_activity_until_it_ended() {
    let field = Field::start().await;
    std::fs::write(field.at("big"), pattern(16 << 20)).unwrap();
    let before = field.world.session(field.placed.session).await["last_activity_at"].clone();
    assert!(field.open().await.is_empty());
    let response = field.request(Method::GET, "big").send().await.unwrap();
    assert_eq!(field.open().await, [FileOperationKind::Read]);
    let during = field.world.session(field.placed.session).await["last_activity_at"].clone();
    assert!(during.as_str() > before.as_str());
    drop(response);
    field
        .world
        .eventually("nothing is open", async || {
            field.open().await.is_empty().then_some(())
        })
        .await;
    let after = field.world.session(field.placed.session).await["last_activity_at"].clone();
    assert!(after.as_str() > during.as_str());
}

#[tokio::test]
async fn what_an_earlier_owner_had_open_is_forgotten_by_the_next() {
    let mut field = Field::start().await;
    std::fs::write(field.at("big"), pattern(16 << 20)).unwrap();
    let response = field.request(Method::GET, "big").send().await.unwrap();
    assert_eq!(field.open().await.len(), 1);
    field.world.core.restart().await;
    drop(response);
    field
        .world
        .eventually("nothing is open", async || {
            field.open().await.is_empty().then_some(())
        })
        .await;
}

#[tokio::test]
async fn a_reader_that_stops_reading_holds_a_few_pieces_and_gets_the_rest_later() {
    let field = Field::start().await;
    let bytes = pattern(64 << 20);
    std::fs::write(field.at("big"), &bytes).unwrap();
    let response = field.request(Method::GET, "big").send().await.unwrap();
    let mut body = response.bytes_stream();
    let mut got = body.next().await.unwrap().unwrap().to_vec();
    let taken = || {
        let io = std::fs::read_to_string(format!("/proc/{}/io", field.runtime.pid())).unwrap();
        let line = io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
        line.parse::<u64>().unwrap()
    };
    // Whatever the buffers between take, it is far less than the file.
    let mut last = taken();
    let settled = async {
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = taken();
            if now == last {
                return now;
            }
            last = now;
        }
    };
    let settled = timeout(LONG, settled).await.unwrap();
    assert!(settled < 40 << 20, "{settled} bytes were sent to nobody");
    while let Some(piece) = timeout(LONG, body.next()).await.unwrap() {
        got.extend_from_slice(&piece.unwrap());
    }
    assert!(got == bytes);
}

// inv: INV-S16
#[tokio::test]
async fn a_sandbox_lost_in_the_middle_of_an_upload_is_told_as_that_and_the_old_file_stays() {
    let field = Field::start().await;
    field.put("file", "old").await.expect(201);
    let mut stream = field.begin_put("file", 4 << 20, 2 << 20).await;
    field.until_receiving().await;
    let Field {
        world,
        placed: _placed,
        runtime,
        folder,
    } = field;
    runtime.kill().await;
    let told = answer(&mut stream).await;
    assert!(told.starts_with("HTTP/1.1 503"), "{told}");
    assert!(
        told.contains("\"sandbox_unreachable\"") && told.contains("was not changed"),
        "{told}"
    );
    assert_eq!(std::fs::read(folder.path().join("file")).unwrap(), b"old");
    drop(world);
}

#[tokio::test]
async fn a_sandbox_lost_in_the_middle_of_a_download_breaks_it() {
    let field = Field::start().await;
    std::fs::write(field.at("big"), pattern(64 << 20)).unwrap();
    let response = field.request(Method::GET, "big").send().await.unwrap();
    let mut body = response.bytes_stream();
    body.next().await.unwrap().unwrap();
    field.runtime.kill().await;
    let end = async {
        let mut got = 0;
        while let Some(piece) = body.next().await {
            match piece {
                Ok(piece) => got += piece.len(),
                Err(_) => return Some(got),
            }
        }
        None
    };
    let got = timeout(LONG, end).await.unwrap();
    assert!(
        got.is_some_and(|got| got < 64 << 20),
        "it ended as if it were whole"
    );
}

#[tokio::test]
async fn an_archive_ends_transfers_and_refuses_further_ones() {
    let field = Field::start().await;
    std::fs::write(field.at("big"), pattern(64 << 20)).unwrap();
    let response = field.request(Method::GET, "big").send().await.unwrap();
    let session = format!("/v1/sessions/{}", field.placed.session);
    field.world.delete(&session).await.expect(202);
    timeout(LONG, response.bytes()).await.unwrap().unwrap_err();
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let refused = send(field.request(method, "big").header("Content-Length", "0")).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (409, "session_archived")
        );
    }
}

#[tokio::test]
async fn one_byte_above_the_limit_is_refused_without_being_sent() {
    let field = Field::start().await;
    let mut stream = field.begin_put("file", (512 << 20) + 1, 0).await;
    stream.shutdown().await.unwrap();
    let told = answer(&mut stream).await;
    assert!(told.starts_with("HTTP/1.1 413"), "{told}");
    field.until_clean(&[]).await;
}
