//! What a host lacks: a usable engine or device, room, a way to Core.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
};

use serde_json::json;

use crate::{
    engine::{Scripted, docker, real_socket},
    refusing::{refuses, refuses_with},
    scratch::Ran,
    world::{TOKEN, World, parsed},
};

fn scripted(world: &mut World, api: &str, info: serde_json::Value) {
    let group = fs::metadata(real_socket()).unwrap().gid();
    let engine = Scripted::start(world.host.root(), group, api, &info);
    world.host.socket = engine.socket;
}

fn info() -> serde_json::Value {
    json!({
        "ID": "engine", "MemoryLimit": true, "CpuCfsQuota": true, "NCPU": 4, "MemTotal": 8_589_934_592u64,
        "OSType": "linux", "Architecture": "x86_64", "DockerRootDir": "/", "SecurityOptions": [],
    })
}

// req: G-031, G-032, G-033, G-036
#[test]
fn docker_an_engine_that_cannot_carry_sandboxes_is_told_so_and_nothing_changes() {
    refuses("Docker is not running: start it, then retry.", |world| {
        world.host.socket = world.host.path("docker.sock");
    });
    // Stopped, its socket left behind.
    refuses("Docker is not running: start it, then retry.", |world| {
        let socket = world.host.path("docker.sock");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let docker = fs::metadata(real_socket()).unwrap().gid();
        std::os::unix::fs::chown(&socket, Some(0), Some(docker)).unwrap();
        fs::set_permissions(&socket, Permissions::from_mode(0o660)).unwrap();
        world.host.socket = socket;
    });
    for (owner, group) in [(0, 36), (0, 0), (1000, 0)] {
        refuses(
            "PREFIX/docker.sock must be root:docker with mode 0660.",
            |world| {
                scripted(world, "1.44", info());
                let docker = fs::metadata(real_socket()).unwrap().gid();
                let group = if owner == 0 { group } else { docker };
                std::os::unix::fs::chown(&world.host.socket, Some(owner), Some(group)).unwrap();
            },
        );
    }
    refuses(
        "PREFIX/docker.sock must be root:docker with mode 0660.",
        |world| {
            scripted(world, "1.44", info());
            fs::set_permissions(&world.host.socket, Permissions::from_mode(0o666)).unwrap();
        },
    );
    refuses(
        "Docker is too old: Engine API 1.41 or later is needed.",
        |world| scripted(world, "1.40", info()),
    );
    let with = |member: &'static str, value: serde_json::Value| {
        move |world: &mut World| {
            let mut info = info();
            info[member] = value;
            scripted(world, "1.44", info);
        }
    };
    refuses(
        "Docker must not run rootless.",
        with("SecurityOptions", json!(["name=seccomp", "name=rootless"])),
    );
    refuses(
        "This host is not Linux amd64.",
        with("Architecture", json!("aarch64")),
    );
    let limits = "Docker cannot limit CPU and memory here: enable cgroup v2.";
    refuses(limits, with("MemoryLimit", json!(false)));
    refuses(limits, with("CpuCfsQuota", json!(false)));
    let small = "This host is too small: one sandbox needs 1 CPUs and 512 MiB, it has 1 and 511.";
    refuses(small, |world| {
        let mut info = info();
        (info["NCPU"], info["MemTotal"]) = (json!(1), json!(535_822_336));
        scripted(world, "1.44", info);
    });
    refuses(
        "Docker network oac-node-<id> exists: sudo docker network rm oac-node-<id>.",
        |world| {
            docker(&["network", "create", &world.network()]);
        },
    );
}

/// A deployment on microsandbox.
fn on_microsandbox(world: &mut World) {
    let commit = world.commit;
    let digest = "a".repeat(64);
    let specification = json!({
        "provider": "microsandbox",
        "resources": { "cpus": 1, "memory_mib": 512, "root_disk_mib": 1024, "environment_disk_mib": 1024 },
        "runtime": { "source_commit": commit, "artifacts": {
            "microsandbox_ref": format!("oac-runtime@sha256:{digest}"), "runtime_sha256": digest,
            "firmware_sha256": digest,
        } },
    });
    let digest = parsed(&specification).digest();
    world.core.set(|state| {
        let known = &mut state.configuration;
        known["provider"] = json!("microsandbox");
        known["specification"] = specification;
        known["specification_digest"] = json!(digest);
    });
}

fn run_on_microsandbox(world: &World, more: &[&str]) -> Ran {
    let words = world.command().into_iter();
    let words = words.map(|word| {
        if word == "docker" {
            "microsandbox".to_owned()
        } else {
            word
        }
    });
    let more = more.iter().map(|word| (*word).to_owned());
    world.host.run(&words.chain(more).collect::<Vec<_>>(), TOKEN)
}

/// The device, of this group and mode.
fn kvm(world: &World, group: u32, mode: u32) {
    let path = world.host.path("dev/kvm");
    let made = std::process::Command::new("mknod")
        .arg(&path)
        .args(["c", "10", "232"])
        .status();
    assert!(made.unwrap().success());
    std::os::unix::fs::chown(&path, Some(0), Some(group)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn docker_a_host_that_cannot_run_microvms_is_told_so_and_nothing_changes() {
    let told = |hint: &str, change: fn(&mut World), more: &[&str]| {
        refuses_with(
            hint,
            |world| {
                on_microsandbox(world);
                change(world);
            },
            |world| {
                let home = world.host.path("var/lib/oac-node").display().to_string();
                let more: Vec<String> = more.iter().map(|word| word.replace("HOME", &home)).collect();
                let more: Vec<&str> = more.iter().map(String::as_str).collect();
                run_on_microsandbox(world, &more)
            },
        );
    };
    let missing = "/dev/kvm is missing: enable hardware or nested virtualization.";
    told(missing, |_| (), &[]);
    // A file of that name is no device.
    told(missing, |world| world.host.write("dev/kvm", ""), &[]);
    let access = "/dev/kvm must belong to group kvm with read and write access.";
    told(access, |world| kvm(world, 36, 0o600), &[]);
    told(access, |world| kvm(world, 36, 0o640), &[]);
    told(access, |world| kvm(world, 44, 0o660), &[]);
    let whole = |world: &mut World| {
        kvm(world, 36, 0o660);
        world.host.write("lib64/ld-linux-x86-64.so.2", "");
    };
    told(
        "microsandbox needs glibc on this host.",
        |world| kvm(world, 44, 0o666),
        &[],
    );
    told(
        "--checkpoint-root must not be below PREFIX/var/lib/oac-node: use a folder of its own.",
        whole,
        &["--checkpoint-root", "HOME/store"],
    );
    told(
        "This installer cannot prepare microsandbox nodes yet: use a newer release.",
        whole,
        &[],
    );
}

// req: G-037, G-040
#[test]
fn docker_a_disk_without_room_for_the_image_is_told_before_anything_is_downloaded() {
    let mut world = World::new();
    let lib = world.host.path("var/lib");
    let small = Tmpfs::at(&lib, "64m");
    let real = world.host.socket.clone();
    let says = |world: &World, needed: &str| {
        let hint = format!(
            "Not enough free disk: {} needs {needed} GB, 0.0 GB are free.",
            lib.display()
        );
        world.install().stopped(&hint);
        assert_eq!(world.core.state.lock().unwrap().sent, 0);
        assert_eq!(fs::read_dir(&lib).unwrap().count(), 0);
    };
    // Archive and unpacked copy here, the image where the engine keeps it.
    says(&world, "1.5");
    let mut one_disk = info();
    one_disk["DockerRootDir"] = json!(lib);
    scripted(&mut world, "1.44", one_disk);
    says(&world, "3.0");
    // An image that was loaded by hand needs no room but the programs'.
    world.host.socket = real;
    let archive = world.host.path("image.tar");
    fs::write(&archive, &world.archive).unwrap();
    docker(&["load", "-i", archive.to_str().unwrap()]);
    says(&world, "0.2");
    drop(small);
}

/// A small file system until this goes.
struct Tmpfs(std::path::PathBuf);

impl Tmpfs {
    fn at(path: &std::path::Path, size: &str) -> Self {
        let size = format!("mode=755,size={size}");
        let mut command = std::process::Command::new("mount");
        let mounted = command.args(["-t", "tmpfs", "-o", &size, "none"]).arg(path);
        assert!(mounted.status().unwrap().success());
        Self(path.to_owned())
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

// req: G-043
#[test]
fn docker_a_host_that_reaches_core_or_its_releases_not_is_refused() {
    let unreachable = "Core at http://127.0.0.1:1 cannot be reached: check address, network and proxy.";
    refuses_with(
        unreachable,
        |_| (),
        |world| world.host.run(&world.command_for("http://127.0.0.1:1"), TOKEN),
    );
    let world = World::new();
    let elsewhere = ["--source-url".to_owned(), "http://127.0.0.1:1".to_owned()];
    let ran = world
        .host
        .run(&[world.command(), elsewhere.to_vec()].concat(), TOKEN);
    ran.stopped(
        "SHA256SUMS could not be downloaded: check address, network and proxy, then run the command again.",
    );
    assert!(!world.core.is_enrolled() && !world.host.path(&world.inner("installation.json")).exists());
}

// req: G-256
#[test]
fn docker_a_rerun_names_what_the_host_lacks_before_what_changed_in_core() {
    let mut world = World::new();
    world.install().ready();
    world
        .core
        .set(|state| state.configuration["generation"] = json!(2));
    let before = world.host.picture();
    let real = std::mem::replace(&mut world.host.socket, "/nonexistent".into());
    world
        .host
        .run(&world.command(), "used")
        .stopped("Docker is not running: start it, then retry.");
    world.host.socket = real;
    world.host.write("sys/fs/selinux/enforce", "1");
    world
        .host
        .run(&world.command(), "used")
        .stopped("SELinux is enforcing: nodes need it permissive or disabled.");
    fs::remove_dir_all(world.host.path("sys")).unwrap();
    // With the host in order it is Core's turn.
    let ran = world.host.run(&world.command(), "used");
    assert!(
        ran.hint()
            .starts_with("The sandbox configuration changed after this node registered"),
        "{}",
        ran.hint()
    );
    assert_eq!(world.host.picture(), before);
}

// inv: INV-I14
#[test]
fn docker_what_others_say_reaches_no_log_with_a_control_character() {
    let mut world = World::new();
    let mut engine = info();
    engine["message"] = json!("\u{1b}[31mred\u{7}\r\u{9b}2J");
    scripted(&mut world, "1.44", engine);
    let shown = |ran: &Ran, has: &str| {
        assert!(ran.error.contains(has), "{}", ran.error);
        for said in [&ran.out, &ran.error] {
            let is_plain = |c: char| !c.is_control() || c == '\n' || c == '\t';
            assert!(said.chars().all(is_plain), "{said:?}");
        }
    };
    // From the engine by way of the part as oac-node.
    shown(&world.install(), "The Runtime image could not be imported: ");
    // And from a tool that root ran.
    let world = World::new();
    let useradd = world.host.path("tools/useradd");
    fs::write(&useradd, "#!/bin/sh\nprintf '\\033[31mno\\007\\r' >&2; exit 1\n").unwrap();
    shown(
        &world.install(),
        "useradd --system failed: ?[31mno?: mend that, then run the command again.",
    );
}
