//! A place for a host, and what is in it.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

/// A directory with a short path, in memory where the host has one: a store's path is bounded.
pub(crate) fn base() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let within = if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    };
    tempfile::TempDir::new_in(within).expect("a temporary directory")
}

/// Everything below `path`: mode, inode and bytes by relative path.
pub(crate) fn snapshot(path: &Path) -> BTreeMap<String, (u32, u64, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut left = vec![path.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).expect("readable") {
            let entry = entry.expect("readable").path();
            let meta = fs::symlink_metadata(&entry).expect("there");
            let bytes = if meta.is_file() {
                fs::read(&entry).expect("readable")
            } else {
                Vec::new()
            };
            let name = entry
                .strip_prefix(path)
                .expect("below")
                .to_string_lossy()
                .into_owned();
            all.insert(name, (meta.permissions().mode(), meta.ino(), bytes));
            if meta.is_dir() {
                left.push(entry);
            }
        }
    }
    all
}

/// Without `install.lock`, which every run makes.
pub(crate) fn records(path: &Path) -> BTreeMap<String, (u32, u64, Vec<u8>)> {
    let mut all = snapshot(path);
    all.retain(|name, _| name != "install.lock");
    all
}
