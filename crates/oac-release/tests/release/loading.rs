//! The image's archive in real stores: of the Docker Engine, of a containerd of this test's own, of microsandbox.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use oac_model::SourceCommit;
use oac_records::Directory;
use oac_release::{
    image::{BuildImage, BuiltImage, Standing, Variant, build_image},
    manifest::Unpacked,
    payload,
};

fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run through cargo xtask test"))
}

/// What a program prints, which succeeds.
fn said(program: impl AsRef<OsStr>, arguments: &[&str], environment: &[(&str, &Path)]) -> String {
    let output = Command::new(&program)
        .args(arguments)
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A containerd whose files are all below one folder; it ends with this.
struct Containerd {
    child: Child,
    socket: String,
}

impl Containerd {
    fn start(folder: &Path) -> Self {
        let at = |name: &str| folder.join(name).display().to_string();
        let socket = at("socket");
        let (uid, gid) = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        let config = format!(
            "version = 2\nroot = {:?}\nstate = {:?}\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n\
             [grpc]\naddress = {socket:?}\nuid = {uid}\ngid = {gid}\n\
             [plugins.\"io.containerd.internal.v1.opt\"]\npath = {:?}\n",
            at("root"),
            at("state"),
            at("opt")
        );
        let file = folder.join("containerd.toml");
        std::fs::write(&file, config).unwrap();
        let mut child = Command::new("containerd")
            .arg("--config")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let started = Self { child, socket };
        let mut log = String::new();
        loop {
            let line = lines.next().map(Result::unwrap);
            let line = line.unwrap_or_else(|| panic!("containerd ended at its start:\n{log}"));
            if line.contains("successfully booted") {
                break;
            }
            log.push_str(&line);
            log.push('\n');
        }
        // What it says later is read too, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        started
    }

    fn ctr(&self, arguments: &[&str]) -> String {
        said("ctr", &[&["--address", &self.socket], arguments].concat(), &[])
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn build(folder: &Path) -> BuiltImage {
    let runtime = folder.join("oac-runtime");
    std::fs::write(&runtime, "not a program").unwrap();
    // Of no commit that anybody has an image of.
    let commit: SourceCommit = format!("{:040x}", 0xdead_0000_0000_u64 + u64::from(std::process::id()))
        .parse()
        .unwrap();
    let built = build_image(&BuildImage {
        base: None,
        runtime: &runtime,
        variant: Variant::Full,
        commit,
        standing: Standing::Commit,
        created: 1_767_225_600,
        compression: 6,
        out: folder,
    })
    .unwrap();
    let name = format!("oac-{commit}-linux-amd64-runtime.tar.gz");
    assert_eq!(built.archive.file_name().unwrap().to_str(), Some(name.as_str()));
    built
}

/// The archive as stores take it that unpack nothing themselves.
fn unpack(built: &BuiltImage, folder: &Path) -> String {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&built.archive, mode).unwrap();
    let unpacked = Unpacked {
        size_bytes: built.unpacked_size_bytes,
        sha256: built.unpacked_sha256.parse().unwrap(),
    };
    let name = built.archive.file_name().unwrap().to_str().unwrap();
    payload::unpack(&Directory::open(folder).unwrap(), name, "runtime.tar", unpacked).unwrap();
    folder.join("runtime.tar").display().to_string()
}

// req: G-155
// inv: INV-R14
#[test]
fn docker_the_archive_loads_in_every_store_and_each_knows_it_by_a_digest_that_the_manifest_names() {
    let temp = tempfile::tempdir().unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(temp.path(), private).unwrap();
    let built = build(temp.path());
    let archive = built.archive.to_str().unwrap();
    let digest = built.manifest_digest.to_string();

    // Docker's classic store, or its containerd store where the engine has that one.
    let engine = setting("OAC_TEST_DOCKER");
    let docker = |arguments: &[&str]| said("docker", &[&["-H", &engine], arguments].concat(), &[]);
    docker(&["load", "-i", archive]);
    let id = docker(&["image", "inspect", "--format", "{{.Id}}", &built.tag]);
    docker(&["image", "rm", &built.tag]);
    let known = [built.config_digest.to_string(), digest.clone()];
    assert!(known.contains(&id), "{id}: {known:?}");

    // containerd's.
    let tar = unpack(&built, temp.path());
    let containerd = Containerd::start(temp.path());
    containerd.ctr(&["images", "import", "--no-unpack", &tar]);
    let listed = containerd.ctr(&["images", "ls"]);
    let name = format!("docker.io/library/{}", built.tag);
    let row = listed
        .lines()
        .find(|line| line.starts_with(&name))
        .unwrap_or_else(|| panic!("{listed}"));
    assert!(row.split_whitespace().any(|word| word == digest), "{row}");
    // Each blob is there, of its digest and size.
    let checked = containerd.ctr(&["images", "check"]);
    let row = checked
        .lines()
        .find(|line| line.starts_with(&name))
        .unwrap_or_else(|| panic!("{checked}"));
    assert!(row.contains("complete"), "{row}");

    // microsandbox's, which is asked for the image by the name that a specification selects it by.
    let msb = setting("OAC_TEST_MSB");
    let home = temp.path().join("microsandbox");
    std::fs::create_dir(&home).unwrap();
    let reference = format!("oac-runtime@{digest}");
    let environment = [("MSB_HOME", home.as_path()), ("HOME", home.as_path())];
    said(
        &msb,
        &["load", "--quiet", "--input", &tar, "--tag", &reference],
        &environment,
    );
    let inspected = said(
        &msb,
        &["image", "inspect", "--format", "json", &reference],
        &environment,
    );
    let inspected: serde_json::Value = serde_json::from_str(&inspected).unwrap();
    assert_eq!(inspected["digest"], digest);
    assert_eq!(inspected["config"]["digest"], built.config_digest.to_string());
}
