//! A release server that means harm, read by the real preparer: whatever it answers, no byte of it gets a name in a
//! release, none reaches the engine, and the generation comes once the server is honest.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::{StreamExt, stream};
use oac_model::{DiagnosticCode, Digest};
use oac_release::layout;

use crate::{
    kills::HOSTS,
    managed::{OTHER_COMMIT, OtherRelease, PROFILE, Serve, ready, served},
    managing::code,
    rigged::{FAST, Rigged, SLOWLY},
};

type Files = BTreeMap<String, Vec<u8>>;

/// What the server answers, made of the honest files and its own address.
type Attack = fn(Files, &str) -> Serve;

/// The name of a file of the other release.
fn artifact(suffix: &str) -> String {
    format!("artifacts/oac-{OTHER_COMMIT}-linux-amd64-{suffix}")
}

fn profile() -> String {
    artifact("seccomp.json")
}

fn archive() -> String {
    artifact("runtime.tar.gz")
}

/// Honest but for one path.
fn but(files: Files, path: String, answer: impl Fn(&[u8]) -> Response + Send + Sync + 'static) -> Serve {
    Box::new(move |_, asked| {
        let bytes = files.get(asked)?;
        Some(if asked == path {
            answer(bytes)
        } else {
            bytes.clone().into_response()
        })
    })
}

/// The manifest with `from` replaced, and sums that agree with it.
fn forged(mut files: Files, from: &str, to: &str) -> Serve {
    let manifest = String::from_utf8(files["manifest.json"].clone()).unwrap();
    let forged = manifest.replace(from, to);
    assert_ne!(manifest, forged, "{from}");
    let sums = String::from_utf8(files["SHA256SUMS"].clone()).unwrap();
    let [before, after] = [&manifest, &forged].map(|text| Digest::of(text).to_string());
    assert!(sums.contains(&before));
    files.insert(
        "SHA256SUMS".to_owned(),
        sums.replace(&before, &after).into_bytes(),
    );
    files.insert("manifest.json".to_owned(), forged.into_bytes());
    served(files)
}

fn redirect(to: String) -> Response {
    (StatusCode::FOUND, [(header::LOCATION, to)]).into_response()
}

/// Bytes without end, in pieces.
fn endless(piece: &'static [u8]) -> Response {
    let pieces = stream::repeat_with(move || Ok::<_, std::io::Error>(Bytes::from_static(piece)));
    Body::from_stream(pieces).into_response()
}

/// A piece now and then: far less than 64 KiB in a minute of the reader's clock.
fn dripping(bytes: &[u8]) -> Response {
    let bytes = Bytes::copy_from_slice(bytes).into_iter();
    let pieces = bytes.map(|byte| Bytes::from(vec![byte]));
    let pieces = stream::iter(pieces).then(|piece| async {
        tokio::time::sleep(Duration::from_millis(250)).await;
        Ok::<_, std::io::Error>(piece)
    });
    Body::from_stream(pieces).into_response()
}

const ATTACKS: [(&str, Attack); 17] = [
    ("a bit of a file", |files, _| {
        but(files, profile(), |bytes| {
            let mut bytes = bytes.to_vec();
            bytes[3] ^= 1;
            bytes.into_response()
        })
    }),
    ("a bit of the archive", |files, _| {
        but(files, archive(), |bytes| {
            let mut bytes = bytes.to_vec();
            bytes[90_000] ^= 1;
            bytes.into_response()
        })
    }),
    ("a byte too many", |files, _| {
        but(files, profile(), |bytes| [bytes, b" "].concat().into_response())
    }),
    ("an archive that ends early", |files, _| {
        but(files, archive(), |bytes| bytes[..70_000].to_vec().into_response())
    }),
    ("an archive without end", |files, _| {
        but(files, archive(), |_| endless(&[7; 4096]))
    }),
    ("a file without end", |files, _| {
        but(files, profile(), |_| endless(b"{\"defaultAction\""))
    }),
    ("a manifest without end", |files, _| {
        but(files, "manifest.json".to_owned(), |_| endless(&[b' '; 4096]))
    }),
    ("sums without end", |files, _| {
        but(files, "SHA256SUMS".to_owned(), |_| endless(&[b'0'; 4096]))
    }),
    ("a drip", |files, _| but(files, archive(), dripping)),
    ("a redirect to http, to the right bytes", |files, url| {
        let url = format!("{url}/api/v1/sandbox-node/install/releases/{OTHER_COMMIT}/right");
        let right = files[&archive()].clone();
        let honest = but(files, archive(), move |_| redirect(url.clone()));
        Box::new(move |seen, path| match path {
            "right" => Some(right.clone().into_response()),
            _ => honest(seen, path),
        })
    }),
    ("a redirect with credentials", |files, _| {
        but(files, archive(), |_| {
            redirect("https://someone:secret@localhost/archive".to_owned())
        })
    }),
    ("a redirect of the manifest, to the right one", |files, url| {
        let url = format!("{url}/api/v1/sandbox-node/install/releases/{OTHER_COMMIT}/right");
        let right = files["manifest.json"].clone();
        let honest = but(files, "manifest.json".to_owned(), move |_| redirect(url.clone()));
        Box::new(move |seen, path| match path {
            "right" => Some(right.clone().into_response()),
            _ => honest(seen, path),
        })
    }),
    ("a path out of the release", |files, _| {
        forged(files, layout::SECCOMP.key, "runtime/../../../provider.json")
    }),
    ("an absolute path", |files, _| {
        forged(files, layout::SECCOMP.key, "/etc/seccomp.json")
    }),
    ("a file name out of the release", |files, _| {
        let name = profile();
        let name = name.strip_prefix("artifacts/").unwrap();
        forged(files, name, &format!("../{name}"))
    }),
    ("another commit's release, right in itself", |_, _| {
        served(OtherRelease::scripted(&"c".repeat(40)).files.clone())
    }),
    ("another image under the right commit", |files, _| {
        let image = OtherRelease::scripted(OTHER_COMMIT).image.to_string();
        forged(files, &image, &format!("sha256:{}", "e".repeat(64)))
    }),
];

// req: P-121, P-181, P-182
// inv: INV-N8, INV-R2, INV-R11, INV-R12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_release_server_answers_nothing_of_it_is_published_or_loaded_and_an_honest_one_is_believed_again()
 {
    let each = async |(what, attack): (&str, Attack)| {
        let mut host = Rigged::new().await;
        let honest = host.release.files.clone();
        host.node.answer(attack(honest.clone(), &host.node.core.url()));
        let mut rig = host.start(None);
        let refused = |host: &Rigged| code(&host.report, 2) == Some(DiagnosticCode::RuntimeDownloadFailed);
        let told = host.drive(&mut rig, SLOWLY, |host| {
            assert!(!host.has("2.json"), "{what}");
            refused(host)
        });
        assert!(told.await, "{what}");
        assert!(!host.has_image() && !host.has("2.json"), "{what}");
        let engine = &host.node.scripted_engine().held;
        assert_eq!(engine.times("POST /images/load"), 0, "{what}");
        for (key, right) in [("runtime/seccomp.json", PROFILE), ("images/runtime.tar.gz", b"")] {
            if let Ok(bytes) = std::fs::read(host.place().join(key)) {
                assert_eq!(bytes, right, "{what}: {key}");
            }
        }
        let root = &host.node.installation.root;
        assert_eq!(std::fs::read(root.join("runtime/seccomp.json")).unwrap(), b"{}");

        host.node.answer(served(honest));
        assert!(
            host.drive(&mut rig, FAST, |host| ready(&host.report, 2)).await,
            "{what}"
        );
        rig.kill();
        assert_eq!(std::fs::read(host.profile()).unwrap(), PROFILE);
        host.recovered(false);
        // Its own files, below the one commit, and nothing that names what is current.
        let seen = host.node.core.script.seen.lock();
        let asked = seen.iter().map(|seen| seen.uri.path());
        let below = format!("/api/v1/sandbox-node/install/releases/{OTHER_COMMIT}/");
        for path in asked.filter(|path| path.contains("/install/")) {
            assert!(path.starts_with(&below), "{what}: {path}");
        }
    };
    stream::iter(ATTACKS).for_each_concurrent(HOSTS, each).await;
}

// req: P-151, P-152
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_knows_the_image_by_either_of_its_names_has_it_and_the_configuration_keeps_that_one() {
    use oac_generations::{Configuration, native::Native, records::Record as _};
    for by_manifest in [false, true] {
        let mut host = Rigged::new().await;
        let runtime = host.node.specifications[1].runtime.as_ref().unwrap();
        let names = [
            runtime.artifacts.image_id,
            runtime.artifacts.image_manifest_digest,
        ];
        let name = names[usize::from(by_manifest)].unwrap();
        *host.node.scripted_engine().held.knows_as.lock() = Some(name.to_string());
        let mut rig = host.start(None);
        assert!(
            host.drive(&mut rig, SLOWLY, |host| host.has("2.json")
                && !host.has("2.preparing"))
                .await
        );
        assert!(host.drive(&mut rig, FAST, |host| ready(&host.report, 2)).await);
        rig.kill();
        let bytes = std::fs::read(host.node.record("2.json")).unwrap();
        let Native::Docker(native) = Configuration::decode(&bytes).unwrap().native else {
            panic!("a Docker node");
        };
        assert_eq!(native.image, name);
    }
}
