//! Containers on the real engine, made as the Docker provider makes them (providers.md section 6), by its command line
//! tool.

use std::{
    io::{Read, Write},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use oac_model::{AllocationId, ImageDigest};
use oac_release::{
    SECCOMP_PROFILE,
    image::{BuildImage, BuiltImage, Standing, Variant, build_image},
};
use serde_json::Value;
use tempfile::TempDir;

use crate::acceptor::bootstrap;

const THROUGH_XTASK: &str = "run through cargo xtask test";

/// The engine that the test run names.
pub(crate) fn docker(args: &[&str]) -> Output {
    feed_docker(args, b"")
}

fn feed_docker(args: &[&str], stdin: &[u8]) -> Output {
    let engine = std::env::var("OAC_TEST_DOCKER")
        .unwrap_or_else(|_| panic!("OAC_TEST_DOCKER is not set: {THROUGH_XTASK}"));
    let mut child = Command::new("docker")
        .args(["-H", &engine])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("the docker command line tool is missing ({error}): {THROUGH_XTASK}"));
    child.stdin.take().unwrap().write_all(stdin).unwrap();
    child.wait_with_output().unwrap()
}

pub(crate) fn docker_ok(args: &[&str]) -> String {
    said(docker(args), args)
}

fn said(output: Output, args: &[&str]) -> String {
    assert!(
        output.status.success(),
        "docker {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The record of the image that the test run built.
pub(crate) struct RunImage {
    pub id: ImageDigest,
    pub manifest_digest: ImageDigest,
    pub archive: PathBuf,
}

pub(crate) fn run_image() -> RunImage {
    let path = std::env::var("OAC_TEST_RUNTIME_IMAGE")
        .unwrap_or_else(|_| panic!("OAC_TEST_RUNTIME_IMAGE is not set: {THROUGH_XTASK}"));
    let record: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let digest = |name: &str| record[name].as_str().unwrap().parse().unwrap();
    RunImage {
        id: digest("image_id"),
        manifest_digest: digest("image_manifest_digest"),
        archive: record["archive"].as_str().unwrap().into(),
    }
}

/// The static program as the run's image ships it: the last file of that name in the archive's layers.
fn shipped_program(archive: &Path, into: &Path) {
    let mut layers = tar::Archive::new(flate2::read::GzDecoder::new(
        std::fs::File::open(archive).unwrap(),
    ));
    for blob in layers.entries().unwrap() {
        let blob = blob.unwrap();
        if !blob.path().unwrap().starts_with("blobs") {
            continue;
        }
        let mut layer = tar::Archive::new(blob);
        // Blobs that are JSON are no archives, and have no entries.
        let Ok(entries) = layer.entries() else { continue };
        for entry in entries {
            let Ok(mut entry) = entry else { break };
            if entry
                .path()
                .is_ok_and(|path| path.ends_with("usr/local/bin/oac-runtime"))
            {
                let mut program = Vec::new();
                entry.read_to_end(&mut program).unwrap();
                std::fs::write(into, program).unwrap();
                return;
            }
        }
    }
    panic!("{} holds no oac-runtime", archive.display());
}

/// An image that holds the program and nothing else. Removed when dropped.
pub(crate) struct Scratch {
    pub built: BuiltImage,
    _folder: TempDir,
}

impl Scratch {
    pub(crate) fn load() -> Self {
        let folder = TempDir::new().unwrap();
        let program = folder.path().join("oac-runtime");
        shipped_program(&run_image().archive, &program);
        let random = AllocationId::random().as_uuid().simple().to_string();
        let built = build_image(&BuildImage {
            base: None,
            runtime: &program,
            variant: Variant::Minimal,
            // One of its own for each test, so that none removes another's.
            commit: format!("{random}{}", &random[..8]).parse().unwrap(),
            standing: Standing::WorkingTree,
            created: 1_767_225_600,
            compression: 0,
            out: &folder.path().join("image"),
        })
        .unwrap();
        docker_ok(&["load", "--quiet", "--input", built.archive.to_str().unwrap()]);
        Self {
            built,
            _folder: folder,
        }
    }

    pub(crate) fn id(&self) -> String {
        self.built.config_digest.to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        docker(&["image", "rm", &self.built.tag]);
    }
}

/// A bridge network of its own. Removed when dropped; what is on it goes first.
pub(crate) struct Network {
    pub name: String,
    pub gateway: Ipv4Addr,
}

impl Network {
    pub(crate) fn new() -> Self {
        let name = format!("oac-test-{}", AllocationId::random());
        let option = "com.docker.network.bridge.enable_icc=false";
        docker_ok(&["network", "create", "--driver", "bridge", "--opt", option, &name]);
        let format = "{{(index .IPAM.Config 0).Gateway}}";
        let gateway = docker_ok(&["network", "inspect", "--format", format, &name]);
        Self {
            gateway: gateway.parse().unwrap(),
            name,
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        docker(&["network", "rm", &self.name]);
    }
}

#[derive(Clone)]
enum Content {
    Folder,
    File(String),
    Link(&'static str),
}

/// A sandbox as the provider makes it. Removed with its volumes when dropped.
pub(crate) struct Container {
    pub name: String,
}

impl Container {
    /// Makes and starts it; `more` are further options of `docker create`.
    pub(crate) fn start(image: &str, network: &Network, link_host: &str, more: &[&str]) -> Self {
        Self::create(image, network, link_host, more, &[])
    }

    /// One whose Turns are kept on a disk of `size`, mounted at `/small`.
    pub(crate) fn start_with_small_disk(image: &str, network: &Network, link_host: &str, size: &str) -> Self {
        let disk = format!("/small:rw,size={size},uid=1000,gid=1000,mode=0700");
        let turns = ("/home", "runtime/turns", Content::Link("/small"));
        Self::create(image, network, link_host, &["--tmpfs", &disk], &[turns])
    }

    /// One whose image has these root certificates where a distribution may keep them.
    pub(crate) fn start_with_roots(
        image: &str,
        network: &Network,
        link_host: &str,
        more: &[&str],
        roots: &str,
    ) -> Self {
        let more = [more, &["--mount", "type=volume,target=/etc/ssl"]].concat();
        let roots = ("/etc/ssl", "cert.pem", Content::File(roots.to_owned()));
        Self::create(image, network, link_host, &more, &[roots])
    }

    fn create(
        image: &str,
        network: &Network,
        link_host: &str,
        more: &[&str],
        files: &[(&str, &str, Content)],
    ) -> Self {
        let name = format!("oac-test-{}", AllocationId::random());
        let container = Self { name };
        let name = &container.name;
        let folder = TempDir::new().unwrap();
        let profile = folder.path().join("seccomp.json");
        std::fs::write(&profile, SECCOMP_PROFILE).unwrap();
        let seccomp = format!("seccomp={}", profile.display());
        let home = format!("type=volume,source={name}-home,target=/home");
        let environment = format!("type=volume,source={name}-environment,target=/environment");
        let options = [
            "create",
            "--name",
            name,
            "--user",
            "1000:1000",
            "--workdir",
            "/environment/workspace",
            "--entrypoint",
            "/usr/local/bin/oac-runtime",
            "--read-only",
            "--cap-drop",
            "ALL",
            "--security-opt",
            "no-new-privileges",
            "--security-opt",
            &seccomp,
            "--network",
            &network.name,
            "--pids-limit",
            "128",
            "--memory",
            "512m",
            "--memory-swap",
            "512m",
            "--cpus",
            "1",
            "--tmpfs",
            "/tmp:rw,nosuid,nodev,size=128m",
            "--mount",
            &home,
            "--mount",
            &environment,
            "--ipc",
            "private",
            "--restart",
            "unless-stopped",
        ];
        let last = [image, "--bootstrap-file", "/home/runtime/bootstrap.json"];
        docker_ok(&[&options[..], more, &last[..]].concat());
        let bootstrap = Content::File(bootstrap(link_host));
        container.upload(
            "/home",
            &[
                ("runtime", Content::Folder),
                ("runtime/bootstrap.json", bootstrap),
            ],
        );
        for (target, path, content) in files {
            container.upload(target, &[(path, content.clone())]);
        }
        let folders = ["workspace", "initialization", "packages"].map(|name| (name, Content::Folder));
        container.upload("/environment", &folders);
        docker_ok(&["start", name]);
        container
    }

    fn upload(&self, target: &str, entries: &[(&str, Content)]) {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, content) in entries {
            let mut header = tar::Header::new_ustar();
            header.set_uid(1000);
            header.set_gid(1000);
            header.set_size(0);
            header.set_mode(0o700);
            match content {
                Content::Folder => {
                    header.set_entry_type(tar::EntryType::Directory);
                    archive.append_data(&mut header, path, std::io::empty()).unwrap();
                }
                Content::File(text) => {
                    header.set_mode(0o600);
                    header.set_size(text.len() as u64);
                    archive.append_data(&mut header, path, text.as_bytes()).unwrap();
                }
                Content::Link(to) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    archive.append_link(&mut header, path, to).unwrap();
                }
            }
        }
        let args = ["cp", "-", &format!("{}:{target}", self.name)];
        said(feed_docker(&args, &archive.into_inner().unwrap()), &args);
    }

    pub(crate) fn inspect(&self, format: &str) -> String {
        docker_ok(&["inspect", "--format", format, &self.name])
    }

    pub(crate) fn logs(&self) -> String {
        let output = docker(&["logs", &self.name]);
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        docker(&["rm", "--force", "--volumes", &self.name]);
        for volume in ["home", "environment"] {
            docker(&["volume", "rm", "--force", &format!("{}-{volume}", self.name)]);
        }
    }
}
