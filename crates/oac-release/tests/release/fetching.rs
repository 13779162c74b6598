//! The files of a release from a server that is honest, and from ones that are not.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use oac_release::{
    layout::{self, Role},
    made::{Made, commit},
    payload::{self, PayloadError},
    progress::{Lines, Silent},
    source::{self, ReadError},
};

use crate::{
    reader::{Node, SIZE, file, honest, hurried, measured, metadata, patient, sized, whole},
    server::{Asked, Server, Stream, hang, head, say},
};

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
// inv: INV-I13
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
