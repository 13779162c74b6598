//! Uninstalls that cannot be whole at once, or that meet what is not the installation's.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::json;

use crate::{
    core::error,
    engine::Scripted,
    interrupted::rest,
    world::{TOKEN, World},
};

const ACCOUNT: u32 = 65532;
const GROUP: u32 = 64999;

/// As the account would have made it.
fn owns(path: &Path) {
    let owned = Command::new("chown")
        .args(["-R", &format!("{ACCOUNT}:{GROUP}")])
        .arg(path)
        .status()
        .unwrap();
    assert!(owned.success());
}

/// A microsandbox store of this installation.
fn store(world: &World, name: &str) -> PathBuf {
    let inner = format!("var/lib/oac-node/.oac/m/{name}");
    let owner = json!({ "installation_id": world.id }).to_string();
    world
        .host
        .write(&format!("{inner}/oac-installation.json"), &owner);
    world.host.write(&format!("{inner}/images/one"), "image");
    owns(&world.host.path("var/lib/oac-node/.oac/m"));
    world.host.path(&inner)
}

/// A directory bound over another until this goes.
struct Mount(PathBuf);

impl Mount {
    fn over(what: &Path, at: &Path) -> Self {
        let status = Command::new("mount").arg("--bind").args([what, at]).status();
        assert!(status.unwrap().success());
        Self(at.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// A process of the account that has `path` open, until this goes.
struct Process(Child);

impl Process {
    fn with(path: &Path) -> Self {
        let mut command = Command::new("setpriv");
        let (uid, gid) = (format!("--reuid={ACCOUNT}"), format!("--regid={GROUP}"));
        command.args([&uid, &gid, "--clear-groups", "--", "sh", "-c"]);
        command
            .args([r#"exec 3<"$1" && echo open && exec cat"#, "sh"])
            .arg(path);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 5];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        Self(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// From now on nobody can be asked.
fn silence(world: &World) {
    world.core.set(|state| state.instead = Some((500, String::new())));
}

#[test]
fn docker_what_is_mounted_in_the_node_s_state_keeps_the_record_and_a_rerun_finishes() {
    let world = World::new();
    let before = world.host.picture();
    world.install().ready();
    world.core.forgets();
    let others = tempfile::tempdir().unwrap();
    fs::write(others.path().join("file"), "kept").unwrap();
    let at = world.host.path(&world.inner("state/mounted"));
    fs::create_dir(&at).unwrap();
    owns(&at);
    let mount = Mount::over(others.path(), &at);
    let hint = format!("{} is mounted: unmount it, then rerun uninstall.", at.display());
    // However often, and with the permission that was had once.
    for _ in 0..2 {
        world.uninstall(&[]).stopped(&hint);
        silence(&world);
    }
    assert_eq!(fs::read_to_string(others.path().join("file")).unwrap(), "kept");
    drop(mount);
    world.uninstall(&[]).ready();
    assert_eq!(rest(&world, before), [] as [String; 0]);
}

#[test]
fn docker_a_process_that_uses_the_node_s_state_keeps_it_and_a_rerun_finishes() {
    for more in [&[][..], &["--force"]] {
        let world = World::new();
        let before = world.host.picture();
        world.install().ready();
        world.core.forgets();
        let program = world.host.path(&world.inner("bin/oac-node"));
        let process = Process::with(&program);
        let ran = world.uninstall(more);
        ran.stopped("Processes of oac-node still run: check pgrep -u oac-node, then rerun uninstall.");
        assert!(ran.out.contains("which processes of oac-node use"), "{}", ran.out);
        assert!(program.exists());
        drop(process);
        silence(&world);
        world.uninstall(&[]).ready();
        assert_eq!(rest(&world, before), [] as [String; 0]);
    }
}

// inv: INV-I19
#[test]
fn docker_a_store_is_known_as_the_installation_s_until_the_last_of_it_is_gone() {
    let world = World::new();
    let before = world.host.picture();
    world.install().ready();
    world.core.forgets();
    let store = store(&world, "one");
    let others = tempfile::tempdir().unwrap();
    fs::write(others.path().join("file"), "kept").unwrap();
    let mount = Mount::over(others.path(), &store.join("images"));
    let hint = format!(
        "{}/images is mounted: unmount it, then rerun uninstall.",
        store.display()
    );
    world.uninstall(&[]).stopped(&hint);
    drop(mount);
    // And what a run left that was ended before the folder itself went.
    fs::create_dir(store.with_file_name("two")).unwrap();
    owns(&store.with_file_name("two"));
    silence(&world);
    let ran = world.uninstall(&[]);
    ran.ready();
    let deleted = format!("the store {}", store.display());
    assert!(ran.out.contains(&deleted), "{}", ran.out);
    assert!(others.path().join("file").exists());
    assert_eq!(rest(&world, before), [] as [String; 0]);
}

#[test]
fn docker_a_store_that_is_used_stays_with_the_node_s_state() {
    let world = World::new();
    let before = world.host.picture();
    world.install().ready();
    world.core.forgets();
    let store = store(&world, "one");
    let process = Process::with(&store.join("images/one"));
    world
        .uninstall(&[])
        .stopped("Processes of oac-node still run: check pgrep -u oac-node, then rerun uninstall.");
    assert!(store.join("images/one").exists() && world.host.path(&world.inner("bin/oac-node")).exists());
    drop(process);
    silence(&world);
    world.uninstall(&[]).ready();
    assert_eq!(rest(&world, before), [] as [String; 0]);
}

// inv: INV-I18
#[test]
fn docker_force_is_no_confirmation_whatever_the_identity_says_or_does_not_say() {
    // An attempt whose end nobody knows: the record says nothing of a registration.
    let attempt = || {
        let world = World::new();
        world
            .host
            .write("core/enrolled.refusal", "Core could not be reached");
        assert_eq!(world.install().status, Some(1));
        let store = store(&world, "one");
        (world, store)
    };
    let identity = |world: &World| world.host.path(&world.inner("state/node/identity.json"));
    let is_kept = |world: &World, store: &Path, hint: &str| {
        world.uninstall(&[]).stopped(hint);
        let ran = world.uninstall(&["--force"]);
        ran.ready();
        let command = format!("sudo -u oac-node rm -rf {}", store.display());
        assert!(ran.out.contains(&command), "{}", ran.out);
        assert!(store.join("images/one").exists());
    };
    let (world, kept) = attempt();
    fs::write(identity(&world), "{").unwrap();
    let damaged = format!("{} is damaged: restore it.", identity(&world).display());
    is_kept(&world, &kept, &damaged);

    let (world, kept) = attempt();
    fs::remove_file(identity(&world)).unwrap();
    world.host.write(&world.inner("registered.json"), "{}");
    owns(&world.host.path(&world.inner("registered.json")));
    is_kept(
        &world,
        &kept,
        "The node's identity is missing, so Core cannot confirm the removal: remove the node on the Nodes page and add --force.",
    );
}

#[test]
fn docker_a_home_that_is_no_directory_of_the_account_is_left_alone_though_the_account_is_gone() {
    let world = World::new();
    world.install().ready();
    world.core.forgets();
    for base in ["passwd", "group"] {
        let text = world.host.read(&format!("db/{base}"));
        let lines = text.lines().filter(|line| !line.starts_with("oac-node:"));
        let text: Vec<&str> = lines.collect();
        world
            .host
            .write(&format!("db/{base}"), &format!("{}\n", text.join("\n")));
    }
    let home = world.host.path("var/lib/oac-node");
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("file"), "another's").unwrap();
    owns(elsewhere.path());
    fs::rename(&home, world.host.path("moved")).unwrap();
    let hint = format!("{} is not a directory of oac-node: move it away.", home.display());
    symlink(elsewhere.path(), &home).unwrap();
    let before = world.host.picture();
    for more in [&[][..], &["--force"]] {
        world.uninstall(more).stopped(&hint);
    }
    fs::remove_file(&home).unwrap();
    fs::create_dir(&home).unwrap();
    fs::write(home.join("file"), "root's").unwrap();
    world.uninstall(&["--force"]).stopped(&hint);
    assert_eq!(fs::read_to_string(home.join("file")).unwrap(), "root's");
    assert_eq!(
        fs::read_to_string(elsewhere.path().join("file")).unwrap(),
        "another's"
    );
    fs::remove_dir_all(&home).unwrap();
    symlink(elsewhere.path(), &home).unwrap();
    assert_eq!(world.host.picture(), before);
}

#[test]
fn docker_a_service_whose_file_is_gone_is_stopped_and_forgotten_all_the_same() {
    let world = World::new();
    world.install().ready();
    world.core.forgets();
    let unit = format!("oac-node-{}.service", world.id);
    let wants = "etc/systemd/system/multi-user.target.wants";
    fs::create_dir(world.host.path(wants)).unwrap();
    world
        .host
        .link(&format!("{wants}/{unit}"), &world.host.path("unit"));
    fs::remove_file(world.host.path(&format!("etc/systemd/system/{unit}"))).unwrap();
    assert!(world.host.path("state/active").exists());
    world.uninstall(&[]).ready();
    assert!(!world.host.path("state/active").exists());
    assert_eq!(fs::read_dir(world.host.path(wants)).unwrap().count(), 0);
}

#[test]
fn docker_systemd_forgets_the_unit_of_an_uninstall_that_was_killed_right_after_its_file_went() {
    let world = World::new();
    world.install().ready();
    world.core.forgets();
    let ran = world
        .host
        .run_with(&world.uninstall_command(&[]), "", "u1 unit", &[]);
    assert_eq!(ran.status, None);
    let calls = world.host.read("state/calls");
    world.uninstall(&[]).ready();
    let later = world.host.read("state/calls");
    let new = later.strip_prefix(&calls).unwrap();
    assert!(new.lines().any(|call| call == "daemon-reload"), "{new}");
}

#[test]
fn docker_whose_the_account_is_cannot_be_guessed() {
    // A record that says nothing.
    let world = World::new();
    world.install().ready();
    world.core.forgets();
    let record = world.host.path("etc/oac-node/account.json");
    fs::write(&record, "{").unwrap();
    let before = world.host.picture();
    world
        .uninstall(&[])
        .stopped(&format!("{} is damaged: restore it.", record.display()));
    assert_eq!(world.host.picture(), before);
    let ran = world.uninstall(&["--force"]);
    ran.ready();
    assert!(ran.out.contains("which was here before"), "{}", ran.out);
    assert!(world.host.read("db/passwd").contains("oac-node"));

    // An account that somebody made in the place of the installer's.
    let world = World::new();
    world.install().ready();
    world.core.forgets();
    let text = world.host.read("db/passwd");
    world
        .host
        .write("db/passwd", &text.replace(":65532:64999:", ":65532:64998:"));
    let ran = world.uninstall(&[]);
    ran.ready();
    assert!(ran.out.contains("which was here before"), "{}", ran.out);
    assert!(world.host.read("db/passwd").contains("oac-node"));
}

#[test]
fn docker_nothing_of_the_part_as_oac_node_has_root_s_group() {
    let mut world = World::new();
    let before = world.host.picture();
    world.install().ready();
    world.core.forgets();
    let root = Scripted::start(world.host.root(), 0, "1.44", &json!({}));
    let real = std::mem::replace(&mut world.host.socket, root.socket.clone());
    world.uninstall(&[]).stopped(&format!(
        "{} must be root:docker with mode 0660.",
        root.socket.display()
    ));
    assert!(
        world
            .host
            .path(&format!("etc/oac-node/{}.json", world.id))
            .exists()
    );
    fs::remove_file(&root.socket).unwrap();
    world.host.socket = real;
    silence(&world);
    world.uninstall(&[]).ready();
    assert_eq!(rest(&world, before), [] as [String; 0]);
}

#[test]
fn docker_a_credential_that_cannot_be_sent_is_no_answer_of_core_s() {
    let world = World::new();
    world.install().ready();
    world.core.forgets();
    let identity = world.inner("state/node/identity.json");
    let text = world.host.read(&identity);
    world
        .host
        .write(&identity, &text.replace(&"ab".repeat(32), "a\\nb"));
    let path = world.host.path(&identity);
    chown(&path, Some(ACCOUNT), Some(GROUP)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(fs::metadata(&path).unwrap().uid(), ACCOUNT);
    let before = world.host.picture();
    world.core.set(|state| state.asked.clear());
    world.uninstall(&[]).stopped(&format!(
        "Core at {} did not confirm the removal. If that address is gone, remove the node on the Nodes page and add --force.",
        world.core.origin
    ));
    let unreachable = format!(
        "Core at {} cannot be reached: check address, network and proxy.",
        world.core.origin
    );
    world.host.run(&world.command(), TOKEN).stopped(&unreachable);
    assert_eq!(world.core.asked(), [] as [String; 0]);
    assert_eq!(world.host.picture(), before);
    world
        .core
        .set(|state| state.instead = Some((401, error("invalid_node_credential"))));
    assert_eq!(world.uninstall(&[]).status, Some(1));
}
