use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
};

use crate::{core::error, engine::docker, interrupted::rest, world::World};

// req: G-213, G-223, G-229
// inv: INV-I20
#[test]
fn docker_once_core_has_removed_the_node_the_host_is_as_it_was_and_the_image_stays() {
    let world = World::new();
    let before = world.host.picture();
    world.install().ready();
    world.core.forgets();
    let ran = world.uninstall(&[]);
    ran.ready();
    assert_eq!(rest(&world, before), [] as [String; 0]);
    assert!(!docker(&["network", "ls"]).contains(&world.network()));
    let image = world.image.to_string();
    assert!(docker(&["image", "inspect", &image]).contains(&image));
    for line in [
        format!("sudo docker image rm {image}"),
        "rm -f /root/.oac/node-bootstrap/*.run".to_owned(),
    ] {
        assert!(ran.out.contains(&line), "{line}\n{}", ran.out);
    }
    let again = world.uninstall(&[]);
    again.ready();
    assert_eq!(
        again.out,
        format!("Nothing of installation {} is on this host.\n", world.id)
    );
}

// inv: INV-I17
#[test]
fn docker_nothing_is_deleted_while_core_lists_the_node_or_did_not_say_otherwise_itself() {
    let world = World::new();
    world.install().ready();
    let before = world.host.picture();
    let refuses = |hint: &str| {
        world.uninstall(&[]).stopped(hint);
        assert_eq!(world.host.picture(), before, "{hint}");
    };
    refuses("Core still lists this node: choose Remove node on Nodes first.");
    let unconfirmed = format!(
        "Core at {} did not confirm the removal. If that address is gone, remove the node on the Nodes page and add --force.",
        world.core.origin
    );
    for (status, body) in [
        (401, "<html>".to_owned()),
        (401, error("invalid_api_key")),
        (502, String::new()),
        (404, String::new()),
    ] {
        world.core.set(|state| state.instead = Some((status, body)));
        refuses(&unconfirmed);
    }
    fs::remove_file(world.host.path(&world.inner("state/node/identity.json"))).unwrap();
    let before = world.host.picture();
    world.uninstall(&[]).stopped("The node's identity is missing, so Core cannot confirm the removal: remove the node on the Nodes page and add --force.");
    assert_eq!(world.host.picture(), before);
}

// req: G-217
// inv: INV-I18
#[test]
fn docker_a_forced_uninstall_asks_nobody_and_keeps_checkpoints_with_their_account() {
    let world = World::new();
    let before = world.host.picture();
    world.install().ready();
    let checkpoint = world.inner("state/node/checkpoints/one/manifest.json");
    world.host.write(&checkpoint, "{}");
    let folder = world.host.path(&world.inner("state/node/checkpoints"));
    std::process::Command::new("chown")
        .args(["-R", "65532:64999"])
        .arg(&folder)
        .status()
        .unwrap();
    world.core.set(|state| state.asked.clear());
    let ran = world.uninstall(&["--force"]);
    ran.ready();
    assert_eq!(world.core.asked(), [] as [String; 0]);
    assert!(world.host.path(&checkpoint).exists());
    assert!(world.host.read("db/passwd").contains("oac-node"));
    let command = format!("sudo -u oac-node rm -rf {}", folder.display());
    assert!(ran.out.contains(&command), "{}", ran.out);
    assert!(!world.host.path(&world.inner("bin")).exists());
    // After the operator has deleted them a rerun finishes.
    fs::remove_dir_all(world.host.path(world.inner("").trim_end_matches('/'))).unwrap();
    world.uninstall(&[]).ready();
    assert_eq!(rest(&world, before), [] as [String; 0]);
}

// inv: INV-I21
#[test]
fn docker_an_adopted_account_ends_with_its_groups_and_its_home_s_mode() {
    let world = World::new();
    let home = world.host.path("var/lib/oac-node");
    fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(65532), Some(64999)).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o750)).unwrap();
    world.host.has(
        "passwd",
        &format!("oac-node:x:65532:64999::{}:/usr/sbin/nologin", home.display()),
    );
    world.host.has("group", "oac-node:x:64999:");
    world.host.has("group", "audio:x:29:oac-node");
    let data_base = (world.host.read("db/passwd"), world.host.read("db/group"));
    world.install().ready();
    assert_eq!(fs::metadata(&home).unwrap().permissions().mode() & 0o7777, 0o700);
    world.core.forgets();
    let ran = world.uninstall(&[]);
    ran.ready();
    assert_eq!(
        (world.host.read("db/passwd"), world.host.read("db/group")),
        data_base
    );
    assert_eq!(fs::metadata(&home).unwrap().permissions().mode() & 0o7777, 0o750);
    assert!(
        ran.out.contains(&format!(
            "the account oac-node, which was here before, with its home {}",
            home.display()
        )),
        "{}",
        ran.out
    );
    assert!(!world.host.path("etc/oac-node").exists());
}

#[test]
fn docker_a_host_that_never_registered_is_given_back_without_core_s_word() {
    let world = World::new();
    let before = world.host.picture();
    world
        .host
        .write("core/enrolled.refusal", "Core could not be reached");
    assert_eq!(world.install().status, Some(1));
    let identity = world.inner("state/node/identity.json");
    // Core's 401 to the identity of an attempt is as good as none.
    assert!(world.host.path(&identity).exists());
    world.uninstall(&[]).ready();
    fs::remove_file(world.host.path("core/enrolled.refusal")).unwrap();
    assert_eq!(rest(&world, before), [] as [String; 0]);
}

#[test]
fn docker_a_missing_or_damaged_record_is_removed_by_force_alone() {
    let world = World::new();
    let before = world.host.picture();
    world.install().ready();
    let record = format!("etc/oac-node/{}.json", world.id);
    world.host.write(&record, "{");
    let hint = format!(
        "The record of installation {} is missing or damaged: remove the node on the Nodes page and add --force.",
        world.id
    );
    world.uninstall(&[]).stopped(&hint);
    fs::remove_file(world.host.path(&record)).unwrap();
    world.uninstall(&[]).stopped(&hint);
    world.uninstall(&["--force"]).ready();
    assert_eq!(rest(&world, before), [] as [String; 0]);
}

#[test]
fn docker_an_engine_that_does_not_answer_stops_before_the_records_and_one_that_is_gone_does_not() {
    let mut world = World::new();
    let before = world.host.picture();
    world.install().ready();
    world.core.forgets();
    // A socket that nobody listens at.
    let socket = world.host.path("docker.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let docker = fs::metadata(crate::engine::real_socket()).unwrap().gid();
    std::os::unix::fs::chown(&socket, Some(0), Some(docker)).unwrap();
    let real = std::mem::replace(&mut world.host.socket, socket.clone());
    world
        .uninstall(&[])
        .stopped("Docker does not answer: start it, then rerun uninstall.");
    assert!(
        world
            .host
            .path(&format!("etc/oac-node/{}.json", world.id))
            .exists()
    );
    fs::remove_file(&socket).unwrap();
    let ran = world.uninstall(&[]);
    ran.ready();
    assert!(ran.out.contains("gone with the engine"), "{}", ran.out);
    world.host.socket = real;
    assert_eq!(rest(&world, before), [] as [String; 0]);
}

#[test]
fn docker_a_userdel_that_refuses_keeps_the_rest_and_a_rerun_finishes() {
    let world = World::new();
    let before = world.host.picture();
    world.install().ready();
    world.core.forgets();
    world.host.write("db/busy", "");
    world
        .uninstall(&[])
        .stopped("Processes of oac-node still run: check pgrep -u oac-node, then rerun uninstall.");
    assert!(world.host.path("etc/oac-node/account.json").exists());
    fs::remove_file(world.host.path("db/busy")).unwrap();
    world.uninstall(&[]).ready();
    assert_eq!(rest(&world, before), [] as [String; 0]);
}

#[test]
fn docker_an_unfinished_uninstall_refuses_an_installation() {
    let world = World::new();
    world.install().ready();
    world.core.forgets();
    let ran = world.host.run_with(&world.uninstall_command(&[]), "", "u1", &[]);
    assert_eq!(ran.status, None);
    world
        .install()
        .stopped("An uninstall is unfinished: run the uninstall command again.");
}

#[test]
fn docker_a_network_that_containers_use_is_kept_and_listed() {
    let world = World::new();
    world.install().ready();
    let label = format!("io.oac.installation={}", world.id);
    let made = docker(&[
        "create",
        "--label",
        &label,
        "--network",
        &world.network(),
        &world.image.to_string(),
        "/none",
    ]);
    world.core.forgets();
    let ran = world.uninstall(&[]);
    docker(&["rm", "-f", made.trim()]);
    ran.ready();
    assert!(
        ran.out
            .contains(&format!("sudo docker network rm {}", world.network())),
        "{}",
        ran.out
    );
    assert!(docker(&["network", "ls"]).contains(&world.network()));
}
