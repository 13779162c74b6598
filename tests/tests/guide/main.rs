//! What the guide promises to say, in the section where a reader looks for it.

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
