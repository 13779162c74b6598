//! Files of a sandbox: Core in this process, the real runtime program, its files in a folder of this test.

mod hostile;
mod reaching;
mod transfers;

use std::{path::PathBuf, time::Duration};

use oac_model::SessionId;
use oac_testkit::core::{Answer, send};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    runtime::Runtime,
    world::{Placed, World},
};

/// Far beyond what anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// A Core, a Session with its linked runtime, and a folder for files.
struct Field {
    world: World,
    placed: Placed,
    runtime: Runtime,
    folder: TempDir,
}

impl Field {
    async fn start() -> Self {
        let world = World::start().await;
        let (placed, runtime) = Runtime::place(&world).await;
        Self {
            world,
            placed,
            runtime,
            folder: TempDir::new().unwrap(),
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn request(&self, method: Method, name: &str) -> RequestBuilder {
        let path = self.at(name);
        request(&self.world, self.placed.session, method, path.to_str().unwrap())
    }

    async fn put(&self, name: &str, bytes: impl Into<reqwest::Body>) -> Answer {
        send(self.request(Method::PUT, name).body(bytes)).await
    }
}

/// A request for one file.
fn request(world: &World, session: SessionId, method: Method, path: &str) -> RequestBuilder {
    with_query(world, session, method, &[("path", path)])
}

fn with_query(world: &World, session: SessionId, method: Method, query: &[(&str, &str)]) -> RequestBuilder {
    let path = format!("/v1/sessions/{session}/files?{}", encoded(query));
    world
        .core
        .request(method, &path)
        .bearer_auth(world.core.project_key.expose())
}

fn encoded(query: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(query)
        .finish()
}

async fn list(field: &Field, name: &str, cursor: Option<&str>) -> Answer {
    let path = field.at(name);
    let mut query = vec![("path", path.to_str().unwrap())];
    query.extend(cursor.map(|cursor| ("cursor", cursor)));
    let session = field.placed.session;
    field
        .world
        .get(&format!("/v1/sessions/{session}/files/list?{}", encoded(&query)))
        .await
}

/// Copied, not computed: a thread that computes 64 MiB here, beside other tests, serves Core too late to keep its lease.
fn pattern(length: usize) -> Vec<u8> {
    let cycle: Vec<u8> = (0..251).collect();
    let mut bytes = cycle.repeat(length.div_ceil(cycle.len()));
    bytes.truncate(length);
    bytes
}

#[tokio::test]
async fn a_file_is_written_told_read_listed_and_removed() {
    let field = Field::start().await;
    let bytes = pattern(2 << 20);
    let digest = oac_model::Digest::of(&bytes);
    let told = field
        .request(Method::PUT, "deep/folder/a b")
        .header("Content-Digest", oac_link::files::write_digest(&digest))
        .body(bytes.clone());
    let told = send(told).await.expect(201);
    let path = field.at("deep/folder/a b");
    assert_eq!(told["sha256"], digest.to_string());
    let file = &told["file"];
    assert_eq!(file["path"], path.to_str().unwrap());
    assert_eq!(
        (&file["type"], &file["size"], &file["mode"]),
        (&json!("file"), &json!(2 << 20), &json!("0644"))
    );
    assert!(file["modified_at"].as_str().unwrap().ends_with('Z'));
    assert!(std::fs::read(&path).unwrap() == bytes);

    let answer = field
        .request(Method::GET, "deep/folder/a b")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    let headers = answer.headers().clone();
    assert_eq!(headers["content-length"], "2097152");
    assert_eq!(headers["content-type"], "application/octet-stream");
    assert_eq!(headers["accept-ranges"], "bytes");
    assert_eq!(headers["oac-file-mode"], "0644");
    assert!(answer.bytes().await.unwrap() == bytes);
    // What HEAD tells is what GET would send.
    let head = field
        .request(Method::HEAD, "deep/folder/a b")
        .send()
        .await
        .unwrap();
    assert_eq!(
        (head.status().as_u16(), &head.headers()["content-length"]),
        (200, &headers["content-length"])
    );
    assert_eq!(head.headers()["etag"], headers["etag"]);

    let range = |range: &str| {
        field
            .request(Method::GET, "deep/folder/a b")
            .header("Range", range)
    };
    let part = range("bytes=1000-1999").send().await.unwrap();
    assert_eq!(part.status(), 206);
    assert_eq!(part.headers()["content-range"], "bytes 1000-1999/2097152");
    assert!(part.bytes().await.unwrap() == bytes[1000..2000]);
    let rest = range("bytes=-5")
        .header("If-Range", &headers["etag"])
        .send()
        .await
        .unwrap();
    assert_eq!(rest.headers()["content-range"], "bytes 2097147-2097151/2097152");
    let beyond = range("bytes=2097152-").send().await.unwrap();
    assert_eq!(
        (beyond.status().as_u16(), &beyond.headers()["content-range"]),
        (416, &"bytes */2097152".parse().unwrap())
    );
    for whole in ["bytes=0-1,5-6", "lines=1-2"] {
        assert_eq!(range(whole).send().await.unwrap().status(), 200, "{whole}");
    }

    // Replaced: another version, so the rest of the old one is everything.
    let query = [("path", path.to_str().unwrap()), ("mode", "755")];
    let mode = with_query(&field.world, field.placed.session, Method::PUT, &query).body("new");
    assert_eq!(send(mode).await.expect(200)["file"]["mode"], "0755");
    let all = range("bytes=1-")
        .header("If-Range", &headers["etag"])
        .send()
        .await
        .unwrap();
    assert_eq!(
        (all.status().as_u16(), all.bytes().await.unwrap().as_ref()),
        (200, b"new".as_slice())
    );

    let listed = list(&field, "deep/folder/", None).await.expect(200);
    assert_eq!(listed["next"], Value::Null);
    assert_eq!(listed["data"][0]["path"], path.to_str().unwrap());
    assert_eq!(listed["data"].as_array().unwrap().len(), 1);
    let listed = list(&field, "deep", None).await.expect(200);
    assert_eq!(listed["data"][0]["type"], "directory");

    assert_eq!(
        send(field.request(Method::DELETE, "deep")).await.code(),
        "directory_not_empty"
    );
    for name in ["deep/folder/a b", "deep/folder", "deep"] {
        assert_eq!(
            send(field.request(Method::DELETE, name)).await.status,
            204,
            "{name}"
        );
    }
    let gone = send(field.request(Method::DELETE, "deep")).await;
    assert_eq!((gone.status.as_u16(), gone.code()), (404, "not_found_error"));
    assert_eq!(
        send(field.request(Method::GET, "deep")).await.code(),
        "not_found_error"
    );
}

#[tokio::test]
async fn a_directory_of_many_files_is_listed_in_pages() {
    let field = Field::start().await;
    for n in 0..1500 {
        std::fs::write(field.at(&format!("{n:04}")), "").unwrap();
    }
    let first = list(&field, "", None).await.expect(200);
    assert_eq!(first["data"].as_array().unwrap().len(), 1000);
    let second = list(&field, "", first["next"].as_str()).await.expect(200);
    assert_eq!(second["data"].as_array().unwrap().len(), 500);
    assert_eq!(second["data"][0]["path"], field.at("1000").to_str().unwrap());
    assert_eq!(second["next"], Value::Null);
    let bad = list(&field, "", Some("no cursor")).await;
    assert_eq!((bad.status.as_u16(), bad.code()), (400, "invalid_request_error"));
}

#[tokio::test]
async fn what_a_sandbox_refuses_has_its_status_and_code() {
    let field = Field::start().await;
    field.put("file", "old").await.expect(201);
    std::fs::create_dir(field.at("folder")).unwrap();
    std::os::unix::fs::symlink("loop", field.at("loop")).unwrap();
    let get = |name: &str| send(field.request(Method::GET, name));
    for (answer, status, code) in [
        (get("folder").await, 409, "file_is_directory"),
        (get("file/x").await, 409, "file_not_directory"),
        (get("loop").await, 409, "file_link_loop"),
        (get(&"n".repeat(300)).await, 400, "file_name_too_long"),
        (list(&field, "file", None).await, 409, "file_not_directory"),
        (field.put("folder", "x").await, 409, "file_is_directory"),
    ] {
        assert_eq!((answer.status.as_u16(), answer.code()), (status, code));
    }
    let device = request(&field.world, field.placed.session, Method::GET, "/dev/zero");
    assert_eq!(send(device).await.code(), "file_not_regular");
    let exists = field
        .request(Method::PUT, "file")
        .header("If-None-Match", "*")
        .body("new");
    let exists = send(exists).await;
    assert_eq!((exists.status.as_u16(), exists.code()), (412, "file_exists"));
    let digest = oac_link::files::write_digest(&oac_model::Digest::of("other"));
    let other = field
        .request(Method::PUT, "file")
        .header("Content-Digest", digest)
        .body("new");
    let other = send(other).await;
    assert_eq!(
        (other.status.as_u16(), other.code()),
        (400, "content_digest_mismatch")
    );
    assert_eq!(std::fs::read(field.at("file")).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(field.folder.path()).unwrap().count(), 3);
}

#[tokio::test]
async fn a_malformed_request_is_refused_before_the_sandbox_is_asked() {
    let world = World::start().await;
    let placed = world.place().await;
    let request = |method, path: &str| request(&world, placed.session, method, path);
    let long = "a/".repeat(2048) + "b";
    for path in ["", "/a\0b", long.as_str()] {
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            let answer = send(request(method.clone(), path).body("")).await;
            assert_eq!(
                (answer.status.as_u16(), answer.code()),
                (400, "invalid_request_error"),
                "{method} {path:?}"
            );
        }
    }
    let raw = |query: &str| {
        let path = format!("/v1/sessions/{}/files?{query}", placed.session);
        send(
            world
                .core
                .request(Method::GET, &path)
                .bearer_auth(world.core.project_key.expose()),
        )
    };
    for query in [
        "path=%FF",
        "path=a%ED%A0%80",
        "path=%G0",
        "path=a&path=b",
        "path=a&mode=644",
        "",
        "PATH=a",
    ] {
        assert_eq!(raw(query).await.status, 400, "{query}");
    }
    for (name, value) in [
        ("If-None-Match", "\"x\""),
        ("If-Match", "*"),
        ("Content-Digest", "sha-256=abc"),
        ("Content-Range", "bytes 0-1/2"),
    ] {
        let answer = send(request(Method::PUT, "x").header(name, value).body("x")).await;
        assert_eq!(answer.status, 400, "{name}");
    }
    for mode in ["", "888", "1777", "0o644", "-1"] {
        let answer = send(
            with_query(
                &world,
                placed.session,
                Method::PUT,
                &[("path", "x"), ("mode", mode)],
            )
            .body("x"),
        )
        .await;
        assert_eq!(
            (answer.status.as_u16(), answer.body["error"]["param"].as_str()),
            (400, Some("mode")),
            "{mode}"
        );
    }
    let stream = futures_util::stream::iter([Ok::<_, std::io::Error>("x")]);
    let chunked = send(request(Method::PUT, "x").body(reqwest::Body::wrap_stream(stream))).await;
    assert_eq!(chunked.status, 411);
}
