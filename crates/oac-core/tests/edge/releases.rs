//! The files that hosts become nodes with, as Core answers them to anyone.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    time::Duration,
};

use oac_dial::Surroundings;
use oac_model::Digest;
use oac_records::Directory;
use oac_release::{
    fetch::Remote,
    index::Index,
    layout::{self, ROWS, Role, Row},
    made::{Made, commit, made, made_of},
    metadata::ARTIFACTS,
    payload,
    progress::{self, Progress, Silent},
    source, store,
};
use oac_testkit::{
    core::{CoreOptions, TestCore},
    wait,
};
use reqwest::{Client, Method, Response, header, redirect::Policy};

const LONG: Duration = Duration::from_secs(60);
const BASE: &str = "/api/v1/sandbox-node/install";

pub(crate) fn publish(core: &TestCore, made: &Made, keep_current: bool) {
    std::fs::create_dir_all(core.release_dir()).unwrap();
    let offer = tempfile::tempdir().unwrap();
    made.write(offer.path());
    store::publish(&core.release_dir(), offer.path(), keep_current).unwrap();
}

fn client() -> Client {
    Client::builder()
        .no_proxy()
        .redirect(Policy::none())
        .build()
        .unwrap()
}

async fn ask(core: &TestCore, method: Method, path: &str, headers: &[(&str, &str)]) -> Response {
    let mut request = client().request(method, format!("{}{BASE}{path}", core.url));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap()
}

async fn get(core: &TestCore, path: &str) -> Response {
    ask(core, Method::GET, path, &[]).await
}

/// Waits until the current release is `digit`'s and every file of all releases was hashed.
pub(crate) async fn settled(core: &TestCore, digit: char) {
    wait::until("the release is current and hashed", LONG, async || {
        let answer = get(core, "/index.json").await;
        if !answer.status().is_success() {
            return None;
        }
        let index = Index::parse(&answer.bytes().await.unwrap()).unwrap();
        let unverified = core
            .scrape()
            .await
            .value("oac_core_release_files", &[("state", "unverified")]);
        (index.source_commit == commit(digit) && unverified == Some(0.0)).then_some(())
    })
    .await
    .unwrap();
}

fn file(row: &Row, digit: char) -> String {
    let commit = commit(digit);
    format!("/releases/{commit}/artifacts/{}", row.filename(commit))
}

fn header_of<'r>(response: &'r Response, name: &header::HeaderName) -> &'r str {
    response
        .headers()
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

// req: G-016, G-019, P-117, P-118, P-120
#[tokio::test]
async fn the_current_release_and_every_kept_one_are_served_to_anyone_under_their_names() {
    let core = TestCore::start().await;
    assert_eq!(get(&core, "/index.json").await.status(), 404);
    let (first, second) = (made(commit('a'), "first"), made(commit('b'), "second"));
    publish(&core, &first, false);
    settled(&core, 'a').await;
    // A node begins with the first; meanwhile the second becomes current.
    let begun = get(&core, &format!("/releases/{}/manifest.json", commit('a'))).await;
    assert_eq!(begun.bytes().await.unwrap(), first.metadata.manifest_bytes());
    publish(&core, &second, false);
    settled(&core, 'b').await;
    for (digit, made) in [('a', &first), ('b', &second)] {
        let below = format!("/releases/{}", commit(digit));
        for (prefix, cache) in [
            (below.as_str(), "public, max-age=31536000, immutable"),
            ("", "no-cache"),
        ] {
            if prefix.is_empty() && digit == 'a' {
                continue;
            }
            let mut files = vec![
                (
                    "manifest.json".to_owned(),
                    made.metadata.manifest_bytes(),
                    "application/json",
                ),
                (
                    "SHA256SUMS".to_owned(),
                    made.metadata.sums_bytes(),
                    "text/plain; charset=utf-8",
                ),
            ];
            for (artifact, bytes) in made.metadata.manifest().artifacts().iter().zip(&made.files) {
                files.push((
                    format!("artifacts/{}", artifact.filename),
                    bytes,
                    "application/octet-stream",
                ));
            }
            for (name, bytes, kind) in files {
                let path = format!("{prefix}/{name}");
                let answer = get(&core, &path).await;
                assert_eq!(answer.status(), 200, "{path}");
                let etag = format!("\"{}\"", Digest::of(bytes));
                let facts = [
                    (header::CONTENT_TYPE, kind),
                    (header::CACHE_CONTROL, cache),
                    (header::ETAG, &etag),
                    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
                    (header::CONTENT_ENCODING, ""),
                ];
                for (name, value) in facts {
                    assert_eq!(header_of(&answer, &name), value, "{path} {name}");
                }
                assert_eq!(
                    header_of(&answer, &header::CONTENT_LENGTH),
                    bytes.len().to_string()
                );
                assert_eq!(answer.bytes().await.unwrap(), *bytes, "{path}");
                let head = ask(&core, Method::HEAD, &path, &[]).await;
                assert_eq!(head.status(), 200);
                assert_eq!(header_of(&head, &header::CONTENT_LENGTH), bytes.len().to_string());
                assert!(head.bytes().await.unwrap().is_empty());
                for known in [etag.as_str(), "*", &format!("\"x\", W/{etag}")] {
                    let answer = ask(&core, Method::GET, &path, &[("if-none-match", known)]).await;
                    assert_eq!(answer.status(), 304, "{path} {known}");
                }
                for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
                    assert_eq!(ask(&core, method, &path, &[]).await.status(), 405, "{path}");
                }
                assert_eq!(get(&core, &format!("{path}?a=b")).await.status(), 400, "{path}");
            }
        }
    }
    let index = get(&core, "/index.json").await;
    assert_eq!(header_of(&index, &header::CACHE_CONTROL), "no-cache");
    let index = Index::parse(&index.bytes().await.unwrap()).unwrap();
    assert_eq!(index.releases, [commit('a'), commit('b')]);
    assert_eq!(index.manifest_sha256, second.metadata.manifest_sha256());
}

/// Stops at the first bytes that arrive, says so, and goes on when it is told to.
struct Halting {
    arrived: Option<tokio::sync::oneshot::Sender<()>>,
    go_on: std::sync::mpsc::Receiver<()>,
}

impl Progress for Halting {
    fn tell(&mut self, event: progress::Event<'_>) {
        if let progress::Event::Arrived { .. } = event
            && let Some(arrived) = self.arrived.take()
        {
            arrived.send(()).unwrap();
            self.go_on.recv().unwrap();
        }
    }
}

// req: P-122
// inv: INV-R10
#[tokio::test]
async fn a_download_under_way_ends_with_its_own_release_though_another_became_current() {
    let core = TestCore::start().await;
    // More than what is sent ahead of a reader.
    let large = |row: &Row| match row.role {
        Role::Node => vec![b'a'; 32 << 20],
        _ => row.key.as_bytes().to_vec(),
    };
    let first = made_of(commit('a'), &ROWS, large);
    publish(&core, &first, false);
    settled(&core, 'a').await;
    let (arrived, begun) = tokio::sync::oneshot::channel();
    let (switched, go_on) = std::sync::mpsc::sync_channel(1);
    let mut progress = Halting {
        arrived: Some(arrived),
        go_on,
    };
    let temp = tempfile::tempdir().unwrap();
    let root = Directory::create(&temp.path().join("root")).unwrap();
    let origin = core.url.parse().unwrap();
    let metadata = first.metadata.clone();
    let fetching = tokio::task::spawn_blocking(move || {
        let program = header::HeaderValue::from_static("oac-test/1");
        let mut remote = Remote::new(&origin, Surroundings::default(), program).unwrap();
        let commit = metadata.source_commit();
        let release = source::release(&mut remote, commit, Some(metadata.manifest_sha256())).unwrap();
        let missing = payload::missing(&root, release.manifest().artifacts(), &mut Silent).unwrap();
        payload::fetch(&root, &mut remote, commit, &missing, &mut progress).unwrap();
        // Also what is asked for only now is of that commit.
        let again = source::release(&mut remote, commit, Some(metadata.manifest_sha256())).unwrap();
        assert_eq!(again, metadata);
    });
    begun.await.unwrap();
    publish(&core, &made(commit('b'), "another"), false);
    settled(&core, 'b').await;
    switched.send(()).unwrap();
    fetching.await.unwrap();
    for artifact in first.metadata.manifest().artifacts() {
        if artifact.role.mode().is_some() {
            let bytes = std::fs::read(temp.path().join("root").join(&artifact.key)).unwrap();
            assert_eq!(Digest::of(&bytes), artifact.sha256, "{}", artifact.key);
        }
    }
}

// req: P-123
// inv: INV-R7, INV-R11
#[tokio::test]
async fn no_path_reaches_a_file_that_no_manifest_names_and_no_release_stands_in_for_another() {
    let core = TestCore::start().await;
    publish(&core, &made(commit('a'), "x"), false);
    settled(&core, 'a').await;
    let release = core.release_dir().join(commit('a').to_string());
    // There, and named by nothing.
    std::fs::write(release.join(ARTIFACTS).join("secret"), "secret").unwrap();
    std::fs::write(core.release_dir().join("secret"), "secret").unwrap();
    let (a, b) = (commit('a'), commit('b'));
    let node = layout::NODE.filename(a);
    let below = format!("{BASE}/releases/{a}");
    let port = core.url.rsplit(':').next().unwrap().parse::<u16>().unwrap();
    for path in [
        format!("{below}/artifacts/secret"),
        format!("{below}/artifacts/../manifest.json"),
        format!("{below}/artifacts/..%2fmanifest.json"),
        format!("{below}/artifacts/%2e%2e/SHA256SUMS"),
        format!("{below}/artifacts/..%2f..%2fsecret"),
        format!("{below}/artifacts/%2fetc%2fpasswd"),
        format!("{below}/artifacts//etc/passwd"),
        format!("{below}/artifacts/{node}/"),
        format!("{below}/artifacts/./{node}"),
        format!("{below}/artifacts/{node}%00"),
        format!("{below}/artifacts/"),
        format!("{below}/artifacts/{}", node.to_uppercase()),
        format!("{below}/artifacts/.{node}.partial"),
        format!("{below}/artifacts/%ff"),
        format!("{below}/"),
        format!("{below}/current.json"),
        format!("{BASE}/releases/../current.json"),
        format!("{BASE}/releases/..%2fcurrent.json/manifest.json"),
        format!("{BASE}/releases/{}/manifest.json", a.to_string().to_uppercase()),
        format!("{BASE}/releases/{}/manifest.json", &a.to_string()[..39]),
        format!("{BASE}/releases/{b}/manifest.json"),
        format!("{BASE}/releases/{b}/SHA256SUMS"),
        format!("{BASE}/releases/{b}/artifacts/{node}"),
        format!("{BASE}/releases/{b}/artifacts/{}", layout::NODE.filename(b)),
        format!("{BASE}/artifacts/secret"),
        format!("{BASE}/current.json"),
        format!("{BASE}/"),
        BASE.to_owned(),
    ] {
        // Byte by byte: a client would tidy the path up.
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = Vec::new();
        tokio::task::spawn_blocking(move || {
            stream.read_to_end(&mut answer).unwrap();
            let answer = String::from_utf8_lossy(&answer).into_owned();
            assert!(answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
            assert!(answer.contains("not_found_error"), "{path}: {answer}");
        })
        .await
        .unwrap();
    }
}

// inv: INV-R8
#[tokio::test]
async fn the_parts_of_a_file_make_the_file_and_past_its_end_is_416() {
    let core = TestCore::start().await;
    let release = made_of(commit('a'), &layout::ROWS, |row| {
        row.key.bytes().cycle().take(700_001).collect()
    });
    publish(&core, &release, false);
    settled(&core, 'a').await;
    let (path, bytes) = (file(&layout::NODE, 'a'), release.bytes(&layout::NODE));
    let size = bytes.len();
    for step in [size, 1, 299_999, 262_144, 350_000] {
        let step = if step == 1 { 100_003 } else { step };
        let mut whole = Vec::new();
        for first in (0..size).step_by(step) {
            let range = format!("bytes={first}-{}", first + step - 1);
            let part = ask(&core, Method::GET, &path, &[("range", &range)]).await;
            assert_eq!(part.status(), 206);
            let last = (first + step - 1).min(size - 1);
            assert_eq!(
                header_of(&part, &header::CONTENT_RANGE),
                format!("bytes {first}-{last}/{size}")
            );
            assert_eq!(header_of(&part, &header::ACCEPT_RANGES), "bytes");
            whole.extend(part.bytes().await.unwrap());
        }
        assert!(whole == bytes, "{step}");
    }
    let part = ask(&core, Method::GET, &path, &[("range", "bytes=-5")]).await;
    assert_eq!(part.bytes().await.unwrap(), bytes[size - 5..]);
    for range in [format!("bytes={size}-"), "bytes=-0".to_owned()] {
        let past = ask(&core, Method::GET, &path, &[("range", &range)]).await;
        assert_eq!(past.status(), 416, "{range}");
        assert_eq!(
            header_of(&past, &header::CONTENT_RANGE),
            format!("bytes */{size}")
        );
        assert_eq!(header_of(&past, &header::CACHE_CONTROL), "no-store");
        assert!(past.bytes().await.unwrap().is_empty());
    }
    for headers in [
        [("range", "bytes=0-1,4-5"), ("x", "y")],
        [("range", "lines=0-1"), ("x", "y")],
        [("range", "bytes=0-1"), ("if-range", "\"other\"")],
    ] {
        let answer = ask(&core, Method::GET, &path, &headers).await;
        assert_eq!(answer.status(), 200, "{headers:?}");
    }
    // Never of metadata.
    let manifest = format!("/releases/{}/manifest.json", commit('a'));
    let whole = ask(&core, Method::GET, &manifest, &[("range", "bytes=0-1")]).await;
    assert_eq!(whole.status(), 200);
    assert_eq!(whole.bytes().await.unwrap(), release.metadata.manifest_bytes());
}

#[tokio::test]
async fn a_client_that_stops_reading_a_file_is_disconnected() {
    let core = TestCore::start().await;
    // More than the kernel takes of it in the client's place.
    let release = made_of(commit('a'), &layout::ROWS, |row| {
        let size = if row.key == layout::NODE.key { 12 << 20 } else { 64 };
        row.key.bytes().cycle().take(size).collect()
    });
    publish(&core, &release, false);
    settled(&core, 'a').await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let address = core.url.strip_prefix("http://").unwrap().parse().unwrap();
    let client = socket.connect(address).await.unwrap();
    let request = format!(
        "GET {BASE}{} HTTP/1.1\r\nHost: x\r\n\r\n",
        file(&layout::NODE, 'a')
    );
    assert_eq!(client.try_write(request.as_bytes()).unwrap(), request.len());
    client.readable().await.unwrap();
    wait::until("the client is disconnected", LONG, async || {
        core.core().hub.clock().skip(Duration::from_secs(60));
        let asked = client.try_write(b"G");
        matches!(asked, Err(error) if error.kind() != std::io::ErrorKind::WouldBlock).then_some(())
    })
    .await
    .unwrap();
}

// req: G-020
// inv: INV-R9, INV-R15
#[tokio::test]
async fn what_is_not_held_is_found_elsewhere_but_never_metadata_or_the_installer() {
    for elsewhere in [None, Some("https://files.example.org/oac")] {
        let options = CoreOptions {
            release_url: elsewhere.map(str::to_owned),
            ..CoreOptions::default()
        };
        let core = TestCore::with(options).await;
        let release = made(commit('a'), "x");
        publish(&core, &release, false);
        let artifacts = core.release_dir().join(commit('a').to_string()).join(ARTIFACTS);
        for row in [&layout::IMAGE, &layout::INSTALLER] {
            std::fs::remove_file(artifacts.join(row.filename(commit('a')))).unwrap();
        }
        settled(&core, 'a').await;
        wait::until("the missing files are seen", LONG, async || {
            let missing = core
                .scrape()
                .await
                .value("oac_core_release_files", &[("state", "missing")]);
            (missing == Some(2.0)).then_some(())
        })
        .await
        .unwrap();
        assert_eq!(get(&core, &file(&layout::INSTALLER, 'a')).await.status(), 404);
        assert_eq!(get(&core, &file(&layout::SECCOMP, 'a')).await.status(), 200);
        let image = get(&core, &file(&layout::IMAGE, 'a')).await;
        let index = get(&core, "/index.json").await.bytes().await.unwrap();
        let index = Index::parse(&index).unwrap();
        assert!(index.installer.0.is_none() && !index.providers.docker);
        match elsewhere {
            None => assert_eq!(image.status(), 404),
            Some(base) => {
                assert_eq!(image.status(), 302);
                let to = format!("{base}/{}/{}", commit('a'), layout::IMAGE.filename(commit('a')));
                assert_eq!(header_of(&image, &header::LOCATION), to);
                assert_eq!(header_of(&image, &header::CACHE_CONTROL), "no-store");
            }
        }
    }
}

// inv: INV-R5, INV-R6
#[tokio::test]
async fn a_file_that_went_wrong_is_not_served_and_the_metrics_say_so() {
    let core = TestCore::start().await;
    publish(&core, &made(commit('a'), "x"), false);
    settled(&core, 'a').await;
    let path = core.release_dir().join(commit('a').to_string());
    let path = path.join(ARTIFACTS).join(layout::SECCOMP.filename(commit('a')));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    // From the moment it changed, hashed again or not.
    assert_eq!(get(&core, &file(&layout::SECCOMP, 'a')).await.status(), 404);
    wait::until("the file is found wrong", LONG, async || {
        let wrong = core
            .scrape()
            .await
            .value("oac_core_release_files", &[("state", "wrong")]);
        (wrong == Some(1.0)).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(get(&core, &file(&layout::SECCOMP, 'a')).await.status(), 404);
    let index = get(&core, "/index.json").await.bytes().await.unwrap();
    assert!(!Index::parse(&index).unwrap().providers.docker);
}

/// The account of Core and of nodes.
const ACCOUNT: u32 = 65532;

// inv: INV-R13
#[tokio::test]
async fn the_program_publishes_lists_and_removes_as_the_owner_and_never_as_root() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    // Where any account finds it.
    std::fs::set_permissions(temp.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_oac-core"), at("oac-core")).unwrap();
    for folder in ["releases", "data"] {
        std::fs::create_dir(at(folder)).unwrap();
    }
    let config = format!(
        "release_dir = {:?}\n[database]\nurl = \"sqlite://{}\"\n",
        at("releases"),
        at("data/core.db").display()
    );
    std::fs::write(at("config.toml"), config).unwrap();
    for (digit, salt) in [('a', "x"), ('b', "y")] {
        made(commit(digit), salt).write(&at(salt));
    }
    let is_root = rustix::process::geteuid().is_root();
    let run = |account: Option<u32>, arguments: &[&str]| {
        let mut command = std::process::Command::new(at("oac-core"));
        command
            .arg("release")
            .args(arguments)
            .arg("--config")
            .arg(at("config.toml"));
        if let Some(account) = account {
            std::os::unix::process::CommandExt::uid(&mut command, account);
        }
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (x, y) = (at("x"), at("y"));
    let (x, y) = (x.to_str().unwrap(), y.to_str().unwrap());
    if is_root {
        let (code, _, said) = run(None, &["publish", x]);
        assert_eq!(code, Some(1));
        assert!(said.contains("Run: sudo -u oac-node oac-core release"), "{said}");
        let (code, _, said) = run(Some(ACCOUNT), &["publish", x]);
        assert_eq!(code, Some(1));
        assert!(said.contains("belongs to another account"), "{said}");
        for folder in ["releases", "data"] {
            std::os::unix::fs::chown(at(folder), Some(ACCOUNT), None).unwrap();
        }
    }
    assert_eq!(std::fs::read_dir(at("releases")).unwrap().count(), 0);
    let owner = is_root.then_some(ACCOUNT);
    let published = run(owner, &["publish", x]);
    assert_eq!(published.0, Some(0), "{published:?}");
    let published = run(owner, &["publish", y, "--keep-current"]);
    assert_eq!(published.0, Some(0), "{published:?}");
    let (code, out, said) = run(owner, &["list"]);
    assert_eq!(code, Some(0), "{said}");
    let (a, b) = (commit('a').to_string(), commit('b').to_string());
    assert!(
        out.contains(&format!("{a}  current\n")) && out.contains(&format!("{b}\n")),
        "{out}"
    );
    assert!(
        out.contains(&format!("  held    {}\n", layout::NODE.filename(commit('a')))),
        "{out}"
    );
    let (code, _, said) = run(owner, &["remove", &a]);
    assert_eq!(code, Some(1));
    assert!(said.contains("is the current one"), "{said}");
    let (code, _, said) = run(owner, &["remove", &b]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("can no longer fetch their program"), "{said}");
    assert!(!run(owner, &["list"]).1.contains(&b));
}
