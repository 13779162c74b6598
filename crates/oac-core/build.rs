//! Writes the table of the console's files, which `cargo xtask console --build` leaves in `console/embedded`. Without them
//! the table is empty, so that Core is built without Node as well.
#![allow(clippy::print_stdout, reason = "cargo reads it")]

use std::{
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

fn main() -> io::Result<()> {
    let folder = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../../console/embedded");
    // The folder is part of the checkout: a path that is missing would count as changed for ever.
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    list(&folder, &folder, &mut files)?;
    files.sort();
    let mut table = String::from("static FILES: &[File] = &[\n");
    for (name, path) in files.iter().filter(|(name, _)| !name.ends_with(".gz")) {
        let packed = files.iter().find(|(other, _)| *other == format!("{name}.gz"));
        let packed = packed.map_or_else(
            || "None".to_owned(),
            |(_, path)| format!("Some(include_bytes!({path:?}))"),
        );
        let _ = writeln!(
            table,
            "    File {{ name: {name:?}, bytes: include_bytes!({path:?}), packed: {packed} }},"
        );
    }
    table.push_str("];\n");
    fs::write(Path::new(&variable("OUT_DIR")).join("console_files.rs"), table)
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Every file below `folder` by its name relative to `root`, but those that version control reads.
fn list(root: &Path, folder: &Path, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(root, &path, files)?;
        } else if let Ok(name) = path.strip_prefix(root)
            && !name.to_string_lossy().starts_with('.')
        {
            files.push((name.to_string_lossy().into_owned(), path.canonicalize()?));
        }
    }
    Ok(())
}
