//! The test image: one static program, built here and imported.

use std::{fs::File, path::PathBuf, process::Command};

use http::Method;
use oac_model::{Digest, ImageDigest};

use crate::http::call;

const SOURCE: &str = include_str!("sandbox_tool.rs");
pub(crate) const TOOL: &str = "/usr/local/bin/tool";

/// What the image ships beside the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    Plain,
    /// The directories of `/environment`, and the label that says so.
    ShipsEnvironment,
}

/// Holds a lock between the test processes.
struct Lock(#[allow(dead_code, reason = "closing the file releases the lock")] File);

fn lock(name: &str) -> Lock {
    let file = File::create(directory().join(name)).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    Lock(file)
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// The static program on this machine.
pub(crate) fn tool() -> PathBuf {
    let name = format!("sandbox-tool-{}", &Digest::of(SOURCE).to_string()[..16]);
    let program = directory().join(&name);
    let _lock = lock("sandbox-tool.lock");
    if !program.exists() {
        let source = directory().join(format!("{name}.rs"));
        let partial = directory().join(format!("{name}.partial"));
        std::fs::write(&source, SOURCE).unwrap();
        let status = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
            .args([
                "--edition",
                "2024",
                "-O",
                "-C",
                "target-feature=+crt-static",
                "-C",
                "strip=symbols",
                "-o",
            ])
            .args([&partial, &source])
            .status()
            .expect("rustc builds the test image's program");
        assert!(status.success(), "the test image's program builds");
        std::fs::rename(&partial, &program).unwrap();
    }
    program
}

/// The image in the real engine, imported where it is missing. It stays for the next test; its tag names it.
pub(crate) async fn ensure(socket: &std::path::Path, variant: Variant) -> ImageDigest {
    let program = std::fs::read(tool()).unwrap();
    let (suffix, label) = match variant {
        Variant::Plain => ("", ""),
        Variant::ShipsEnvironment => ("-layout", "&changes=LABEL%20io.oac.layout%3D1"),
    };
    let tag = format!("{}{suffix}", &Digest::of(&program).to_string()[..16]);
    let _lock = lock("sandbox-image.lock");
    let path = format!("/images/oac-test-docker:{tag}/json");
    let (status, image) = call(socket, Method::GET, &path, None).await;
    let image = if status.is_success() {
        image
    } else {
        let query =
            format!("fromSrc=-&repo=oac-test-docker&tag={tag}&changes=LABEL%20io.oac.test%3Ddocker{label}");
        let request = http::Request::post(format!("/v1.41/images/create?{query}"))
            .header("host", "docker")
            .body(http_body_util::Full::new(archive(&program, variant).into()))
            .unwrap();
        let response = crate::http::send(socket, request).await.unwrap();
        assert!(response.status().is_success(), "{}", response.status());
        crate::http::collect(response.into_body()).await;
        call(socket, Method::GET, &path, None).await.1
    };
    image["Id"].as_str().unwrap().parse().unwrap()
}

/// A root file system as the Runtime image has it, as far as the provider relies on it.
fn archive(program: &[u8], variant: Variant) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let header = |kind, mode, size| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header
    };
    let directories = [
        "usr",
        "usr/local",
        "usr/local/bin",
        "home",
        "environment",
        "tmp",
        "etc",
        "proc",
        "sys",
        "dev",
    ];
    for directory in directories {
        let mut h = header(tar::EntryType::Directory, 0o755, 0);
        builder.append_data(&mut h, directory, &[][..]).unwrap();
    }
    if variant == Variant::ShipsEnvironment {
        for directory in ["workspace", "initialization", "packages"] {
            let mut h = header(tar::EntryType::Directory, 0o700, 0);
            h.set_uid(1000);
            h.set_gid(1000);
            let path = format!("environment/{directory}");
            builder.append_data(&mut h, path, &[][..]).unwrap();
        }
    }
    let mut h = header(tar::EntryType::Symlink, 0o777, 0);
    builder
        .append_link(&mut h, "workspace", "/environment/workspace")
        .unwrap();
    for path in ["usr/local/bin/oac-runtime", &TOOL[1..]] {
        let mut h = header(tar::EntryType::Regular, 0o755, program.len() as u64);
        builder.append_data(&mut h, path, program).unwrap();
    }
    builder.into_inner().unwrap()
}
