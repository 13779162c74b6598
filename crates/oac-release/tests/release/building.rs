//! The release of this checkout, as `cargo xtask dist` builds it: once where the files are, once from a copy of them in
//! another place and from nothing.

use std::{path::PathBuf, process::Command};

use oac_release::{
    layout::{self, Row},
    metadata::{ARTIFACTS, MANIFEST, Metadata, SUMS},
};

use crate::assembling::listing;

/// The folder of the two.
fn releases() -> PathBuf {
    std::env::var_os("OAC_TEST_RELEASES")
        .unwrap_or_else(|| panic!("OAC_TEST_RELEASES is not set: run through cargo xtask test"))
        .into()
}

fn metadata() -> Metadata {
    let read = |name| std::fs::read(releases().join("one").join(name)).unwrap();
    Metadata::parse(read(MANIFEST), read(SUMS)).unwrap()
}

fn path(row: &Row) -> PathBuf {
    let filename = row.filename(metadata().source_commit());
    releases().join("one").join(ARTIFACTS).join(filename)
}

// inv: INV-R1
#[test]
fn e2e_two_builds_of_one_commit_in_two_places_are_the_same_release_byte_for_byte() {
    let [one, two] = ["one", "two"].map(|name| listing(&releases().join(name)));
    let names = |files: &[(PathBuf, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&one), names(&two));
    for ((name, one), (_, two)) in one.iter().zip(&two) {
        assert!(one == two, "{} differs between the two builds", name.display());
    }
}

#[test]
fn e2e_the_release_holds_a_node_program_that_runs_without_libraries_and_knows_no_path_of_the_builder() {
    let program = path(&layout::NODE);
    let bytes = std::fs::read(&program).unwrap();
    assert!(bytes.starts_with(b"\x7fELF"));
    // The loader of dynamic programs, which a static one does not name.
    let holds = |text: &str| bytes.windows(text.len()).any(|found| found == text.as_bytes());
    assert!(!holds("/lib64/ld-linux-x86-64.so.2"));
    let home = std::env::var("HOME").unwrap();
    for path in [env!("CARGO_MANIFEST_DIR"), &format!("{home}/.cargo")] {
        assert!(!holds(path), "{path}");
    }
    let temp = tempfile::tempdir().unwrap();
    // Published and built files need not be executable; a node's copy is.
    let copy = temp.path().join("oac-node");
    std::fs::copy(&program, &copy).unwrap();
    std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let said = Command::new(&copy).arg("--help").output().unwrap();
    assert!(said.status.success(), "{said:?}");
}
