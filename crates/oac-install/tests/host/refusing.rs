use std::{fs, process::Stdio};

use oac_model::InstallationId;
use serde_json::json;

use crate::{
    core::error,
    scratch::{Ran, Scratch},
    world::{TOKEN, World},
};

const EXPIRED: &str =
    "The enrollment command expired or was already used: generate a new command and run it within an hour.";
const START_OVER: &str =
    "choose Remove node on Nodes, uninstall the node on the host, then add it again with Add node.";

/// A world in which `change` was made; its installation says `hint` and changes nothing.
pub(crate) fn refuses(hint: &str, change: impl FnOnce(&mut World)) {
    refuses_with(hint, change, |world| world.install());
}

#[track_caller]
pub(crate) fn refuses_with(hint: &str, change: impl FnOnce(&mut World), run: impl FnOnce(&World) -> Ran) {
    let mut world = World::new();
    change(&mut world);
    let before = world.host.picture();
    let hint = hint
        .replace("PREFIX", &world.host.root().display().to_string())
        .replace("ORIGIN", &world.core.origin)
        .replace("<id>", &world.id.to_string());
    run(&world).stopped(&hint);
    assert_eq!(world.host.picture(), before, "{hint}");
}

// req: G-027, G-030, G-068
// inv: INV-I1
#[test]
fn docker_a_host_that_cannot_be_a_node_is_told_so_before_anything_changes() {
    refuses("This host is not run by systemd.", |world| {
        fs::remove_dir(world.host.path("run/systemd/system")).unwrap();
    });
    refuses("useradd is missing: install it, then retry.", |world| {
        fs::remove_file(world.host.path("tools/useradd")).unwrap();
    });
    refuses(
        "SELinux is enforcing: nodes need it permissive or disabled.",
        |world| {
            world.host.write("sys/fs/selinux/enforce", "1");
        },
    );
    refuses("UID 65532 belongs to nobody2: nodes need it.", |world| {
        world
            .host
            .has("passwd", "nobody2:x:65532:65532::/:/usr/sbin/nologin");
    });
    refuses(
        "Group oac-node exists without the account: remove it, then retry.",
        |world| {
            world.host.has("group", "oac-node:x:999:");
        },
    );
    refuses(
        "Account oac-node differs (its UID is 999): rename or remove it.",
        |world| {
            world.host.has(
                "passwd",
                "oac-node:x:999:999::/var/lib/oac-node:/usr/sbin/nologin",
            );
        },
    );
    refuses(
        "PREFIX/var/lib/oac-node is not a directory of oac-node: move it away.",
        |world| {
            world.host.write("var/lib/oac-node/file", "");
        },
    );
    refuses("PREFIX/etc/oac-node/<id>.json is damaged: restore it.", |world| {
        world.host.write(&format!("etc/oac-node/{}.json", world.id), "{");
    });
    refuses(
        "PREFIX/etc/oac-node/account.json is damaged: restore it.",
        |world| {
            world.host.write("etc/oac-node/account.json", "{");
        },
    );
    // A host with permissive SELinux passes this check, and fails at the next.
    refuses("This host is not run by systemd.", |world| {
        world.host.write("sys/fs/selinux/enforce", "0");
        fs::remove_dir(world.host.path("run/systemd/system")).unwrap();
    });
}

// req: G-145
#[test]
fn docker_a_command_that_was_used_on_another_host_fails_at_once() {
    let world = World::new();
    world.install().ready();
    world.core.set(|state| state.sent = 0);
    let other = Scratch::new(&world.commit.to_string());
    let before = other.picture();
    other.run(&world.command(), TOKEN).stopped(EXPIRED);
    assert_eq!(other.picture(), before);
    assert_eq!(world.core.state.lock().unwrap().sent, 0);
}

// inv: INV-I22
#[test]
fn docker_another_installation_s_command_changes_nothing() {
    let world = World::new();
    world.install().ready();
    let before = world.host.picture();
    let other = InstallationId::random();
    let hint = format!(
        "This host serves another installation ({}): remove that node and uninstall it first.",
        world.id
    );
    let command: Vec<String> = world
        .command()
        .into_iter()
        .map(|word| {
            if word == world.id.to_string() {
                other.to_string()
            } else {
                word
            }
        })
        .collect();
    world.host.run(&command, TOKEN).stopped(&hint);
    assert_eq!(world.host.picture(), before);
}

// req: G-061, G-144
#[test]
fn docker_what_core_says_instead_of_a_configuration_is_told_and_nothing_changes() {
    let says = |status: u16, body: String| {
        move |world: &mut World| world.core.set(|state| state.instead = Some((status, body)))
    };
    refuses(EXPIRED, says(401, error("invalid_node_credential")));
    let unreachable = "Core at ORIGIN cannot be reached: check address, network and proxy.";
    refuses(unreachable, says(401, "<html>proxy</html>".into()));
    refuses(unreachable, says(502, String::new()));
    refuses(
        "Core does not answer under /api/v1 at ORIGIN: check the reverse proxy.",
        says(404, "nothing here".into()),
    );
    refuses(
        "A deployment reset is running: generate a new command afterwards.",
        says(409, error("sandbox_reset_in_progress")),
    );
    refuses(
        "No configuration for nodes is saved: use Settings → Sandbox and scheduling.",
        says(503, error("runtime_node_unavailable")),
    );
    refuses(
        "Core has no public address that other machines can reach: set it, then generate a new command.",
        says(409, error("sandbox_configuration_error")),
    );
    let other = "This command belongs to another installation or backend: generate a new command.";
    refuses(other, |world| {
        world
            .core
            .set(|state| state.configuration["installation_id"] = json!(InstallationId::random()))
    });
    refuses_with(
        "The enrollment token is malformed: copy the command again.",
        |_| (),
        |world| world.host.run(&world.command(), "two words\n"),
    );
    refuses_with(
        "The token comes only on standard input: unset OAC_ENROLLMENT_TOKEN.",
        |_| (),
        |world| {
            world
                .host
                .run_with(&world.command(), TOKEN, "", &[("OAC_ENROLLMENT_TOKEN", TOKEN)])
        },
    );
    refuses_with(
        "https_proxy is not an HTTP proxy URL.",
        |_| (),
        |world| {
            world
                .host
                .run_with(&world.command(), TOKEN, "", &[("https_proxy", "socks5://secret")])
        },
    );
    refuses_with(
        "--checkpoint-root is for microsandbox.",
        |_| (),
        |world| {
            let more = ["--checkpoint-root".to_owned(), "/srv/store".to_owned()];
            world.host.run(&[world.command(), more.to_vec()].concat(), TOKEN)
        },
    );
}

// req: G-069, G-072
// inv: INV-I3
#[test]
fn docker_an_ordinary_user_s_run_ends_before_it_reads_standard_input() {
    let world = World::new();
    let before = world.host.picture();
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, TOKEN.as_bytes()).unwrap();
    let kept = reader.try_clone().unwrap();
    let output = world.host.run_as_user(&world.command(), Stdio::from(reader));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "Run this command as root or with sudo.\n"
    );
    drop(writer);
    let mut left = String::new();
    std::io::Read::read_to_string(&mut { kept }, &mut left).unwrap();
    assert_eq!(left, TOKEN);
    assert_eq!(world.host.picture(), before);
    // Nor does a removal begin, forced or not.
    world.install().ready();
    world.core.forgets();
    let before = world.host.picture();
    for more in [&[][..], &["--force"]] {
        let output = world
            .host
            .run_as_user(&world.uninstall_command(more), Stdio::null());
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            "Run this command as root or with sudo.\n"
        );
        assert_eq!(world.host.picture(), before);
    }
}

// req: G-060
#[test]
fn docker_the_token_is_taken_from_standard_input_alone() {
    let world = World::new();
    let before = world.host.picture();
    let plain: Vec<String> = world
        .command()
        .into_iter()
        .filter(|word| word != "--enrollment-token-stdin")
        .collect();
    let file = world.host.path("token");
    let (with_value, file_argument) = (
        format!("--enrollment-token-stdin={TOKEN}"),
        file.display().to_string(),
    );
    for more in [
        &["--enrollment-token", TOKEN][..],
        &["--token", TOKEN],
        &[&with_value],
        &["--enrollment-token-file", &file_argument],
        &[TOKEN],
    ] {
        let words: Vec<String> = more.iter().map(|word| (*word).to_owned()).collect();
        let ran = world.host.run(&[plain.clone(), words].concat(), TOKEN);
        assert_eq!(ran.status, Some(2), "{more:?}");
        assert!(!ran.error.contains(TOKEN), "{}", ran.error);
    }
    // What it may be given is what its help lists.
    let help = world.host.run(&["--help".to_owned()], "");
    let options = help.out.split_whitespace().filter(|word| word.starts_with("--"));
    let of_tokens: Vec<&str> = options.filter(|word| word.contains("token")).collect();
    assert_eq!(of_tokens, ["--enrollment-token-stdin"], "{}", help.out);
    // Without being told to, it reads none.
    world.host.run(&plain, TOKEN).stopped(EXPIRED);
    assert_eq!(world.core.asked(), [] as [String; 0]);
    assert_eq!(world.host.picture(), before);
}

// req: G-138, G-139, G-140
#[test]
fn docker_a_node_that_is_another_s_now_or_whose_configuration_changed_is_left_as_it_is() {
    let world = World::new();
    world.install().ready();
    let before = world.host.picture();
    let refuses = |command: &[String], hint: &str| {
        world.host.run(command, "used").stopped(hint);
        assert_eq!(world.host.picture(), before, "{hint}");
    };
    let elsewhere = world.command_for("http://127.0.0.1:1");
    refuses(
        &elsewhere,
        &format!("This node belongs to {}: {START_OVER}", world.core.origin),
    );
    let known = world.core.state.lock().unwrap().clone();
    world
        .core
        .set(|state| state.configuration["generation"] = json!(2));
    refuses(
        &world.command(),
        &format!(
            "The sandbox configuration changed after this node registered; the node prepares it itself. To start over: {START_OVER}"
        ),
    );
    world.core.set(|state| *state = known);
    world
        .core
        .set(|state| state.instead = Some((401, error("invalid_node_credential"))));
    refuses(
        &world.command(),
        &format!("Core no longer accepts this node: {START_OVER}"),
    );
    world
        .core
        .set(|state| state.instead = Some((401, "<html>".into())));
    let unreachable = format!(
        "Core at {} cannot be reached: check address, network and proxy.",
        world.core.origin
    );
    refuses(&world.command(), &unreachable);
    fs::remove_file(world.host.path(&world.inner("state/node/identity.json"))).unwrap();
    let root = world.host.path(world.inner("").trim_end_matches('/'));
    let missing = format!(
        "The node's state is missing: restore {} from its backup.",
        root.display()
    );
    world.host.run(&world.command(), TOKEN).stopped(&missing);
}

// inv: INV-I16
#[test]
fn docker_a_release_that_is_missing_or_another_stops_before_the_records_of_the_node() {
    let world = World::new();
    world.select(1, "b".repeat(40).parse().unwrap());
    fs::remove_dir_all(world.host.path(&format!("core/releases/{}", "b".repeat(40)))).unwrap();
    let hint = format!(
        "This console has no Runtime {}: publish that release, then retry.",
        "b".repeat(40)
    );
    world.install().stopped(&hint);
    for name in ["installation.json", "provider.json"] {
        assert!(!world.host.path(&world.inner(name)).exists(), "{name}");
    }
    assert!(
        !world
            .host
            .path(&format!("etc/systemd/system/oac-node-{}.service", world.id))
            .exists()
    );
    assert!(!world.core.is_enrolled());
    // Another manifest than the command names.
    let command = [world.command(), vec!["--manifest-sha256".into(), "0".repeat(64)]].concat();
    let differs = "The release files do not match this command: copy a fresh command from Web.";
    world.host.run(&command, TOKEN).stopped(differs);
    assert!(!world.host.path(&world.inner("installation.json")).exists());
}

#[test]
fn docker_a_bundle_serves_in_place_of_a_console_and_must_hold_the_runtime() {
    let world = World::new();
    let bundle = world.host.path(&format!("core/releases/{}", world.commit));
    let with = |folder: &std::path::Path| {
        [
            world.command(),
            vec!["--bundle".into(), folder.display().to_string()],
        ]
        .concat()
    };
    let unreadable = world.host.path("empty");
    fs::create_dir(&unreadable).unwrap();
    world
        .host
        .run(&with(&unreadable), TOKEN)
        .stopped("The bundle must be readable by oac-node.");
    // Another release's, in place of the selected one.
    let other = "b".repeat(40);
    world.select(1, other.parse().unwrap());
    let hint = format!("The bundle has no Runtime {other}.");
    world.host.run(&with(&bundle), TOKEN).stopped(&hint);
    world.select(1, world.commit);
    let ran = world.host.run(&with(&bundle), TOKEN);
    ran.ready();
    assert!(!world.core.asked().iter().any(|asked| asked.contains("releases")));
    assert_eq!(world.core.state.lock().unwrap().sent, 0);
}

#[test]
fn docker_a_registration_s_refusals_are_told_and_the_files_are_kept() {
    let world = World::new();
    for (said, hint) in [
        (
            "Core answered HTTP 409 Conflict, sandbox_node_address_mismatch",
            "Core's public address changed: generate a new command.",
        ),
        (
            "Core answered HTTP 409 Conflict, sandbox_specification_mismatch",
            "The sandbox configuration just changed: run the command again.",
        ),
        (
            "the provider is not ready: host_unsupported; run oac-node doctor for the reason",
            "The sandbox backend is not ready (host_unsupported).",
        ),
        (
            "Core could not be reached",
            "Core did not confirm the registration: run the command again.",
        ),
    ] {
        world.host.write("core/enrolled.refusal", said);
        world.install().stopped(hint);
        assert!(world.host.path(&world.inner("bin/oac-node")).exists());
        assert!(!world.host.path(&world.inner("registered.json")).exists());
    }
}

#[test]
fn docker_a_service_that_does_not_start_or_a_node_that_is_not_ready_is_told_with_its_logs() {
    let world = World::new();
    let logs = format!("Logs: journalctl -u oac-node-{}.service", world.id);
    world.host.write("state/broken", "");
    world
        .install()
        .stopped(&format!("The service did not start. {logs}"));
    fs::remove_file(world.host.path("state/broken")).unwrap();
    world
        .core
        .set(|state| state.identity["provider_ready"] = json!(false));
    let hint = format!("The node is registered and running, but Core does not report it ready yet. {logs}");
    world.install().stopped(&hint);
}

// req: G-273
#[test]
fn docker_a_registered_node_s_missing_files_come_again_and_other_bytes_stop() {
    let world = World::new();
    world.install().ready();
    let seccomp = world.inner("runtime/seccomp.json");
    let program = world.inner("bin/oac-node");
    let known = (world.host.read(&seccomp), world.host.read(&program));
    fs::remove_file(world.host.path(&seccomp)).unwrap();
    // Of the same length, mode and owner.
    let mut other = known.1.clone();
    other.replace_range(2..3, "X");
    fs::write(world.host.path(&program), other).unwrap();
    world.host.run(&world.command(), "used").ready();
    assert_eq!((world.host.read(&seccomp), world.host.read(&program)), known);
    fs::write(world.host.path(&seccomp), "[]").unwrap();
    let file = world.host.path(&seccomp);
    let hint = format!(
        "{} is not the recorded one: delete it and run the command again.",
        file.display()
    );
    world.host.run(&world.command(), "used").stopped(&hint);
}

#[test]
fn docker_a_lease_that_an_interrupted_run_left_bare_is_refused_and_uninstall_clears_it() {
    let world = World::new();
    world
        .host
        .write("core/enrolled.refusal", "Core could not be reached");
    assert_eq!(world.install().status, Some(1));
    fs::remove_file(world.host.path("core/enrolled.refusal")).unwrap();
    let record = world.inner("state/node/generations/1.lease-identity");
    fs::remove_file(world.host.path(&record)).unwrap();
    // The identity of the attempt goes first, since Core refuses it.
    let lease = world.host.path(&world.inner("state/node/generations/1.lease"));
    let hint = format!(
        "{} was left by an interrupted run: uninstall, then install again.",
        lease.display()
    );
    world.install().stopped(&hint);
    world.uninstall(&[]).ready();
    world.install().ready();
}

#[test]
fn docker_the_image_that_cannot_be_imported_is_told() {
    let world = World::new();
    // A release whose archive holds another image than it says.
    let (other, _) = crate::engine::image("another");
    let mut world = world;
    world.archive = other;
    world.select(1, world.commit);
    let ran = world.install();
    assert_eq!(ran.status, Some(1));
    assert!(
        ran.hint()
            .starts_with("The Runtime image could not be imported: "),
        "{}",
        ran.hint()
    );
}

#[test]
fn docker_a_file_of_other_bytes_than_the_manifest_states_is_told_and_not_kept() {
    let world = World::new();
    let name = format!("oac-{}-linux-amd64-seccomp.json", world.commit);
    let served = format!("core/releases/{}/artifacts/{name}", world.commit);
    let right = world.host.read(&served);
    world.host.write(&served, &"x".repeat(right.len()));
    world
        .install()
        .stopped(&format!("{name} failed its checksum: run the command again."));
    assert!(!world.host.path(&world.inner("runtime/seccomp.json")).exists());
    world.host.write(&served, &right);
    world.install().ready();
}

#[test]
fn docker_a_program_of_no_release_changes_nothing() {
    let hint = "This installer belongs to no release: build one with cargo xtask dist.";
    refuses(hint, |world| world.host.commit = "none".to_owned());
}
