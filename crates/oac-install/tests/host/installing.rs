use std::{fs, os::unix::fs::PermissionsExt};

use oac_release::made::commit;

use crate::{
    engine::docker,
    world::{TOKEN, World},
};

const PHASES: [&str; 8] = [
    "[1/8] Reading the specification",
    "[2/8] Checking the host",
    "[3/8] Preparing the account",
    "[4/8] Downloading and verifying files",
    "[5/8] Checking the Runtime",
    "[6/8] Registering the node",
    "[7/8] Starting the service",
    "[8/8] Waiting for readiness",
];

// req: G-041, G-083
#[test]
fn docker_a_fresh_host_becomes_a_ready_node_and_the_token_is_nowhere() {
    let world = World::new();
    let ran = world.install();
    ran.ready();
    let shown: Vec<&str> = ran.out.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(shown, PHASES);
    assert_eq!(ran.error, "");
    assert!(
        !ran.out.bytes().any(|b| b < 0x20 && b != b'\n' && b != b'\t'),
        "{:?}",
        ran.out
    );
    for line in [
        format!("Node ID: {}", world.node),
        format!("Installation: {}", world.id),
        format!("Status: systemctl status oac-node-{}.service", world.id),
        format!("Logs: journalctl -u oac-node-{}.service", world.id),
    ] {
        assert!(ran.out.lines().any(|shown| shown == line), "{line}\n{}", ran.out);
    }
    // The account, its one group, its home.
    let passwd = world.host.read("db/passwd");
    assert!(
        passwd.contains("oac-node:x:65532:") && passwd.contains("nologin"),
        "{passwd}"
    );
    let groups = world.host.read("db/group");
    let of: Vec<&str> = groups
        .lines()
        .filter(|line| line.ends_with(":oac-node"))
        .collect();
    assert_eq!(of.len(), 1);
    assert!(of[0].starts_with("docker:"), "{groups}");
    let mode = |path: &str| {
        fs::symlink_metadata(world.host.path(path))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777
    };
    assert_eq!(mode("var/lib/oac-node"), 0o700);
    assert_eq!(mode(&world.inner("bin/oac-node")), 0o700);
    assert_eq!(mode(&world.inner("provider.json")), 0o600);
    assert_eq!(mode(&format!("etc/oac-node/{}.json", world.id)), 0o644);
    assert_eq!(
        mode(&format!("etc/systemd/system/oac-node-{}.service", world.id)),
        0o644
    );
    // The archive and its unpacked copy are gone, the image is in the engine, the network is the installation's.
    assert_eq!(
        fs::read_dir(world.host.path(&world.inner("images")))
            .unwrap()
            .count(),
        0
    );
    assert!(
        docker(&[
            "image",
            "inspect",
            "--format",
            "{{.Id}}",
            &world.image.to_string()
        ])
        .contains(&world.image.to_string())
    );
    let network = docker(&["network", "inspect", &world.network()]);
    assert!(
        network.contains(&world.id.to_string())
            && network.contains(r#""com.docker.network.bridge.enable_icc": "false""#)
    );
    // The token went through a pipe alone.
    assert!(!ran.out.contains(TOKEN));
    for (path, text) in world.host.picture() {
        let is_core_s = path.starts_with("core/releases");
        assert!(
            is_core_s
                || !text.contains(TOKEN)
                    && !text.contains(&format!("{:?}", TOKEN.as_bytes()).replace(['[', ']'], "")),
            "{}",
            path.display()
        );
    }
}

#[test]
fn docker_the_part_as_oac_node_has_two_groups_no_capability_and_no_variable_but_its_own() {
    let world = World::new();
    let environment = [
        ("LD_LIBRARY_PATH", "/x"),
        ("SECRET", "s"),
        ("all_proxy", "http://a"),
        ("NO_PROXY", "example.org"),
    ];
    let ran = world.host.run_with(&world.command(), TOKEN, "", &environment);
    ran.ready();
    let told = world.host.read("core/enrolled.environment");
    let mut names: Vec<&str> = told
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0))
        .collect();
    names.retain(|name| !matches!(*name, "PWD" | "_" | "SHLVL" | "OLDPWD"));
    names.sort_unstable();
    assert_eq!(
        names,
        ["HOME", "LANG", "LOGNAME", "NO_PROXY", "PATH", "USER", "no_proxy"]
    );
    let groups = world.host.read("core/enrolled.groups");
    assert_eq!(groups.split_whitespace().count(), 2, "{groups}");
    let status = world.host.read("core/enrolled.status");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(status.contains(&format!("{set}:\t0000000000000000")), "{status}");
    }
    assert!(
        status.contains("NoNewPrivs:\t1") && status.contains("Uid:\t65532\t65532\t65532\t65532"),
        "{status}"
    );
}

// req: G-136, G-137
// inv: INV-I11
#[test]
fn docker_a_rerun_of_a_ready_node_changes_nothing_and_needs_no_token() {
    let world = World::new();
    world.install().ready();
    let before = world.host.picture();
    let calls = world.host.read("state/calls");
    let command: Vec<String> = world
        .command()
        .into_iter()
        .filter(|word| word != "--enrollment-token-stdin")
        .collect();
    world.host.run(&command, "").ready();
    // Also with a token that nobody accepts any more, which is not sent.
    world.host.run(&world.command(), "another\n").ready();
    assert_eq!(world.host.picture(), before);
    let later = world.host.read("state/calls");
    let new = later.strip_prefix(&calls).unwrap();
    assert!(
        !["restart", "enable", "daemon-reload"]
            .iter()
            .any(|verb| new.lines().any(|line| line.starts_with(verb))),
        "{new}"
    );
}

// inv: INV-I23
#[test]
fn docker_proxy_settings_follow_the_latest_run_and_a_change_restarts_the_service() {
    let world = World::new();
    let env = format!("etc/oac-node/{}.env", world.id);
    let restarts = || {
        world
            .host
            .read("state/calls")
            .lines()
            .filter(|line| line.starts_with("restart"))
            .count()
    };
    world.install().ready();
    assert!(!world.host.path(&env).exists());
    let run = |proxy: &str| {
        world
            .host
            .run_with(&world.command(), TOKEN, "", &[("http_proxy", proxy)])
    };
    run("http://user:s%40crt@proxy.example.org:3128").ready();
    let text = world.host.read(&env);
    assert!(
        text.contains("http_proxy=\"http://user:s%40crt@proxy") && text.contains("\nHTTP_PROXY="),
        "{text}"
    );
    assert_eq!(
        fs::metadata(world.host.path(&env)).unwrap().permissions().mode() & 0o7777,
        0o600
    );
    let unit = world
        .host
        .read(&format!("etc/systemd/system/oac-node-{}.service", world.id));
    assert!(!unit.contains("proxy.example.org"));
    assert_eq!(restarts(), 1);
    run("http://user:s%40crt@proxy.example.org:3128").ready();
    assert_eq!(restarts(), 1);
    world.install().ready();
    assert!(!world.host.path(&env).exists());
    assert_eq!(restarts(), 2);
}

// req: G-134
#[test]
fn docker_a_newer_installer_leaves_a_node_with_the_program_and_the_runtime_that_it_was_added_with() {
    let mut world = World::new();
    world.install().ready();
    // A newer release is current; the deployment still selects the first one's Runtime.
    world.release(commit('b'), r#"{"newer":1}"#);
    world.host.commit = commit('b').to_string();
    let before = world.host.picture();
    world.host.run(&world.command(), "used").ready();
    assert_eq!(world.host.picture(), before);
    // What is missing comes from the release that is on record, whatever brought the installer here.
    let program = world.host.path(&world.inner("bin/oac-node"));
    let bytes = fs::read(&program).unwrap();
    fs::remove_file(&program).unwrap();
    fs::remove_file(world.host.path(&world.inner("runtime/seccomp.json"))).unwrap();
    world.host.run(&world.command(), "used").ready();
    assert_eq!(fs::read(&program).unwrap(), bytes);
    assert_eq!(world.host.read(&world.inner("runtime/seccomp.json")), "{}");
    assert!(
        world
            .host
            .read(&world.inner("program.json"))
            .contains(&commit('a').to_string())
    );
}

// req: G-270
#[test]
fn docker_a_rerun_brings_a_missing_image_again_and_so_does_loading_it() {
    let world = World::new();
    world.install().ready();
    let image = world.image.to_string();
    let is_there = || docker(&["image", "inspect", "--format", "{{.Id}}", &image]).contains(&image);
    docker(&["image", "rm", "-f", &image]);
    assert!(!is_there());
    let ran = world.host.run(&world.command(), "used");
    ran.ready();
    assert!(is_there() && ran.out.contains("runtime.tar.gz"), "{}", ran.out);
    docker(&["image", "rm", "-f", &image]);
    let archive = world.host.path("image.tar");
    fs::write(&archive, &world.archive).unwrap();
    docker(&["load", "-i", archive.to_str().unwrap()]);
    let ran = world.host.run(&world.command(), "used");
    ran.ready();
    assert!(is_there() && !ran.out.contains("runtime.tar.gz"), "{}", ran.out);
}

// req: G-038
#[test]
fn docker_the_archive_and_its_unpacked_copy_are_below_the_home_until_they_are_imported() {
    let world = World::new();
    let images = || {
        let entries = fs::read_dir(world.host.path(&world.inner("images"))).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    };
    for point in ["22", "23 imported"] {
        let ran = world.host.run_with(&world.command(), TOKEN, point, &[]);
        assert_eq!(ran.status, None, "{}", ran.error);
        assert_eq!(images(), ["runtime.tar", "runtime.tar.gz"], "{point}");
    }
    let ran = world.host.run_with(&world.command(), TOKEN, "23", &[]);
    assert_eq!(ran.status, None, "{}", ran.error);
    assert_eq!(images(), [] as [String; 0]);
}

// req: G-085, G-086
#[test]
fn docker_colours_are_for_terminals_whose_owner_did_not_refuse_them() {
    let world = World::new();
    world.install().ready();
    let command: Vec<String> = world
        .command()
        .into_iter()
        .filter(|word| word != "--enrollment-token-stdin")
        .collect();
    let has_colours = |more: &[&str], environment: &[(&str, &str)]| {
        let words: Vec<String> = more.iter().map(|word| (*word).to_owned()).collect();
        let ran = world
            .host
            .run_at_a_terminal(&[command.clone(), words].concat(), environment);
        ran.ready();
        assert!(ran.out.contains("[1/8] Reading"), "{}", ran.out);
        // Any choice of rendition: ESC [ … m.
        ran.out.split("\u{1b}[").skip(1).any(|rest| {
            rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';')
                .starts_with('m')
        })
    };
    assert!(has_colours(&[], &[("TERM", "xterm")]));
    assert!(!has_colours(&["--no-color"], &[("TERM", "xterm")]));
    assert!(!has_colours(&[], &[("TERM", "xterm"), ("NO_COLOR", "1")]));
    assert!(has_colours(&[], &[("TERM", "xterm"), ("NO_COLOR", "")]));
    assert!(!has_colours(&[], &[("TERM", "dumb")]));
}

#[test]
fn docker_an_image_loaded_by_hand_is_recognised_and_its_archive_not_fetched() {
    let world = World::new();
    let archive = world.host.path("image.tar");
    fs::write(&archive, &world.archive).unwrap();
    docker(&["load", "-i", archive.to_str().unwrap()]);
    let ran = world.install();
    ran.ready();
    assert!(!ran.out.contains("runtime.tar.gz"), "{}", ran.out);
}

// req: G-142, G-143
#[test]
fn docker_after_a_failed_attempt_another_configuration_replaces_it_and_what_matches_stays() {
    let world = World::new();
    world.host.write(
        "core/enrolled.refusal",
        "Core answered HTTP 503 Service Unavailable",
    );
    world
        .install()
        .stopped("Core did not confirm the registration: run the command again.");
    assert!(!world.core.is_enrolled());
    let program = world.host.path(&world.inner("bin/oac-node"));
    let modified = fs::metadata(&program).unwrap().modified().unwrap();
    let first = world.host.read(&world.inner("provider.json"));
    world
        .host
        .write(&world.inner("images/left"), "of an earlier release");
    fs::set_permissions(
        world.host.path(&world.inner("images/left")),
        fs::Permissions::from_mode(0o600),
    )
    .unwrap();
    std::os::unix::fs::chown(
        world.host.path(&world.inner("images/left")),
        Some(65532),
        Some(64999),
    )
    .unwrap();
    fs::remove_file(world.host.path("core/enrolled.refusal")).unwrap();
    world.release(commit('b'), r#"{"other":1}"#);
    world.select(2, commit('b'));
    world.release(commit('b'), r#"{"other":1}"#);
    let ran = world.install();
    ran.ready();
    assert!(ran.out.contains("-node already verified"), "{}", ran.out);
    assert_eq!(fs::metadata(&program).unwrap().modified().unwrap(), modified);
    assert_eq!(
        world.host.read(&world.inner("runtime/seccomp.json")),
        r#"{"other":1}"#
    );
    let second = world.host.read(&world.inner("provider.json"));
    assert!(
        first != second && second.contains(r#""generation":2"#),
        "{second}"
    );
    assert!(!world.host.path(&world.inner("images/left")).exists());
}

// inv: INV-I12
#[test]
fn docker_what_arrived_of_a_broken_download_is_kept_and_not_sent_again() {
    let world = World::new();
    let total: u64 = fs::read_dir(
        world
            .host
            .path(&format!("core/releases/{}/artifacts", world.commit)),
    )
    .unwrap()
    .map(|entry| entry.unwrap())
    .filter(|entry| !entry.file_name().to_string_lossy().ends_with("node-install"))
    .map(|entry| entry.metadata().unwrap().len())
    .sum();
    // Each transfer ends early, and each run's three tries go on where the last one ended.
    world.core.set(|state| state.breaks_after = Some(250));
    let mut runs = 0;
    while world.install().status != Some(0) {
        runs += 1;
        assert!(runs < 20);
    }
    assert!(runs > 0, "nothing broke");
    assert_eq!(world.core.state.lock().unwrap().sent, total);
}

// req: G-146, G-147
#[test]
fn docker_a_command_that_expires_during_the_download_fails_at_registration_and_keeps_the_files() {
    let world = World::new();
    let ran = world
        .host
        .run_with(&world.command(), "oac_enroll_other\n", "", &[]);
    ran.stopped("The enrollment command expired or was already used: generate a new command and run it within an hour.");
    assert!(!world.host.path("var/lib/oac-node").exists());
    // One that Core still takes for the configuration, and no more for the registration.
    world
        .core
        .set(|state| state.token = "oac_enroll_other".to_owned());
    let ran = world.host.run(&world.command(), "oac_enroll_other\n");
    ran.stopped("The enrollment command expired or was already used: generate a new command and run it within an hour.");
    assert!(world.host.path(&world.inner("bin/oac-node")).exists());
    world
        .core
        .set(|state| (state.token, state.sent) = (TOKEN.to_owned(), 0));
    world.install().ready();
    assert_eq!(world.core.state.lock().unwrap().sent, 0);
}

// inv: INV-I7
#[test]
fn docker_links_planted_in_the_home_change_nothing_outside() {
    let world = World::new();
    world.install().ready();
    let outside = world.host.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "outside").unwrap();
    for (place, target) in [("images", outside.clone()), ("bin", outside.clone())] {
        let path = world.host.path(&world.inner(place));
        let _ = fs::remove_dir_all(&path);
        world.host.link(&world.inner(place), &target);
    }
    let ran = world.install();
    assert_eq!(ran.status, Some(1), "{}", ran.out);
    world.core.forgets();
    world.uninstall(&[]).ready();
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "outside");
    assert!(!world.host.path("var/lib/oac-node").exists());
}
