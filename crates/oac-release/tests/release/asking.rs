//! How a server is asked: redirects, tries, and which release is taken.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use oac_dial::Surroundings;
use oac_model::{Digest, ProviderKind, Specification};
use oac_release::{
    layout::{self, Role},
    limits,
    made::{Made, commit, made},
    payload::PayloadError,
    source::{self, ReadError},
};

use crate::{
    reader::{Node, counted, file, honest, hurried, metadata, patient, ranged, sized, whole},
    server::{Asked, Server, Stream, hang, head, say},
};

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
