//! Releases from a server that is honest, and from ones that are not.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use oac_dial::Surroundings;
use oac_model::{Digest, ProviderKind, SourceCommit, Specification};
use oac_records::Directory;
use oac_release::{
    fetch::{Clock, Remote},
    layout::{self, Role},
    limits,
    manifest::Artifact,
    metadata::Metadata,
    payload::{self, PayloadError},
    progress::{Lines, Silent},
    source::{self, ReadError},
};
use url::Url;

use oac_release::made::{Made, commit, made, made_of};

use crate::server::{Asked, Server, Stream, hang, head, roots, say};

/// Of a file that hostile servers play with: long enough for several reads, short enough for many tries.
pub(crate) const SIZE: usize = 300_000;

/// A release whose node program has [`SIZE`] bytes.
pub(crate) fn sized(commit: SourceCommit) -> Made {
    made_of(commit, &layout::ROWS, |row| match row.role {
        Role::Node => (0..SIZE).map(|at| (at * 7 % 251) as u8).collect(),
        _ => row.key.as_bytes().to_vec(),
    })
}

/// A clock that stands still while something moves.
struct Counted {
    passed: AtomicU64,
    /// For each tenth of a second in which nothing came.
    idle_millis: u64,
    look_millis: u64,
}

impl Clock for Counted {
    fn now(&self) -> Duration {
        Duration::from_millis(self.passed.fetch_add(self.look_millis, Ordering::SeqCst))
    }

    fn idle(&self) {
        self.passed.fetch_add(self.idle_millis, Ordering::SeqCst);
    }
}

fn counted(origin: &Url, idle_millis: u64, look_millis: u64, surroundings: Surroundings) -> Remote {
    let clock = Counted {
        passed: AtomicU64::new(0),
        idle_millis,
        look_millis,
    };
    Remote::by(origin, surroundings, program(), Arc::new(clock)).unwrap()
}

/// A reader that a second and a half without a byte is a minute to.
pub(crate) fn hurried(origin: &Url) -> Remote {
    counted(origin, 4000, 0, surroundings())
}

/// A reader whose clock stands still.
fn patient(origin: &Url) -> Remote {
    counted(origin, 0, 0, surroundings())
}

/// A reader whose clock goes on with every piece that arrives.
fn measured(origin: &Url) -> Remote {
    counted(origin, 0, 500, surroundings())
}

fn program() -> http::HeaderValue {
    http::HeaderValue::from_static("oac-test/1")
}

fn surroundings() -> Surroundings {
    Surroundings {
        roots: roots(),
        ..Surroundings::default()
    }
}

/// Answers as Core does, without ranges in metadata.
pub(crate) fn honest(made: &Made, asked: &Asked, out: &mut dyn Stream) -> std::io::Result<()> {
    let commit = made.metadata.source_commit();
    let base = format!("/api/v1/sandbox-node/install/releases/{commit}/");
    let Some(name) = asked.path.strip_prefix(&base) else {
        return say(out, "404 Not Found", &[], b"");
    };
    match name {
        "manifest.json" => return say(out, "200 OK", &[], made.metadata.manifest_bytes()),
        "SHA256SUMS" => return say(out, "200 OK", &[], made.metadata.sums_bytes()),
        _ => {}
    }
    match file(made, asked) {
        Some((_, bytes)) => ranged(bytes, asked, out),
        None => say(out, "404 Not Found", &[], b""),
    }
}

fn file<'a>(made: &'a Made, asked: &Asked) -> Option<(&'a Artifact, &'a [u8])> {
    let (_, name) = asked.path.split_once("/artifacts/")?;
    let artifacts = made.metadata.manifest().artifacts();
    let at = artifacts.iter().position(|artifact| artifact.filename == name)?;
    Some((&artifacts[at], &made.files[at]))
}

pub(crate) fn ranged(bytes: &[u8], asked: &Asked, out: &mut dyn Stream) -> std::io::Result<()> {
    let size = bytes.len();
    match asked.from().map(|from| from as usize) {
        None => say(out, "200 OK", &[], bytes),
        Some(from) if from >= size => say(out, "416 Range Not Satisfiable", &[], b""),
        Some(from) => {
            let range = format!("bytes {from}-{}/{size}", size - 1);
            say(
                out,
                "206 Partial Content",
                &[("Content-Range", &range)],
                &bytes[from..],
            )
        }
    }
}

pub(crate) struct Node {
    _temp: tempfile::TempDir,
    pub(crate) root: Directory,
}

impl Node {
    pub(crate) fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let root = Directory::create(&temp.path().join("root")).unwrap();
        Self { _temp: temp, root }
    }

    pub(crate) fn get(&self, remote: &mut Remote, metadata: &Metadata) -> Result<(), PayloadError> {
        let missing = payload::missing(&self.root, metadata.manifest().artifacts(), &mut Silent)?;
        payload::fetch(
            &self.root,
            remote,
            metadata.source_commit(),
            &missing,
            &mut Silent,
        )
    }

    /// What is there below the root, without partial files: keys, modes, bytes.
    pub(crate) fn files(&self) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = Vec::new();
        walk(self.root.path(), self.root.path(), &mut found);
        found.retain(|(key, ..)| !key.ends_with(".partial"));
        found.sort();
        found
    }

    fn partial(&self) -> Option<Vec<u8>> {
        std::fs::read(self.root.path().join("bin/.oac-node.partial")).ok()
    }

    /// As an interrupted run left it.
    fn leave(&self, bytes: &[u8]) {
        let place = self.root.make("bin").unwrap();
        let mut partial =
            oac_records::Partial::begin(&place, "oac-node", oac_records::FileMode::Program).unwrap();
        partial.append(bytes).unwrap();
    }
}

fn walk(root: &Path, at: &Path, found: &mut Vec<(String, u32, Vec<u8>)>) {
    use std::os::unix::fs::PermissionsExt as _;
    for entry in std::fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        let mode = std::fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o7777;
        if path.is_dir() {
            assert_eq!(mode, 0o700, "{}", path.display());
            walk(root, &path, found);
        } else {
            let key = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            found.push((key, mode, std::fs::read(&path).unwrap()));
        }
    }
}

/// What a whole release is on a node.
pub(crate) fn whole(made: &Made) -> Vec<(String, u32, Vec<u8>)> {
    let files = made.metadata.manifest().artifacts().iter().zip(&made.files);
    let placed = files.filter(|(artifact, _)| artifact.role != Role::Installer);
    placed
        .map(|(artifact, bytes)| {
            let mode = match artifact.role {
                Role::Node | Role::Runtime => 0o700,
                _ => 0o600,
            };
            (artifact.key.clone(), mode, bytes.clone())
        })
        .collect()
}

fn metadata(made: &Made) -> &Metadata {
    &made.metadata
}

// req: G-021, G-151, P-121
#[test]
fn a_release_is_fetched_to_its_places_and_a_second_run_fetches_only_what_is_gone() {
    let made = Arc::new(sized(commit('a')));
    let served = made.clone();
    let server = Server::plain(move |asked, out| honest(&served, asked, out));
    let mut remote = patient(&server.url());
    let release = source::release(&mut remote, commit('a'), Some(made.metadata.manifest_sha256())).unwrap();
    assert_eq!(release, made.metadata);
    let node = Node::new();
    node.get(&mut remote, &release).unwrap();
    assert_eq!(node.files(), whole(&made));
    for asked in server.asked() {
        assert!(!asked.headers.contains_key("authorization") && !asked.headers.contains_key("cookie"));
        assert_eq!(asked.headers["accept-encoding"], "identity");
        assert!(
            asked
                .path
                .starts_with(&format!("/api/v1/sandbox-node/install/releases/{}/", commit('a')))
        );
    }
    let before = server.asked().len();
    node.get(&mut remote, &release).unwrap();
    assert_eq!(server.asked().len(), before);
    std::fs::remove_file(node.root.path().join("runtime/seccomp.json")).unwrap();
    node.get(&mut remote, &release).unwrap();
    assert_eq!(server.asked().len(), before + 1);
    assert!(server.asked()[before].path.ends_with("-seccomp.json"));
    assert_eq!(node.files(), whole(&made));
}

// inv: INV-N21
#[test]
fn one_conflicting_byte_prevents_every_download() {
    let made = Arc::new(sized(commit('a')));
    let served = made.clone();
    let server = Server::plain(move |asked, out| honest(&served, asked, out));
    let mut remote = patient(&server.url());
    let node = Node::new();
    node.get(&mut remote, metadata(&made)).unwrap();
    std::fs::remove_file(node.root.path().join("bin/oac-node")).unwrap();
    let msb = node.root.path().join("native/microsandbox/msb");
    let mut bytes = std::fs::read(&msb).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&msb, &bytes).unwrap();
    let (before, files) = (server.asked().len(), node.files());
    let conflict = node.get(&mut remote, metadata(&made)).unwrap_err();
    assert!(matches!(&conflict, PayloadError::Conflict(key) if key == "native/microsandbox/msb"));
    assert_eq!((server.asked().len(), node.files()), (before, files));
}

type Play = fn(&Made, &[u8], &Asked, &mut dyn Stream) -> std::io::Result<()>;

/// What a server may do instead of giving the file; never is anything under the file's name afterwards.
const HOSTILE: &[(&str, Play)] = &[
    ("a flipped bit", |_, bytes, _, out| {
        let mut other = bytes.to_vec();
        other[SIZE / 2] ^= 1;
        say(out, "200 OK", &[], &other)
    }),
    ("a byte less", |_, bytes, _, out| {
        say(out, "200 OK", &[], &bytes[1..])
    }),
    ("a byte less, unannounced", |_, bytes, _, out| {
        head(out, "200 OK", &[], None)?;
        out.write_all(&bytes[..SIZE - 1])
    }),
    ("a byte more", |_, bytes, _, out| {
        say(out, "200 OK", &[], &[bytes, b"x"].concat())
    }),
    ("a byte more, unannounced", |_, bytes, _, out| {
        head(out, "200 OK", &[], None)?;
        out.write_all(bytes)?;
        out.write_all(b"x")
    }),
    ("no end", |_, bytes, _, out| {
        head(out, "200 OK", &[], None)?;
        loop {
            out.write_all(bytes)?;
        }
    }),
    ("no end of one chunk", |_, _, _, out| {
        head(out, "200 OK", &[("Transfer-Encoding", "chunked")], None)?;
        out.write_all(b"ffffffffff\r\n")?;
        loop {
            out.write_all(&[b'x'; 4096])?;
        }
    }),
    ("an empty body", |_, _, _, out| say(out, "200 OK", &[], b"")),
    ("a true size and nothing behind it", |_, _, _, out| {
        head(out, "200 OK", &[], Some(SIZE as u64))
    }),
    ("an encoding", |_, bytes, _, out| {
        say(out, "200 OK", &[("Content-Encoding", "gzip")], bytes)
    }),
    ("a part for the whole", |_, bytes, _, out| {
        let range = format!("bytes 0-{}/{SIZE}", SIZE - 1);
        say(out, "206 Partial Content", &[("Content-Range", &range)], bytes)
    }),
    ("another file", |made, _, _, out| {
        say(out, "200 OK", &[], made.bytes(&layout::MSB))
    }),
    ("a page", |_, _, _, out| {
        say(out, "200 OK", &[], b"<html>sign in</html>")
    }),
    ("no such file", |_, _, _, out| say(out, "404 Not Found", &[], b"")),
    ("no content", |_, _, _, out| {
        head(out, "204 No Content", &[], None)
    }),
    ("forbidden", |_, bytes, _, out| {
        say(out, "403 Forbidden", &[], bytes)
    }),
    ("always busy", |_, bytes, _, out| {
        say(out, "503 Service Unavailable", &[], bytes)
    }),
    ("out of range", |_, _, _, out| {
        say(out, "416 Range Not Satisfiable", &[], b"")
    }),
    ("a redirect to http", |_, _, asked, out| {
        let to = format!("http://localhost{}", asked.path);
        say(out, "302 Found", &[("Location", &to)], b"")
    }),
    ("a redirect to itself", |_, _, asked, out| {
        say(out, "302 Found", &[("Location", &asked.path)], b"")
    }),
    ("a redirect with credentials", |_, _, _, out| {
        say(out, "302 Found", &[("Location", "https://u:p@localhost/x")], b"")
    }),
    ("a redirect to a file", |_, _, _, out| {
        say(out, "302 Found", &[("Location", "file:///etc/passwd")], b"")
    }),
    ("a redirect to nowhere", |_, _, _, out| {
        say(out, "302 Found", &[], b"")
    }),
    ("no HTTP", |_, bytes, _, out| out.write_all(bytes)),
    ("two lengths", |_, bytes, _, out| {
        head(out, "200 OK", &[("Content-Length", "5")], Some(SIZE as u64))?;
        out.write_all(bytes)
    }),
    ("another version of HTTP", |_, bytes, _, out| {
        out.write_all(b"HTTP/3.0 200 OK\r\n\r\n")?;
        out.write_all(bytes)
    }),
    ("an endless head", |_, _, _, out| {
        out.write_all(b"HTTP/1.1 200 OK\r\n")?;
        loop {
            out.write_all(b"X-Filler: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n")?;
        }
    }),
    ("silence", |_, _, _, out| hang(out)),
    ("silence within the body", |_, bytes, _, out| {
        head(out, "200 OK", &[], Some(SIZE as u64))?;
        out.write_all(&bytes[..1000])?;
        hang(out)
    }),
    ("silence after the body", |_, bytes, _, out| {
        head(out, "200 OK", &[], None)?;
        out.write_all(&bytes[..SIZE - 1])?;
        hang(out)
    }),
];

// req: G-021
// inv: INV-R12
#[test]
fn whatever_a_server_sends_instead_of_a_file_nothing_has_its_name_afterwards() {
    let made = Arc::new(sized(commit('a')));
    for (what, play) in HOSTILE {
        for before in [0, 1000] {
            let served = made.clone();
            let server = Server::plain(move |asked, out| match file(&served, asked) {
                Some((artifact, bytes)) if artifact.role == Role::Node => play(&served, bytes, asked, out),
                _ => honest(&served, asked, out),
            });
            let node = Node::new();
            if before > 0 {
                node.leave(&made.bytes(&layout::NODE)[..before]);
            }
            let answer = node.get(&mut hurried(&server.url()), metadata(&made));
            let error = answer.expect_err(what);
            assert!(
                matches!(error, PayloadError::Source(_) | PayloadError::Checksum(_)),
                "{what}: {error:?}"
            );
            let program = node.files().into_iter().find(|(key, ..)| key == "bin/oac-node");
            assert_eq!(program, None, "{what}");
            // And whatever it left is no hindrance to an honest server.
            let served = made.clone();
            let server = Server::plain(move |asked, out| honest(&served, asked, out));
            let mut remote = patient(&server.url());
            if let Err(error) = node.get(&mut remote, metadata(&made)) {
                // What came was wrong, and is gone.
                assert!(matches!(error, PayloadError::Checksum(_)), "{what}: {error:?}");
                node.get(&mut remote, metadata(&made)).unwrap();
            }
            assert_eq!(node.files(), whole(&made), "{what}");
        }
    }
}

// req: G-149, G-150
#[test]
fn what_arrived_of_an_interrupted_download_is_kept_and_the_next_run_says_so_and_fetches_the_rest() {
    let made = Arc::new(sized(commit('a')));
    let cut = Arc::new(AtomicU64::new(3));
    let (served, cuts) = (made.clone(), cut.clone());
    let server = Server::plain(move |asked, out| match file(&served, asked) {
        Some((artifact, bytes)) if artifact.role == Role::Node && cuts.load(Ordering::SeqCst) > 0 => {
            cuts.fetch_sub(1, Ordering::SeqCst);
            let from = asked.from().unwrap_or(0);
            let range = format!("bytes {from}-{}/{SIZE}", SIZE - 1);
            let status = if from == 0 {
                "200 OK"
            } else {
                "206 Partial Content"
            };
            head(
                out,
                status,
                &[("Content-Range", &range)],
                Some(SIZE as u64 - from),
            )?;
            let from = from as usize;
            out.write_all(&bytes[from..from + 50_000])
        }
        _ => honest(&served, asked, out),
    });
    let node = Node::new();
    // Three transfers break: the first, and both resumptions.
    let failed = node
        .get(&mut hurried(&server.url()), metadata(&made))
        .unwrap_err();
    assert!(
        matches!(failed, PayloadError::Source(ReadError::Broken { .. })),
        "{failed:?}"
    );
    let kept = node.partial().unwrap();
    assert_eq!(kept, made.bytes(&layout::NODE)[..150_000]);
    assert_eq!(cut.load(Ordering::SeqCst), 0);
    let missing = payload::missing(&node.root, made.metadata.manifest().artifacts(), &mut Silent).unwrap();
    let mut log = Vec::new();
    let mut remote = patient(&server.url());
    payload::fetch(
        &node.root,
        &mut remote,
        commit('a'),
        &missing,
        &mut Lines::new(&mut log),
    )
    .unwrap();
    assert_eq!(node.files(), whole(&made));
    let offsets: Vec<_> = server
        .asked()
        .iter()
        .filter(|a| a.path.ends_with("-node"))
        .map(Asked::from)
        .collect();
    assert_eq!(offsets, [None, Some(50_000), Some(100_000), Some(150_000)]);
    let log = String::from_utf8(log).unwrap();
    let name = layout::NODE.filename(commit('a'));
    assert!(
        log.contains(&format!("Resuming {name} at 0.1 of 0.3 MiB\n")),
        "{log}"
    );
    assert!(!log.contains(['\r', '\u{1b}']));
    let mut log = Vec::new();
    payload::missing(
        &node.root,
        made.metadata.manifest().artifacts(),
        &mut Lines::new(&mut log),
    )
    .unwrap();
    assert!(
        String::from_utf8(log)
            .unwrap()
            .contains(&format!("{name} already verified\n"))
    );
}

// req: G-152
#[test]
fn a_server_that_cannot_resume_sends_the_file_from_its_beginning() {
    let made = Arc::new(sized(commit('a')));
    let program = made.bytes(&layout::NODE).to_vec();
    let wrong = vec![b'x'; 1000];
    let longer = vec![b'x'; SIZE + 1];
    // Whether what is left of an earlier run is right, wrong or too long: the whole that comes replaces it.
    for left in [&program[..1000], &wrong, &longer] {
        for status in [200, 416] {
            let served = made.clone();
            let server = Server::plain(move |asked, out| match (file(&served, asked), asked.from()) {
                (Some((_, bytes)), Some(_)) if status == 200 => say(out, "200 OK", &[], bytes),
                (Some(_), Some(_)) => say(out, "416 Range Not Satisfiable", &[], b""),
                _ => honest(&served, asked, out),
            });
            let node = Node::new();
            node.leave(left);
            node.get(&mut patient(&server.url()), metadata(&made)).unwrap();
            assert_eq!(node.files(), whole(&made));
        }
    }
}

// inv: INV-R12
#[test]
fn a_file_whose_parts_are_of_two_versions_fails_its_checksum_and_goes() {
    let made = Arc::new(sized(commit('a')));
    let served = made.clone();
    let server = Server::plain(move |asked, out| match file(&served, asked) {
        // Another file of the same size behind another tag.
        Some((artifact, bytes)) if artifact.role == Role::Node => {
            let from = asked.from().unwrap_or(0);
            let mut other = bytes.to_vec();
            other.reverse();
            let range = format!("bytes {from}-{}/{SIZE}", SIZE - 1);
            let headers = [("Content-Range", range.as_str()), ("ETag", "\"other\"")];
            say(out, "206 Partial Content", &headers, &other[from as usize..])
        }
        _ => honest(&served, asked, out),
    });
    let node = Node::new();
    node.leave(&made.bytes(&layout::NODE)[..1000]);
    let error = node
        .get(&mut patient(&server.url()), metadata(&made))
        .unwrap_err();
    let PayloadError::Checksum(name) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(*name, layout::NODE.filename(commit('a')));
    assert_eq!(node.partial(), None);
}

// req: G-153
#[test]
fn a_drip_of_less_than_64_kib_in_a_minute_stops_at_once_and_says_what_to_do() {
    let made = Arc::new(sized(commit('a')));
    let served = made.clone();
    let server = Server::plain(move |asked, out| match file(&served, asked) {
        Some((artifact, bytes)) if artifact.role == Role::Node => {
            head(out, "200 OK", &[], Some(SIZE as u64))?;
            for byte in bytes.chunks(1) {
                out.write_all(byte)?;
                out.flush()?;
            }
            Ok(())
        }
        _ => honest(&served, asked, out),
    });
    let node = Node::new();
    let error = node
        .get(&mut measured(&server.url()), metadata(&made))
        .unwrap_err();
    assert!(
        matches!(error, PayloadError::Source(ReadError::Stalled { .. })),
        "{error:?}"
    );
    assert!(
        error
            .to_string()
            .starts_with("The download stalled: less than 64 KiB arrived in a minute.")
    );
    assert!(node.partial().is_some());
    let asked = server.asked();
    assert_eq!(asked.iter().filter(|a| a.path.ends_with("-node")).count(), 1);
}

// req: G-020
#[test]
fn a_redirect_to_https_is_followed_with_its_range_and_without_anything_secret() {
    let made = Arc::new(sized(commit('a')));
    let served = made.clone();
    let mirror = Server::tls(move |asked, out| {
        let bytes = served.bytes(&layout::NODE);
        if asked.path == "/first" {
            return say(
                out,
                "307 Temporary Redirect",
                &[("Location", "/second?signed=1")],
                b"",
            );
        }
        ranged(bytes, asked, out)
    });
    let (served, to) = (made.clone(), mirror.url().join("/first").unwrap());
    let server = Server::plain(move |asked, out| match file(&served, asked) {
        Some((artifact, _)) if artifact.role == Role::Node => {
            say(out, "302 Found", &[("Location", to.as_str())], b"")
        }
        _ => honest(&served, asked, out),
    });
    let node = Node::new();
    node.leave(&made.bytes(&layout::NODE)[..1000]);
    node.get(&mut patient(&server.url()), metadata(&made)).unwrap();
    assert_eq!(node.files(), whole(&made));
    let asked = mirror.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[1].path, "/second?signed=1");
    for asked in asked {
        assert_eq!(asked.from(), Some(1000));
        for secret in ["authorization", "cookie", "referer", "proxy-authorization"] {
            assert!(!asked.headers.contains_key(secret));
        }
    }
    // A mirror that nobody vouches for gives nothing.
    let node = Node::new();
    let origin = server.url();
    let mut doubting = counted(&origin, 4000, 0, Surroundings::default());
    let error = node.get(&mut doubting, metadata(&made)).unwrap_err();
    assert!(
        matches!(error, PayloadError::Source(ReadError::Broken { .. })),
        "{error:?}"
    );
}

#[test]
fn five_redirects_are_followed_and_no_sixth() {
    for (count, goes) in [(5, true), (6, false)] {
        let made = Arc::new(sized(commit('a')));
        let served = made.clone();
        let mirror = Server::tls(move |asked, out| match asked.path[1..].parse::<u32>() {
            Ok(1) | Err(_) => ranged(served.bytes(&layout::NODE), asked, out),
            Ok(left) => {
                let to = format!("/{}", left - 1);
                say(out, "302 Found", &[("Location", &to)], b"")
            }
        });
        let (served, to) = (made.clone(), mirror.url().join(&count.to_string()).unwrap());
        let server = Server::plain(move |asked, out| match file(&served, asked) {
            Some((artifact, _)) if artifact.role == Role::Node => {
                say(out, "302 Found", &[("Location", to.as_str())], b"")
            }
            _ => honest(&served, asked, out),
        });
        let answer = Node::new().get(&mut patient(&server.url()), metadata(&made));
        assert_eq!(answer.is_ok(), goes, "{count}: {answer:?}");
    }
}

#[test]
fn metadata_gets_three_tries_where_another_may_go_better_and_one_where_none_will() {
    let made = Arc::new(made(commit('a'), "x"));
    type Fault = fn(&mut dyn Stream) -> std::io::Result<()>;
    let faults: &[(&str, bool, Fault)] = &[
        ("408", true, |out| say(out, "408 Request Timeout", &[], b"")),
        ("429", true, |out| say(out, "429 Too Many Requests", &[], b"")),
        ("500", true, |out| say(out, "500 Internal Server Error", &[], b"")),
        ("502", true, |out| say(out, "502 Bad Gateway", &[], b"")),
        ("503", true, |out| say(out, "503 Service Unavailable", &[], b"")),
        ("504", true, |out| say(out, "504 Gateway Timeout", &[], b"")),
        ("cut off", true, |out| head(out, "200 OK", &[], Some(100))),
        ("closed", true, |_| Ok(())),
        ("silence", true, hang),
        ("404", false, |out| say(out, "404 Not Found", &[], b"")),
        ("400", false, |out| say(out, "400 Bad Request", &[], b"")),
        ("501", false, |out| say(out, "501 Not Implemented", &[], b"")),
        ("a redirect", false, |out| {
            say(out, "302 Found", &[("Location", "https://localhost/")], b"")
        }),
        ("more than 1 MiB", false, |out| {
            say(out, "200 OK", &[], &vec![b' '; limits::METADATA_BYTES + 1])
        }),
        ("an encoding", false, |out| {
            say(out, "200 OK", &[("Content-Encoding", "br")], b"x")
        }),
        ("a page", false, |out| say(out, "200 OK", &[], b"<html>")),
    ];
    for (what, again, fault) in faults {
        for (failing, goes) in [(2, *again), (3, false)] {
            let left = AtomicU64::new(failing);
            let (served, fault) = (made.clone(), *fault);
            let server = Server::plain(move |asked, out| {
                let is_manifest = asked.path.ends_with("/manifest.json");
                let fails = is_manifest
                    && left
                        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                        .is_ok();
                if fails {
                    fault(out)
                } else {
                    honest(&served, asked, out)
                }
            });
            let answer = source::release(&mut hurried(&server.url()), commit('a'), None);
            assert_eq!(answer.is_ok(), goes, "{what}: {answer:?}");
            let manifests = server
                .asked()
                .iter()
                .filter(|a| a.path.ends_with("/manifest.json"))
                .count();
            assert_eq!(manifests, if *again { 3 } else { 1 }, "{what}");
        }
    }
}

// req: P-123
// inv: INV-R11, INV-R16
#[test]
fn a_release_is_the_one_asked_for_by_commit_digest_and_specification_or_none() {
    let wanted = made(commit('a'), "wanted");
    let current = Arc::new(made(commit('b'), "current"));
    let served = current.clone();
    let console = Server::plain(move |asked, out| honest(&served, asked, out));
    let mut remote = patient(&console.url());
    let missing = source::release(&mut remote, commit('a'), None).unwrap_err();
    assert!(
        matches!(missing, ReadError::NoRelease(missing) if missing == commit('a')),
        "{missing:?}"
    );
    let a = commit('a').to_string();
    assert!(console.asked().iter().all(|asked| asked.path.contains(&a)));

    // A server that gives the current release under the missing one's name.
    let served = current.clone();
    let liar = Server::plain(move |asked, out| {
        let path = asked
            .path
            .replace(&commit('a').to_string(), &commit('b').to_string());
        honest(
            &served,
            &Asked {
                path,
                ..asked.clone()
            },
            out,
        )
    });
    let mut remote = patient(&liar.url());
    let refused = source::release(&mut remote, commit('a'), None).unwrap_err();
    assert!(matches!(refused, ReadError::NoRelease(_)), "{refused:?}");

    // Changed on the server, sums and all: what the command says of the manifest tells.
    let known = wanted.metadata.manifest_sha256();
    let changed = Arc::new(made(commit('a'), "changed"));
    let served = changed.clone();
    let console = Server::plain(move |asked, out| honest(&served, asked, out));
    let mut remote = patient(&console.url());
    source::release(&mut remote, commit('a'), None).unwrap();
    let refused = source::release(&mut remote, commit('a'), Some(known)).unwrap_err();
    assert!(matches!(refused, ReadError::OtherManifest), "{refused:?}");

    // And what the specification says of the Runtime.
    let specification = |made: &Made| Specification {
        provider: ProviderKind::Microsandbox,
        resources: serde_json::from_str(r#"{"cpus":1,"memory_mib":512}"#).unwrap(),
        runtime: made.metadata.manifest().runtime(ProviderKind::Microsandbox),
        workspace: None,
    };
    source::runtime_release(&mut remote, &specification(&changed)).unwrap();
    let refused = source::runtime_release(&mut remote, &specification(&wanted)).unwrap_err();
    assert!(matches!(refused, ReadError::Mismatch(_)), "{refused:?}");
}

// inv: INV-R2
#[test]
fn a_reader_takes_no_metadata_that_is_not_valid_or_does_not_agree() {
    let made = made(commit('a'), "x");
    let manifest = String::from_utf8(made.metadata.manifest_bytes().to_vec()).unwrap();
    let sums = String::from_utf8(made.metadata.sums_bytes().to_vec()).unwrap();
    let with = |manifest: &str| {
        let digest = Digest::of(manifest).to_string();
        (
            manifest.to_owned(),
            sums.replace(&made.metadata.manifest_sha256().to_string(), &digest),
        )
    };
    let bad = [
        (manifest.replace("linux/amd64", "linux/arm64"), sums.clone()),
        with(&manifest.replace("linux/amd64", "linux/arm64")),
        with(&manifest.replace("bin/oac-node\"", "../oac-node\"")),
        with(&manifest.replace("\"format\": 1,", "\"format\": 1, \"more\": 1,")),
        with(&manifest.replace("\"format\": 1,", "\"format\": 1, \"format\": 1,")),
        with(&manifest.replace("\"format\": 1,", "")),
        (manifest.clone(), sums.replacen(['0', '1', '2', '3'], "4", 1)),
        (manifest.clone(), String::new()),
    ];
    for (manifest, sums) in bad {
        let server = Server::plain(move |asked, out| {
            let text = if asked.path.ends_with("SHA256SUMS") {
                &sums
            } else {
                &manifest
            };
            say(out, "200 OK", &[], text.as_bytes())
        });
        let refused = source::release(&mut patient(&server.url()), commit('a'), None).unwrap_err();
        assert!(matches!(refused, ReadError::Metadata(_)), "{refused:?}");
    }
}
