//! What a release's texts may be: one good form, and a corpus of refusals.

use oac_model::{Digest, ProviderKind, Specification};
use oac_release::{
    layout::{self, ROWS},
    limits,
    manifest::{Manifest, Mismatch},
    metadata::{Metadata, MetadataError},
};
use serde_json::{Value, json};

use oac_release::made::{Made, commit, key, made, made_of};

fn good() -> (Made, Value) {
    let made = made(commit('a'), "good");
    let value = serde_json::from_slice(made.metadata.manifest_bytes()).unwrap();
    (made, value)
}

fn judge(value: &Value) -> Result<Manifest, String> {
    Manifest::parse(value.to_string().as_bytes()).map_err(|error| error.to_string())
}

/// Sums that list a manifest's own bytes and its files.
fn sums_of(made: &Made, manifest: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(made.metadata.sums_bytes().to_vec()).unwrap();
    text.replace(
        &made.metadata.manifest_sha256().to_string(),
        &Digest::of(manifest).to_string(),
    )
    .into_bytes()
}

#[test]
fn a_release_is_read_back_as_it_was_written_and_the_same_files_give_the_same_bytes() {
    let (made, _) = good();
    let read = Metadata::parse(
        made.metadata.manifest_bytes().to_vec(),
        made.metadata.sums_bytes().to_vec(),
    );
    assert_eq!(read.unwrap(), made.metadata);
    let mut turned = ROWS;
    turned.reverse();
    let again = made_of(commit('a'), &turned, |row| {
        format!("good {}", row.suffix).into_bytes()
    });
    assert_eq!(again.metadata, made.metadata);
}

type Change = (&'static str, fn(&mut Value));

/// Each makes a good manifest a bad one.
const REFUSED: &[Change] = &[
    ("format 2", |m| m["format"] = json!(2)),
    ("format 1.0", |m| m["format"] = json!(1.0)),
    ("another platform", |m| m["platform"] = json!("linux/arm64")),
    ("a short commit", |m| m["source_commit"] = json!("abc")),
    ("a commit in capitals", |m| {
        m["source_commit"] = json!("A".repeat(40))
    }),
    ("another commit than the files'", |m| {
        m["source_commit"] = json!("b".repeat(40))
    }),
    ("a null commit", |m| m["source_commit"] = Value::Null),
    ("an unknown member", |m| m["extra"] = json!(1)),
    ("an unknown member of images", |m| m["images"]["base"] = json!({})),
    ("an unknown member of the image", |m| {
        m["images"]["runtime"]["tag"] = json!("t")
    }),
    ("an image digest without sha256:", |m| {
        m["images"]["runtime"]["config_digest"] = json!("a".repeat(64));
    }),
    ("no artifacts", |m| m["artifacts"] = json!({})),
    ("artifacts as a list", |m| m["artifacts"] = json!([])),
    ("an unknown member of a file", |m| file(m)["mode"] = json!(448)),
    ("a null unpacked_size", |m| file(m)["unpacked_size"] = Value::Null),
    ("an unpacked size alone", |m| file(m)["unpacked_size"] = json!(1)),
    ("an unpacked program", |m| {
        file(m)["unpacked_size"] = json!(1);
        file(m)["unpacked_sha256"] = json!("a".repeat(64));
    }),
    ("a packed image", |m| {
        let image = m["artifacts"]["images/runtime.tar.gz"].as_object_mut().unwrap();
        image.remove("unpacked_size");
        image.remove("unpacked_sha256");
    }),
    ("an image that unpacks to nothing", |m| {
        m["artifacts"]["images/runtime.tar.gz"]["unpacked_size"] = json!(0);
    }),
    ("an empty file", |m| file(m)["size"] = json!(0)),
    ("a negative size", |m| file(m)["size"] = json!(-1)),
    ("a size with a fraction", |m| file(m)["size"] = json!(1.5)),
    ("a size in text", |m| file(m)["size"] = json!("1")),
    ("17 GiB", |m| file(m)["size"] = json!(17_u64 << 30)),
    ("an installer of 65 MiB", |m| {
        m["artifacts"]["bin/oac-node-install"]["size"] = json!(65_u64 << 20);
    }),
    ("a digest in capitals", |m| {
        file(m)["sha256"] = json!("A".repeat(64))
    }),
    ("a digest with sha256:", |m| {
        file(m)["sha256"] = json!(format!("sha256:{}", "a".repeat(64)))
    }),
    ("another role", |m| file(m)["role"] = json!("runtime")),
    ("an unknown role", |m| file(m)["role"] = json!("helper")),
    ("another provider", |m| file(m)["provider"] = json!("docker")),
    ("an unknown provider", |m| file(m)["provider"] = json!("e2b")),
    ("a name without the commit", |m| {
        file(m)["filename"] = json!("oac-node")
    }),
    ("a name in a folder", |m| {
        file(m)["filename"] = json!(format!("a/{}", "a".repeat(40)))
    }),
    ("a hidden name", |m| {
        file(m)["filename"] = json!(format!(".{}", "a".repeat(40)))
    }),
    ("a name with a space", |m| {
        file(m)["filename"] = json!(format!("a {}", "a".repeat(40)))
    }),
    ("a name of 161 bytes", |m| {
        file(m)["filename"] = json!("a".repeat(161))
    }),
    ("an empty name", |m| file(m)["filename"] = json!("")),
    ("a name twice", |m| {
        file(m)["filename"] = m["artifacts"]["native/microsandbox/msb"]["filename"].clone();
    }),
    ("no node program", |m| remove(m, "bin/oac-node")),
    ("no installer", |m| remove(m, "bin/oac-node-install")),
    ("two firmwares", |m| {
        let mut second = m["artifacts"]["native/microsandbox/libkrunfw.so.5.6.1"].clone();
        second["filename"] = json!(format!("second-{}", "a".repeat(40)));
        m["artifacts"]["native/microsandbox/libkrunfw.so.5"] = second;
    }),
];

fn file(manifest: &mut Value) -> &mut Value {
    &mut manifest["artifacts"]["bin/oac-node"]
}

fn remove(manifest: &mut Value, key: &str) {
    manifest["artifacts"].as_object_mut().unwrap().remove(key);
}

/// Destinations that reach beyond a payload, or where no release puts a file.
const KEYS: &[&str] = &[
    "",
    "/",
    "/etc/passwd",
    "..",
    "../bin/oac-node",
    "bin/../identity.json",
    "bin//oac-node",
    "bin/oac-node/",
    "./bin/oac-node",
    "bin/.oac-node",
    "bin/oac node",
    "bin/oac-node\u{0}",
    "bin/oac-nodé",
    "bin\\oac-node",
    "bin/oac-node2",
    "bin",
    "native/microsandbox/libkrunfw.so.",
    "native/microsandbox/libkrunfw.so.5/../../../x",
    "native/microsandbox/libkrunfw.so.5/x",
    "provider.json",
    "registered.json",
    "state/node/identity.json",
    "state/node/generations/7.lease",
    "releases/x/manifest.json",
];

// inv: INV-R2
#[test]
fn a_manifest_with_one_thing_wrong_is_refused() {
    let (_, good) = good();
    judge(&good).unwrap();
    for (what, change) in REFUSED {
        let mut bad = good.clone();
        change(&mut bad);
        assert_ne!(bad, good, "{what}");
        let refused = judge(&bad);
        assert!(refused.is_err(), "{what}");
    }
    for key in KEYS {
        for remove in [true, false] {
            let mut bad = good.clone();
            let mut entry = bad["artifacts"]["runtime/seccomp.json"].clone();
            entry["filename"] = json!(format!("more-{}", "a".repeat(40)));
            let artifacts = bad["artifacts"].as_object_mut().unwrap();
            if remove {
                artifacts.remove("runtime/seccomp.json");
            }
            artifacts.insert((*key).to_owned(), entry);
            assert!(judge(&bad).is_err(), "{key:?}");
        }
    }
}

// inv: INV-R2
#[test]
fn every_member_of_a_manifest_is_needed_and_none_is_null_or_stands_twice() {
    let (made, good) = good();
    let mut places = vec![
        vec![],
        vec!["images"],
        vec!["images", "runtime"],
        vec!["artifacts"],
    ];
    let keys: Vec<String> = ROWS.iter().map(key).collect();
    places.extend(keys.iter().map(|key| vec!["artifacts", key.as_str()]));
    fn at<'v>(value: &'v mut Value, place: &[&str]) -> &'v mut Value {
        place.iter().fold(value, |value, member| &mut value[*member])
    }
    let mut seen = 0;
    for place in places {
        let members: Vec<String> = at(&mut good.clone(), &place)
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        for member in members {
            seen += 1;
            let mut null = good.clone();
            at(&mut null, &place)[&member] = Value::Null;
            assert!(judge(&null).is_err(), "{place:?} {member} null");
            let optional = place == ["artifacts"]
                && !["bin/oac-node", "bin/oac-node-install"].contains(&member.as_str());
            if !optional {
                let mut missing = good.clone();
                at(&mut missing, &place).as_object_mut().unwrap().remove(&member);
                assert!(judge(&missing).is_err(), "{place:?} {member} missing");
            }
            // Once more, with the same value, before it stands.
            let text = String::from_utf8(made.metadata.manifest_bytes().to_vec()).unwrap();
            let value = at(&mut good.clone(), &place)[&member].clone();
            let name = format!("\"{member}\":");
            let twice = match text.find(&name) {
                Some(found) => format!("{}{name}{value},{}", &text[..found], &text[found..]),
                None => panic!("{member} is nowhere"),
            };
            assert!(
                Manifest::parse(twice.as_bytes()).is_err(),
                "{place:?} {member} twice"
            );
        }
    }
    assert!(seen > 50, "{seen}");
}

// inv: INV-R2
#[test]
fn a_text_that_is_more_or_less_than_one_manifest_is_refused() {
    let (made, _) = good();
    let bytes = made.metadata.manifest_bytes();
    let mut trailing = bytes.to_vec();
    trailing.extend(b"{}");
    let mut large = bytes.to_vec();
    large.resize(limits::METADATA_BYTES + 1, b' ');
    for bad in [&bytes[..bytes.len() - 3], &trailing, &large, b"", b"[]", b"null"] {
        assert!(Manifest::parse(bad).is_err());
    }
    let mut whole = bytes.to_vec();
    whole.resize(limits::METADATA_BYTES, b' ');
    Manifest::parse(&whole).unwrap();
}

// inv: INV-R2
#[test]
fn sums_that_say_anything_but_the_manifests_digests_are_refused() {
    let (made, _) = good();
    let manifest = made.metadata.manifest_bytes();
    let sums = String::from_utf8(made.metadata.sums_bytes().to_vec()).unwrap();
    let parse = |sums: &str| Metadata::parse(manifest.to_vec(), sums.as_bytes().to_vec());
    parse(&sums).unwrap();
    let lines: Vec<&str> = sums.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let mut other = line.as_bytes().to_vec();
        other[0] = if other[0] == b'0' { b'1' } else { b'0' };
        let other = sums.replace(line, std::str::from_utf8(&other).unwrap());
        assert!(
            matches!(parse(&other), Err(MetadataError::Disagrees(_))),
            "{line}"
        );
        let without = sums.replace(&format!("{line}\n"), "");
        parse(&without).unwrap_err();
        let twice = sums.replace(line, &format!("{line}\n{line}"));
        parse(&twice).unwrap_err();
        if at > 0 {
            let mut turned = lines.clone();
            turned.swap(at - 1, at);
            parse(&(turned.join("\n") + "\n")).unwrap_err();
        }
    }
    let more = format!("{sums}{}  zzz-{}\n", "a".repeat(64), "a".repeat(40));
    for bad in [
        more.as_str(),
        &sums.replace("  ", " "),
        &sums.replace("  ", " *"),
        &sums.replace('\n', "\r\n"),
        sums.trim_end(),
        &format!("{sums}\n"),
        &sums.to_uppercase(),
        "",
    ] {
        assert!(parse(bad).is_err(), "{bad}");
    }
    // A manifest that was changed is refused with the old sums, and read with its own.
    let mut changed = manifest.to_vec();
    changed.push(b'\n');
    assert!(matches!(
        Metadata::parse(changed.clone(), sums.clone().into_bytes()),
        Err(MetadataError::Disagrees(_))
    ));
    Metadata::parse(changed.clone(), sums_of(&made, &changed)).unwrap();
}

fn specification(provider: ProviderKind, manifest: &Manifest) -> Specification {
    Specification {
        provider,
        resources: serde_json::from_value(json!({"cpus": 1, "memory_mib": 512})).unwrap(),
        runtime: manifest.runtime(provider),
        workspace: None,
    }
}

// req: P-119
#[test]
fn a_specifications_runtime_follows_from_the_manifest_and_only_it_matches() {
    let made = made(commit('a'), "good");
    let manifest = made.metadata.manifest();
    let docker = specification(ProviderKind::Docker, manifest);
    let artifacts = &docker.runtime.as_ref().unwrap().artifacts;
    assert_eq!(artifacts.image_id, Some(manifest.image().config_digest));
    assert_eq!(
        artifacts.image_manifest_digest,
        Some(manifest.image().manifest_digest)
    );
    let microsandbox = specification(ProviderKind::Microsandbox, manifest);
    let artifacts = &microsandbox.runtime.as_ref().unwrap().artifacts;
    assert_eq!(
        artifacts.microsandbox_ref,
        Some(format!("oac-runtime@{}", manifest.image().manifest_digest))
    );
    assert_eq!(
        artifacts.runtime_sha256,
        Some(Digest::of(made.bytes(&layout::MSB)))
    );
    assert_eq!(
        artifacts.firmware_sha256,
        Some(Digest::of(made.bytes(&layout::FIRMWARE)))
    );
    for good in [&docker, &microsandbox] {
        manifest.matches(good).unwrap();
        let text = serde_json::to_value(good).unwrap();
        for (member, value) in text["runtime"]["artifacts"].as_object().unwrap() {
            let mut other = text.clone();
            let turned = value.as_str().unwrap();
            let (start, end) = turned.split_at(turned.len() - 1);
            let end = if end == "0" { "1" } else { "0" };
            other["runtime"]["artifacts"][member] = json!(format!("{start}{end}"));
            let other: Specification = serde_json::from_value(other).unwrap();
            let Err(Mismatch::Differs(found)) = manifest.matches(&other) else {
                panic!("{member}");
            };
            assert_eq!(found, member);
        }
    }
    let other = oac_release::made::made(commit('b'), "good");
    assert_eq!(
        other.metadata.manifest().matches(&docker),
        Err(Mismatch::Differs("source_commit"))
    );
    let alone = made_of(
        commit('a'),
        &[layout::NODE, layout::INSTALLER, layout::IMAGE, layout::SECCOMP],
        |row| row.key.into(),
    );
    alone.metadata.manifest().matches(&docker).unwrap();
    assert!(alone.metadata.manifest().matches(&microsandbox).is_err());
    let mut none = docker.clone();
    none.runtime = None;
    assert_eq!(manifest.matches(&none), Err(Mismatch::NoRuntime));
}
