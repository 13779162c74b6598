//! The surface file is what the types say.

use std::{fs, path::Path};

#[test]
fn the_checked_in_surface_of_this_version_is_what_the_types_say() {
    let version = oac_wire::PROTOCOL_VERSION;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("surface-v{version}.txt"));
    let surface = oac_wire::surface();
    let kept = fs::read_to_string(&path).unwrap_or_default();
    if std::env::var_os("OAC_WRITE_GENERATED").is_some() && kept.is_empty() {
        fs::write(&path, surface).unwrap();
        return;
    }
    let differs = kept
        .lines()
        .zip(surface.lines())
        .find(|(kept, now)| kept != now)
        .map_or_else(String::new, |(kept, now)| {
            format!("first difference:\n  file:  {kept}\n  types: {now}\n")
        });
    assert!(
        kept == surface,
        "the types no longer speak version {version} as {} shows it. {differs}\
         A changed surface is a changed protocol: raise PROTOCOL_VERSION in crates/oac-wire/src/lib.rs, then write the \
         new version's file with `cargo xtask tidy --write`. A version that no program of a release has spoken yet may \
         change: delete its file first.",
        path.display()
    );
}
