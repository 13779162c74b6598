//! `oac session cp` against a scripted Core: what a hostile sandbox or a bad connection makes of it.

use std::{os::unix::fs::PermissionsExt, path::Path};

use axum::{
    body::Body,
    http::{Method, header},
    response::Response,
};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    program::Oac,
    script::{Asked, SESSION, Script, answer, broken, refuse, session_path},
};

fn at(path: &str) -> String {
    format!("{SESSION}:{path}")
}

/// The value of `name` in a request's query.
fn query(asked: &Asked, name: &str) -> Option<String> {
    let query = asked.target.split('?').nth(1)?;
    let value = query
        .split('&')
        .find_map(|pair| pair.strip_prefix(&format!("{name}=")))?;
    Some(percent_decode_str(value).decode_utf8().unwrap().into_owned())
}

fn path(asked: &Asked) -> String {
    query(asked, "path").unwrap()
}

fn is_list(asked: &Asked) -> bool {
    asked.is(Method::GET, &session_path("/files/list"))
}

fn record(path: &str, kind: &str, size: u64, mode: u32) -> Value {
    json!({ "path": path, "type": kind, "size": size, "mode": mode, "modified_at": "2026-01-01T00:00:00Z" })
}

fn listing(entries: Vec<Value>) -> Response {
    answer(200, json!({ "data": entries, "next": null }))
}

fn written(asked: &Asked) -> Response {
    let sha256: String = Sha256::digest(&asked.body)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let file = record(&path(asked), "file", asked.body.len() as u64, 0o644);
    answer(201, json!({ "file": file, "sha256": sha256 }))
}

fn bytes(content: &'static [u8]) -> Response {
    Response::builder()
        .header(header::CONTENT_LENGTH, content.len())
        .header(header::ETAG, "\"one\"")
        .body(Body::from(content))
        .unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_folder_goes_in_with_modes_and_digests_and_what_stays_behind_is_named() {
    let script = Script::start(|asked, _| async move {
        if is_list(&asked) {
            return refuse(404, "not_found_error");
        }
        written(&asked)
    })
    .await;
    let oac = Oac::of(&script.url);
    let app = oac.path("app");
    std::fs::create_dir_all(app.join("deep/empty")).unwrap();
    std::fs::write(app.join("run.sh"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(app.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(app.join("deep/a b&c=d\ne"), "x").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", app.join("link")).unwrap();
    let said = oac
        .run(&["session", "cp", "app", &at("/workspace/app")])
        .await
        .expect(0);
    for named in [
        "link: a symbolic link",
        "deep/empty: an empty folder",
        "Copied 2 files, 11 bytes",
    ] {
        assert!(said.err.contains(named), "{named}: {said:?}");
    }
    let puts = script.until(Method::PUT, &session_path("/files"), 2).await;
    let one = |name: &str| puts.iter().find(|a| path(a).ends_with(name)).unwrap();
    let run = one("run.sh");
    assert_eq!(
        (&*path(run), &*run.body),
        ("/workspace/app/run.sh", &b"#!/bin/sh\n"[..])
    );
    assert_eq!(query(run, "mode").as_deref(), Some("755"));
    assert_eq!(run.header("content-length"), Some("10"));
    let digest = base64_simd::STANDARD.encode_to_string(Sha256::digest(b"#!/bin/sh\n"));
    assert_eq!(
        run.header("content-digest"),
        Some(format!("sha-256=:{digest}:").as_str())
    );
    assert_eq!(path(one("e")), "/workspace/app/deep/a b&c=d\ne");
}

#[tokio::test]
async fn a_name_that_is_not_utf_8_is_named_and_the_rest_is_copied() {
    use std::os::unix::ffi::OsStrExt;
    let script = Script::start(|asked, _| async move {
        if is_list(&asked) {
            return listing(Vec::new());
        }
        written(&asked)
    })
    .await;
    let oac = Oac::of(&script.url);
    std::fs::create_dir(oac.path("d")).unwrap();
    std::fs::write(oac.path("d").join(std::ffi::OsStr::from_bytes(b"bad\xff")), "x").unwrap();
    std::fs::write(oac.path("d/good"), "x").unwrap();
    let said = oac.run(&["session", "cp", "d", &at("")]).await.expect(1);
    assert!(
        said.err.contains("not UTF-8") && said.err.contains("Copied 1 file"),
        "{said:?}"
    );
    // Into a folder that exists: below it.
    let puts = script.until(Method::PUT, &session_path("/files"), 1).await;
    assert_eq!(path(&puts[0]), "d/good");
}

#[tokio::test]
async fn standard_input_becomes_a_file_and_a_file_standard_output() {
    let script = Script::start(|asked, _| async move {
        match asked.method {
            Method::PUT => written(&asked),
            _ => bytes(b"\xff\x00content"),
        }
    })
    .await;
    let oac = Oac::of(&script.url);
    oac.run_with(b"typed", &["session", "cp", "-", &at("f")])
        .await
        .expect(0);
    let puts = script.until(Method::PUT, &session_path("/files"), 1).await;
    assert_eq!(&*puts[0].body, b"typed");
    let output = oac
        .command(&["session", "cp", &at("f"), "-"])
        .output()
        .await
        .unwrap();
    assert_eq!(
        (output.status.code(), &*output.stdout),
        (Some(0), &b"\xff\x00content"[..])
    );
    for arguments in [
        ["session", "cp", "a", "b"],
        ["session", "cp", &at("a"), &at("b")],
        ["session", "cp", "-", &at("folder/")],
    ] {
        oac.run(&arguments).await.expect(2);
    }
}

#[tokio::test]
async fn a_download_that_breaks_goes_on_where_it_broke_if_the_file_is_the_same() {
    let script = Script::start(|asked, before| async move {
        match before {
            0 => {
                let mut response = broken("one ");
                let headers = response.headers_mut();
                headers.insert(header::CONTENT_LENGTH, "7".parse().unwrap());
                headers.insert(header::ETAG, "\"v\"".parse().unwrap());
                response
            }
            _ => {
                assert_eq!(
                    (asked.header("range"), asked.header("if-range")),
                    (Some("bytes=4-"), Some("\"v\""))
                );
                Response::builder().status(206).body(Body::from("two")).unwrap()
            }
        }
    })
    .await;
    let oac = Oac::of(&script.url);
    oac.run(&["session", "cp", &at("f"), "."]).await.expect(0);
    assert_eq!(std::fs::read_to_string(oac.path("f")).unwrap(), "one two");
}

#[tokio::test]
async fn a_broken_download_leaves_the_old_file_and_nothing_beside_it() {
    let digest = base64_simd::STANDARD.encode_to_string(Sha256::digest(b"other"));
    let script = Script::start(move |asked, _| {
        let digest = digest.clone();
        async move {
            if is_list(&asked) {
                return refuse(400, "invalid_request");
            }
            let mut response = if path(&asked).ends_with("short") {
                broken("half")
            } else {
                bytes(b"damaged")
            };
            let headers = response.headers_mut();
            headers.insert("repr-digest", format!("sha-256=:{digest}:").parse().unwrap());
            response
        }
    })
    .await;
    let oac = Oac::of(&script.url);
    std::fs::create_dir(oac.path("out")).unwrap();
    for name in ["short", "damaged"] {
        std::fs::write(oac.path("out").join(name), "old").unwrap();
        let said = oac.run(&["session", "cp", &at(name), "out/"]).await.expect(1);
        assert!(said.err.contains("copy it"), "{said:?}");
        assert_eq!(
            std::fs::read_to_string(oac.path("out").join(name)).unwrap(),
            "old"
        );
    }
    assert_eq!(names(&oac.path("out")), ["damaged", "short"]);
}

#[tokio::test]
async fn a_download_never_takes_the_place_of_a_device_a_pipe_or_a_socket() {
    use std::os::unix::fs::FileTypeExt;
    let script = Script::start(|asked, _| async move {
        match is_list(&asked) {
            true => listing(vec![record("d/socket", "file", 7, 0o644)]),
            false => bytes(b"content"),
        }
    })
    .await;
    let oac = Oac::of(&script.url);
    std::fs::create_dir(oac.path("d")).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(oac.path("d/socket")).unwrap();
    std::os::unix::fs::symlink("/dev/null", oac.path("link")).unwrap();
    for (from, to) in [("f", "d/socket"), ("f", "link"), ("d/.", "d")] {
        let said = oac.run(&["session", "cp", &at(from), to]).await.expect(1);
        assert!(said.err.contains("a device, a pipe or a socket"), "{said:?}");
    }
    let kind = |path: &str| std::fs::symlink_metadata(oac.path(path)).unwrap().file_type();
    assert!(kind("d/socket").is_socket() && kind("link").is_symlink());
    // A link to a file is one that the user made for a file.
    std::os::unix::fs::symlink("nowhere", oac.path("dangling")).unwrap();
    oac.run(&["session", "cp", &at("f"), "dangling"]).await.expect(0);
}

#[tokio::test]
async fn a_file_that_may_not_be_written_says_why_to_programs_too() {
    let script = Script::start(|asked, _| async move {
        match is_list(&asked) {
            true => listing(vec![record("d/f", "file", 7, 0o644)]),
            false => bytes(b"content"),
        }
    })
    .await;
    let oac = Oac::of(&script.url);
    // No file can be made there, whoever runs this.
    let said = oac
        .run(&["--json", "session", "cp", &at("d/."), "/proc"])
        .await
        .expect(1);
    let failed = &said.lines()[0];
    assert_eq!(failed["error"]["code"], "file_error", "{said:?}");
    assert!(
        failed["error"]["message"]
            .as_str()
            .unwrap()
            .contains("(No such file or directory"),
        "{said:?}"
    );
}

#[tokio::test]
async fn whatever_a_sandbox_lists_nothing_is_written_outside_the_destination() {
    let script = Script::start(|asked, _| async move {
        if !is_list(&asked) {
            return match &*path(&asked) {
                "d/." => refuse(409, "is_a_directory"),
                _ => bytes(b"hostile"),
            };
        }
        if path(&asked) != "d/." {
            return listing(vec![record("x", "file", 7, 0o644)]);
        }
        listing(vec![
            record("../escaped", "file", 7, 0o644),
            record("/etc/escaped", "file", 7, 0o644),
            record("..", "directory", 0, 0o755),
            record("d/..", "file", 7, 0o644),
            record("", "file", 7, 0o644),
            record(".", "directory", 0, 0o755),
            record("nul\0", "file", 7, 0o644),
            record("evil", "symlink", 7, 0o777),
            record("evil", "directory", 0, 0o755),
            record("mine", "directory", 0, 0o755),
            record("setuid", "file", 7, 0o6777),
            record("dev", "other", 0, 0o666),
        ])
    })
    .await;
    let oac = Oac::of(&script.url);
    let outside = oac.path("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::create_dir(oac.path("out")).unwrap();
    // A link that was here before must not lead the copy away either.
    std::os::unix::fs::symlink(&outside, oac.path("out/mine")).unwrap();
    let said = oac.run(&["session", "cp", &at("d/."), "out"]).await;
    assert_eq!(said.status, Some(1), "{said:?}");
    assert_eq!(
        names(oac.folder.path()),
        ["config.toml", "out", "outside"],
        "{said:?}"
    );
    assert_eq!(names(&outside), [""; 0]);
    assert_eq!(names(&oac.path("out")), ["escaped", "evil", "mine", "setuid"]);
    assert!(std::fs::symlink_metadata(oac.path("out/evil")).unwrap().is_dir());
    let mode = std::fs::metadata(oac.path("out/setuid"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7000, 0);
    assert!(!Path::new("/etc/escaped").exists());
}

#[tokio::test]
async fn an_endless_listing_ends() {
    let script = Script::start(|asked, _| async move {
        match is_list(&asked) {
            true => {
                let many: Vec<Value> = (0..20_000)
                    .map(|n| record(&format!("l{n}"), "symlink", 0, 0o777))
                    .collect();
                answer(200, json!({ "data": many, "next": "again" }))
            }
            false => refuse(400, "invalid_request"),
        }
    })
    .await;
    let oac = Oac::of(&script.url);
    let said = oac.run(&["session", "cp", &at("d"), "out"]).await.expect(1);
    assert!(said.err.contains("200000"), "{said:?}");
    assert!(said.err.lines().count() < 40, "a line per entry helps nobody");
}

#[tokio::test]
async fn a_transfer_that_core_did_not_begin_is_tried_again_and_a_lost_one_is_not() {
    let script = Script::start(|asked, before| async move {
        if is_list(&asked) {
            return refuse(404, "not_found_error");
        }
        match (&*path(&asked), before) {
            ("busy", 0) => {
                let mut response = refuse(429, "invalid_request");
                response
                    .headers_mut()
                    .insert(header::RETRY_AFTER, "0".parse().unwrap());
                response
            }
            ("lost", _) => broken(""),
            _ => written(&asked),
        }
    })
    .await;
    let oac = Oac::of(&script.url);
    std::fs::write(oac.path("f"), "x").unwrap();
    oac.run(&["session", "cp", "f", &at("busy")]).await.expect(0);
    let said = oac.run(&["session", "cp", "f", &at("lost")]).await.expect(1);
    assert!(
        said.err.contains("unknown") && said.err.lines().count() == 1,
        "{said:?}"
    );
    let lost = script.asked();
    let lost = lost
        .iter()
        .filter(|a| a.method == Method::PUT && path(a) == "lost");
    assert_eq!(lost.count(), 1);
}

#[tokio::test]
async fn a_download_that_is_asked_to_end_leaves_no_half_file() {
    let script = Script::start(|_, _| async {
        use futures_util::StreamExt;
        let begun = futures_util::stream::iter([Ok::<_, std::io::Error>("half")]);
        Response::builder()
            .header(header::CONTENT_LENGTH, 100)
            .body(Body::from_stream(begun.chain(futures_util::stream::pending())))
            .unwrap()
    })
    .await;
    let oac = Oac::of(&script.url);
    let out = oac.path("out");
    std::fs::create_dir(&out).unwrap();
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let mut child = oac.command(&["session", "cp", &at("f"), "out"]).spawn().unwrap();
        oac_testkit::wait::until(
            "a part of the file",
            std::time::Duration::from_secs(20),
            async || {
                let begun = std::fs::read_dir(&out).unwrap().next()?.unwrap();
                (begun.metadata().unwrap().len() == 4).then_some(())
            },
        )
        .await
        .unwrap();
        let pid = rustix::process::Pid::from_raw(child.id().unwrap() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        assert_eq!(child.wait().await.unwrap().code(), Some(130));
        assert_eq!(names(&out), [""; 0]);
    }
}

#[tokio::test]
async fn what_programs_read_of_a_copy_names_every_file() {
    let script = Script::start(|asked, _| async move {
        match is_list(&asked) {
            true => listing(vec![
                record("d/a", "file", 7, 0o644),
                record("d/l", "symlink", 0, 0o777),
            ]),
            false => bytes(b"content"),
        }
    })
    .await;
    let oac = Oac::of(&script.url);
    let said = oac
        .run(&["--json", "session", "cp", &at("d/"), "out"])
        .await
        .expect(0);
    let kinds: Vec<_> = said
        .lines()
        .iter()
        .map(|l| l["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds, ["skipped", "copied", "done"]);
    assert_eq!(
        said.lines()[2],
        json!({ "type": "done", "files": 1, "bytes": 7, "skipped": 1, "failed": 0 })
    );
}

#[tokio::test]
async fn without_a_connection_nothing_was_sent_and_the_rest_of_a_folder_is_not_tried() {
    let oac = Oac::of("http://127.0.0.1:1");
    std::fs::create_dir(oac.path("d")).unwrap();
    for n in 0..9 {
        std::fs::write(oac.path("d").join(n.to_string()), "x").unwrap();
    }
    let said = oac.run(&["session", "cp", "d", &at("")]).await.expect(1);
    assert!(
        said.err.contains("cannot reach Core") && !said.err.contains("unknown"),
        "{said:?}"
    );
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
}

#[tokio::test]
async fn a_file_over_the_bound_is_named_before_a_byte_of_it_is_sent() {
    let script = Script::start(|asked, _| async move { written(&asked) }).await;
    let oac = Oac::of(&script.url);
    std::fs::create_dir(oac.path("d")).unwrap();
    let large = std::fs::File::create(oac.path("d/large")).unwrap();
    large.set_len((512 << 20) + 1).unwrap();
    std::fs::write(oac.path("d/small"), "x").unwrap();
    let said = oac.run(&["session", "cp", "d", &at("")]).await.expect(1);
    assert!(
        said.err.contains("d/large is over 512 MiB") && said.err.contains("Copied 1 file, 1 bytes"),
        "{said:?}"
    );
    let puts: Vec<_> = script.asked().iter().map(path).collect();
    assert_eq!(puts, ["d/small"]);
}

#[tokio::test]
async fn a_copy_of_standard_input_that_stays_open_ends_when_it_is_asked_to() {
    use tokio::io::AsyncWriteExt;
    let script = Script::start(|asked, _| async move { written(&asked) }).await;
    let oac = Oac::of(&script.url);
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let mut child = oac
            .command(&["session", "cp", "-", &at("f")])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // More than a pipe holds: it reads by now.
        stdin.write_all(&vec![b'x'; 1 << 20]).await.unwrap();
        let pid = rustix::process::Pid::from_raw(child.id().unwrap() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        let status = tokio::time::timeout(std::time::Duration::from_secs(20), child.wait())
            .await
            .expect("it ends although its standard input does not");
        assert_eq!(status.unwrap().code(), Some(130));
        drop(stdin);
    }
    assert_eq!(script.asked().len(), 0);
}

#[tokio::test]
async fn a_file_on_standard_output_that_did_not_arrive_is_not_told_as_copied() {
    let script = Script::start(|_, _| async { bytes(b"content") }).await;
    let oac = Oac::of(&script.url);
    let arguments = ["session", "cp", &at("f"), "-"];
    let says = |stdout: std::process::Stdio| {
        let spawned = oac.command(&arguments).stdout(stdout).spawn().unwrap();
        async move {
            let output = spawned.wait_with_output().await.unwrap();
            (output.status.code(), String::from_utf8(output.stderr).unwrap())
        }
    };
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (status, err) = says(full.into()).await;
    assert_eq!(status, Some(1));
    assert!(err.contains("No space left") && !err.contains("Copied"), "{err}");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(says(writer.into()).await, (Some(0), String::new()));
}

#[tokio::test]
async fn a_downloaded_file_has_the_permission_bits_it_has_in_the_sandbox() {
    let script = Script::start(|_, _| async {
        let mut response = bytes(b"content");
        response
            .headers_mut()
            .insert("oac-file-mode", "4444".parse().unwrap());
        response
    })
    .await;
    let oac = Oac::of(&script.url);
    // Twice: what protects a file from writing does not keep a newer one from its place.
    for _ in 0..2 {
        oac.run(&["session", "cp", &at("f"), "f"]).await.expect(0);
        let mode = std::fs::metadata(oac.path("f")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o444);
    }
}

#[tokio::test]
async fn a_failure_names_what_lies_at_its_bottom_and_no_file_of_its_own() {
    let script = Script::start(|_, _| async { bytes(b"content") }).await;
    let oac = Oac::of(&script.url);
    let said = oac.run(&["session", "cp", &at("f"), "missing/f"]).await.expect(1);
    assert!(
        said.err.contains("missing/f") && said.err.contains("No such file"),
        "{said:?}"
    );
    assert!(!said.err.contains(".oac-"), "{said:?}");
    let said = Oac::of("http://127.0.0.1:1")
        .run(&["session", "list"])
        .await
        .expect(1);
    let line = said.err.trim_end();
    assert!(
        line.ends_with("(Connection refused (os error 111))") && !line.contains("client error"),
        "{said:?}"
    );
}
