//! The one layer on top of the base: the runtime, its account and its folders. Entries are sorted, owners numeric and
//! times the image's, so the same input gives the same bytes.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read, Write},
    path::Path,
};

/// The account that sandboxes run as.
const UID: u64 = 1000;

enum Entry {
    Folder { mode: u32, owner: u64 },
    File { mode: u32, bytes: Vec<u8> },
    Link { target: &'static str },
}

/// Writes the layer to `out`. `base` gives the account files that the layer extends; without one they hold root alone.
pub(crate) fn write_layer(
    out: impl Write,
    base: Option<&Path>,
    runtime: &Path,
    created: u64,
) -> io::Result<()> {
    let accounts = match base {
        Some(base) => account_files(base)?,
        None => BTreeMap::new(),
    };
    let account = |name: &str, root: &str, line: &str| {
        let mut text = accounts.get(name).cloned().unwrap_or_else(|| root.to_owned());
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(line);
        text.into_bytes()
    };
    let file = |bytes, mode| Entry::File { mode, bytes };
    let private = || Entry::Folder {
        mode: 0o700,
        owner: UID,
    };
    let entries: BTreeMap<&str, Entry> = BTreeMap::from([
        (
            "environment/",
            Entry::Folder {
                mode: 0o755,
                owner: UID,
            },
        ),
        // The folders of `/environment`, as the image's label `io.oac.layout` promises (docs/decisions/0002).
        ("environment/initialization/", private()),
        ("environment/packages/", private()),
        ("environment/workspace/", private()),
        (
            "etc/",
            Entry::Folder {
                mode: 0o755,
                owner: 0,
            },
        ),
        (
            "etc/group",
            file(account("group", "root:x:0:\n", "runtime:x:1000:\n"), 0o644),
        ),
        (
            "etc/passwd",
            file(
                account(
                    "passwd",
                    "root:x:0:0:root:/root:/bin/bash\n",
                    "runtime:x:1000:1000:runtime:/home/runtime:/bin/bash\n",
                ),
                0o644,
            ),
        ),
        (
            "home/",
            Entry::Folder {
                mode: 0o755,
                owner: UID,
            },
        ),
        (
            "tmp/",
            Entry::Folder {
                mode: 0o1777,
                owner: 0,
            },
        ),
        (
            "usr/",
            Entry::Folder {
                mode: 0o755,
                owner: 0,
            },
        ),
        (
            "usr/local/",
            Entry::Folder {
                mode: 0o755,
                owner: 0,
            },
        ),
        (
            "usr/local/bin/",
            Entry::Folder {
                mode: 0o755,
                owner: 0,
            },
        ),
        ("usr/local/bin/oac-runtime", file(fs::read(runtime)?, 0o755)),
        (
            "workspace",
            Entry::Link {
                target: "/environment/workspace",
            },
        ),
    ]);
    let mut tar = tar::Builder::new(out);
    for (path, entry) in &entries {
        let mut header = tar::Header::new_ustar();
        header.set_mtime(created);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(0);
        match entry {
            Entry::Folder { mode, owner } => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_mode(*mode);
                header.set_uid(*owner);
                header.set_gid(*owner);
                tar.append_data(&mut header, path, io::empty())?;
            }
            Entry::File { mode, bytes } => {
                header.set_entry_type(tar::EntryType::Regular);
                header.set_mode(*mode);
                header.set_size(bytes.len() as u64);
                tar.append_data(&mut header, path, bytes.as_slice())?;
            }
            Entry::Link { target } => {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_mode(0o777);
                tar.append_link(&mut header, path, target)?;
            }
        }
    }
    tar.into_inner()?.flush()
}

/// `passwd` and `group` of a base.
fn account_files(base: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let mut archive = tar::Archive::new(fs::File::open(base)?);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let Ok(path) = path
            .strip_prefix("./")
            .map_or(Ok(path.as_path()), Ok::<&Path, ()>)
        else {
            continue;
        };
        let Some(name) = path
            .strip_prefix("etc")
            .ok()
            .and_then(Path::to_str)
            .map(str::to_owned)
        else {
            continue;
        };
        if matches!(name.as_str(), "passwd" | "group") {
            let mut text = String::new();
            entry.read_to_string(&mut text)?;
            found.insert(name, text);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layer_ships_the_private_folders_that_the_layout_label_promises() {
        let runtime = tempfile::NamedTempFile::new().unwrap();
        let mut bytes = Vec::new();
        write_layer(&mut bytes, None, runtime.path(), 0).unwrap();
        let mut found = Vec::new();
        for entry in tar::Archive::new(&bytes[..]).entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            let path = entry.path().unwrap().display().to_string();
            if path.starts_with("environment/") && path.trim_end_matches('/').contains('/') {
                let facts = (
                    header.mode().unwrap(),
                    header.uid().unwrap(),
                    header.gid().unwrap(),
                );
                assert_eq!(facts, (0o700, UID, UID), "{path}");
                found.push(path.trim_end_matches('/').to_owned());
            }
        }
        let names = ["initialization", "packages", "workspace"].map(|n| format!("environment/{n}"));
        assert_eq!(found, names);
    }
}
