//! The installer, run as root on a scratch host against this machine's Docker Engine and a scripted Core; and, where the
//! account data base, systemd and the engine have to be real, on hosts of their own.

mod core;
mod doctor;
mod engine;
mod installing;
mod interrupted;
mod lacking;
mod proxied;
mod real;
mod refusing;
mod removing;
mod scratch;
mod serving;
mod unfinished;
mod world;

/// What no run of a test meets: the reason.
const UNMET: [(&str, &str); 3] = [
    ("HostBusy", "a wait of ten minutes"),
    (
        "Stalled",
        "a wait of a minute; releases are read in virtual time by their own tests",
    ),
    (
        "CheckpointRootDiffers",
        "no node of that backend can be registered yet",
    ),
];

#[test]
fn each_hint_is_met_by_a_run_of_these_tests() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/host");
    let files = std::fs::read_dir(folder).unwrap();
    let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let text: String = texts.collect();
    for (name, hint) in oac_install::hint::Hint::ALL {
        // Its first words that are no value's.
        let mut parts = hint.split(['{', '}']).step_by(2);
        let part = parts.find(|part| part.len() >= 10).unwrap();
        let words: String = part.chars().take(24).collect();
        let is_unmet = UNMET.iter().any(|(unmet, _)| unmet == name);
        assert_eq!(text.contains(words.as_str()), !is_unmet, "{name}: {words}");
    }
}
