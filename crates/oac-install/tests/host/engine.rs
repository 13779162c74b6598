//! Docker as an installer meets it: the real engine, with an image made here, and one that says what it is told to.

use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader, Write},
    os::unix::{
        fs::{PermissionsExt, chown},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    process::Command,
};

use oac_model::{Digest, ImageDigest};
use serde_json::{Value, json};

/// The engine's that `cargo xtask test` names.
pub(crate) fn real_socket() -> String {
    let Ok(host) = std::env::var("OAC_TEST_DOCKER") else {
        panic!("OAC_TEST_DOCKER is not set: run through cargo xtask test");
    };
    host.trim_start_matches("unix://").to_owned()
}

/// A whole image of one small layer that any engine loads: the archive, and the digest of its configuration.
pub(crate) fn image(salt: &str) -> (Vec<u8>, ImageDigest) {
    image_of(salt, None)
}

/// Likewise; with a tag it is one that Core publishes.
pub(crate) fn image_of(salt: &str, tag: Option<String>) -> (Vec<u8>, ImageDigest) {
    let tar = |files: &[(&str, &[u8])]| {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, bytes) in files {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, name, *bytes).unwrap();
        }
        tar.into_inner().unwrap()
    };
    let layer = tar(&[("salt", salt.as_bytes())]);
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", Digest::of(&layer))] },
    })
    .to_string();
    let digest = Digest::of(&config).to_string();
    let name = format!("blobs/sha256/{digest}");
    let tags = tag.map(|tag| vec![tag]);
    let manifest = json!([{ "Config": name, "RepoTags": tags, "Layers": ["layer.tar"] }]).to_string();
    let index = json!({ "manifests": [{ "digest": ImageDigest::of("manifest") }] }).to_string();
    let archive = tar(&[
        (&name, config.as_bytes()),
        ("layer.tar", &layer),
        ("manifest.json", manifest.as_bytes()),
        ("index.json", index.as_bytes()),
    ]);
    (archive, format!("sha256:{digest}").parse().unwrap())
}

pub(crate) fn docker(arguments: &[&str]) -> String {
    let host = format!("unix://{}", real_socket());
    let output = Command::new("docker")
        .args(["-H", &host])
        .args(arguments)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Removes what a test left in the engine.
pub(crate) struct Leftovers(pub(crate) String, pub(crate) String);

impl Drop for Leftovers {
    fn drop(&mut self) {
        docker(&["network", "rm", &format!("oac-node-{}", self.0)]);
        docker(&["image", "rm", "-f", &self.1]);
    }
}

/// An engine that answers `/info` as it is told and every other question with 404, and with the member `message` of that.
pub(crate) struct Scripted {
    pub(crate) socket: PathBuf,
}

impl Scripted {
    pub(crate) fn start(folder: &Path, group: u32, api: &str, info: &Value) -> Self {
        let socket = folder.join("docker.sock");
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        chown(&socket, Some(0), Some(group)).unwrap();
        fs::set_permissions(&socket, Permissions::from_mode(0o660)).unwrap();
        let refusal = json!({ "message": info.get("message").unwrap_or(&json!("none")) }).to_string();
        let (api, info) = (api.to_owned(), info.to_string());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (api, info, refusal) = (api.clone(), info.clone(), refusal.clone());
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    let mut out = stream;
                    loop {
                        let mut head = String::new();
                        if reader.read_line(&mut head).unwrap_or(0) == 0 {
                            return;
                        }
                        let mut line = String::new();
                        while reader.read_line(&mut line).unwrap_or(0) > 2 {
                            line.clear();
                        }
                        let (status, body) = match head.split(' ').nth(1) {
                            Some("/_ping") => ("200 OK", "OK"),
                            Some(path) if path.ends_with("/info") => ("200 OK", info.as_str()),
                            _ => ("404 Not Found", refusal.as_str()),
                        };
                        let _ = write!(
                            out,
                            "HTTP/1.1 {status}\r\nApi-Version: {api}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                            body.len()
                        );
                    }
                });
            }
        });
        Self { socket }
    }
}
