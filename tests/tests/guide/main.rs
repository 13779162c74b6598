//! What the guide promises to say, in the section where a reader looks for it; and that its commands, settings and
//! messages are those of the programs.

mod commands;
mod settings;

/// The pages of the guide that are written by hand, decisions left out.
fn pages() -> Vec<(String, String)> {
    let folder = format!("{}/../docs", env!("CARGO_MANIFEST_DIR"));
    let mut pages: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .filter(|(name, _)| name != "requirements.md")
        .collect();
    pages.sort();
    pages
}

/// The text below the heading `heading` of `page`, up to the next heading of its level or above, on one line.
fn section(page: &str, heading: &str) -> String {
    let path = format!("{}/../docs/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let level = |line: &str| line.bytes().take_while(|byte| *byte == b'#').count();
    let mut lines = text.lines().skip_while(|line| *line != heading);
    let first = lines.next();
    assert!(first.is_some(), "{page} has no {heading}");
    let depth = level(heading);
    let inside: Vec<_> = lines
        .take_while(|line| !(1..=depth).contains(&level(line)))
        .collect();
    inside.join(" ")
}

#[track_caller]
fn says(text: &str, what: &[&str]) {
    for words in what {
        assert!(text.contains(words), "{words:?} is not said in: {text}");
    }
}

// req: G-241
#[test]
fn an_operator_is_told_to_restart_a_failed_host_and_not_to_remove_its_node() {
    let text = section("nodes.md", "## When a node host fails");
    says(
        &text,
        &["Restart a host that crashed or hangs. Do not remove its node."],
    );
}

// req: G-248
#[test]
fn an_operator_is_told_that_a_lost_state_directory_is_restored_and_not_registered_over() {
    let text = section("nodes.md", "## When a node host fails");
    says(
        &text,
        &[
            "lost its state directory is a recovery incident: restore it from that backup",
            "together with Core's database and what the backend stores",
            "Do not register the host again over existing containers",
        ],
    );
}

// req: G-009
#[test]
fn the_deployments_contract_names_each_setting_and_when_a_change_of_it_applies() {
    let settings = section("sandbox-deployment.md", "## Settings");
    let rows = [
        ("`provider`", "[reset](reset.md)"),
        ("`resources.cpus`", "1 to 255 | to new sandboxes"),
        ("`resources.memory_mib`", "512 to 1,048,576 | to new sandboxes"),
        ("`resources.root_disk_mib`", "none for Docker"),
        ("`runtime`", "to new sandboxes, as a new generation"),
        ("`idle_seconds`", "to every sandbox at once; the generation stays"),
    ];
    for (setting, rule) in rows {
        let row = settings.split("| |").find(|row| row.contains(setting));
        says(row.unwrap_or_else(|| panic!("no row of {setting}")), &[rule]);
    }
    let rules = section("sandbox-deployment.md", "## Rules");
    says(
        &rules,
        &[
            "sandbox_reset_required",
            "sandbox_reset_in_progress",
            "refused as stale",
            "Existing sandboxes keep the generation they began with",
        ],
    );
}

// req: G-189
#[test]
fn the_resets_contract_says_what_is_archived_and_what_is_kept() {
    let text = section("reset.md", "## What it archives and what it keeps");
    says(
        &text,
        &[
            "every Session: it is archived",
            "every sandbox with its files",
            "every node and every unused token",
            "the saved configuration and the suspension policy",
            "Projects and their keys",
            "the audit log",
            "Turns, their output",
        ],
    );
    says(
        &section("reset.md", "## Cancel"),
        &["Sessions that were archived stay archived"],
    );
}

// req: G-062, G-098
#[test]
fn whoever_adds_a_node_is_warned_of_what_could_give_the_token_away() {
    for (page, heading) in [("nodes.md", "## Add a node"), ("installer.md", "## Run it")] {
        says(
            &section(page, heading),
            &[
                "A sudoers policy with `log_input` records standard input, and so the token.",
                "Do not put credentials in command arguments, and do not share shell traces.",
            ],
        );
    }
}

// req: P-166
#[test]
fn docker_images_are_the_host_administrators_alone_to_remove() {
    says(
        &section(
            "change-the-configuration.md",
            "# Change the sandbox configuration",
        ),
        &[
            "Docker images are never removed: they belong to the host.",
            "Only the host's administrator can remove one, after confirming that no installation on the host needs it.",
        ],
    );
}

// req: G-197
#[test]
fn the_checkpoint_transfers_contract_says_what_store_hosts_and_time_must_be() {
    let page = "checkpoint-transfer.md";
    says(
        &section(page, "## The store"),
        &[
            "| isolation | rule |",
            "the account `oac-node` alone, mode 0700",
            "Each checkpoint has a directory of its own",
            "captures, restores and deletes nothing",
            "directories that no record names are never touched",
        ],
    );
    says(
        &section(page, "## What must agree"),
        &[
            "| compatibility | is |",
            "the checkpoint's own store",
            "the host's kernel release and its CPU",
            "the sandbox's own generation, proven ready",
            "manifest, sizes and SHA-256 of every file",
            "Where no node fits, the request waits.",
        ],
    );
    says(
        &section(page, "## How long it is kept"),
        &[
            "`retention_seconds` of the [deployment]",
            "No failed restore and no elapsed wait ends it.",
        ],
    );
}

// req: G-202
#[test]
fn before_maintenance_an_operator_is_told_to_keep_a_node_that_the_checkpoints_fit() {
    says(
        &section("checkpoint-recovery.md", "## Before maintenance"),
        &[
            "Keep another node available that has the matching execution class, the same store and the same generation ready.",
            "unusable even on the node that made them",
        ],
    );
}

// req: G-250
#[test]
fn troubleshooting_covers_connection_failures_and_what_installer_and_command_say() {
    let page = "troubleshooting.md";
    let connections = section(page, "## Connection failures");
    for what in [
        "`offline`",
        "cannot be reached",
        "the proxy … refused a connection",
        "TLS with … failed",
        "`the upgrade was answered 4xx`",
        "`starting` for minutes",
    ] {
        says(&connections, &[what]);
    }
    // The installer's own table is held equal to its hints by a test of the installer.
    let messages = section(page, "## Installer messages");
    let script = include_str!("../../../crates/oac-release/assets/bootstrap.sh");
    let mut told = 0;
    for line in script.lines().filter(|line| !line.starts_with('#')) {
        for text in line.split("die \"").skip(1) {
            let text = text.split('"').next().unwrap();
            assert_explained(&messages, text);
            told += 1;
        }
    }
    assert!(told >= 8, "the script's refusals are found: {told}");
}

/// `messages` has a row of cause and remedy for a text of the script, its variables shown as ellipses.
fn assert_explained(messages: &str, text: &str) {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        shown.push_str(before);
        shown.push('…');
        rest = after.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    }
    shown.push_str(rest);
    let row = messages
        .split("| |")
        .find(|row| row.contains(&format!("`{shown}`")));
    let row = row.unwrap_or_else(|| panic!("{shown:?} is not explained"));
    let cells = row.split('|').take(3).filter(|cell| cell.trim().len() > 3);
    assert_eq!(cells.count(), 3, "{shown}");
}
