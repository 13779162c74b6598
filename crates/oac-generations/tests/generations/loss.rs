//! What a power loss may leave of a disk: worked out from the steps of the product's own file layer.
//!
//! A name keeps any of the values it had since its directory was last synced, each name for itself; a file keeps what
//! was synced of it, and of the rest nothing or a part. That is more than any file system of ours does.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use oac_generations::{
    State,
    layout::{Kind, Name},
    records::{Collecting, Plan, Record},
    state::Files,
};
use oac_records::{FileMode, steps::Step};

use crate::scene::{self, generation};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Inode {
    Directory,
    File {
        mode: u32,
        seen: Vec<u8>,
        synced: Vec<u8>,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Disk {
    base: PathBuf,
    inodes: Vec<Inode>,
    /// Since the last sync of the directory; the last value is the visible one.
    names: BTreeMap<PathBuf, Vec<Option<usize>>>,
}

/// One disk after a loss: what is at each path.
pub(crate) type Left = BTreeMap<PathBuf, Option<(u32, Vec<u8>)>>;

/// More choices than this at one moment are thinned out evenly.
const CHOICES: usize = 48;

impl Disk {
    /// Everything below `base` but the engine's own files, durable.
    pub(crate) fn of(base: &Path) -> Self {
        let mut disk = Self {
            base: base.to_owned(),
            inodes: Vec::new(),
            names: BTreeMap::new(),
        };
        for (name, (mode, _, bytes)) in crate::snapshot(base) {
            if name.starts_with("outside") || name.starts_with("stash") {
                continue;
            }
            let inode = if base.join(&name).is_dir() {
                Inode::Directory
            } else {
                Inode::File {
                    mode: mode & 0o7777,
                    seen: bytes.clone(),
                    synced: bytes,
                }
            };
            disk.inodes.push(inode);
            disk.names
                .insert(base.join(name), vec![Some(disk.inodes.len() - 1)]);
        }
        disk
    }

    fn seen(&self, path: &Path) -> Option<usize> {
        self.names.get(path).and_then(|values| *values.last()?)
    }

    fn name(&mut self, path: &Path, value: Option<usize>) {
        self.names
            .entry(path.to_owned())
            .or_insert_with(|| vec![None])
            .push(value);
    }

    fn add(&mut self, path: &Path, inode: Inode) {
        if self.seen(path).is_none() {
            self.inodes.push(inode);
            self.name(path, Some(self.inodes.len() - 1));
        }
    }

    /// The step was made.
    pub(crate) fn apply(&mut self, step: &Step) {
        match step {
            Step::MakeDirectory { path } => self.add(path, Inode::Directory),
            Step::Create { path, mode } => self.add(
                path,
                Inode::File {
                    mode: *mode,
                    seen: Vec::new(),
                    synced: Vec::new(),
                },
            ),
            Step::Append { path, bytes } => {
                let inode = self.seen(path).expect("appended to what is there");
                if let Inode::File { seen, .. } = &mut self.inodes[inode] {
                    seen.extend_from_slice(bytes);
                }
            }
            Step::SyncFile { path } => {
                let inode = self.seen(path).expect("synced what is there");
                if let Inode::File { seen, synced, .. } = &mut self.inodes[inode] {
                    synced.clone_from(seen);
                }
            }
            Step::Rename { from, to, replaces } => {
                if *replaces || self.seen(to).is_none() {
                    let inode = self.seen(from);
                    self.name(from, None);
                    self.name(to, inode);
                }
            }
            Step::Unlink { path } | Step::RemoveDirectory { path } => {
                if self.seen(path).is_some() {
                    self.name(path, None);
                }
            }
            Step::SyncDirectory { path } => {
                for (name, values) in &mut self.names {
                    if name.parent() == Some(path) {
                        let last = values.pop();
                        values.clear();
                        values.extend(last);
                    }
                }
            }
            Step::Outside { .. } => {}
        }
    }

    /// Every disk that a loss at this moment may leave.
    pub(crate) fn losses(&self) -> Vec<Left> {
        let torn = self
            .inodes
            .iter()
            .any(|inode| matches!(inode, Inode::File { seen, synced, .. } if seen != synced));
        let mut all: Vec<BTreeMap<&PathBuf, Option<usize>>> = vec![BTreeMap::new()];
        for (name, values) in &self.names {
            let mut distinct = values.clone();
            distinct.sort_unstable();
            distinct.dedup();
            all = all
                .iter()
                .flat_map(|chosen| {
                    distinct.iter().map(|value| {
                        let mut chosen = chosen.clone();
                        chosen.insert(name, *value);
                        chosen
                    })
                })
                .collect();
            if all.len() > CHOICES {
                let every = all.len().div_ceil(CHOICES);
                // The first and the last stay: nothing kept, and everything.
                let last = all.last().cloned();
                all = all.into_iter().step_by(every).chain(last).collect();
            }
        }
        let contents: &[bool] = if torn { &[false, true] } else { &[false] };
        let left = |chosen: &BTreeMap<&PathBuf, Option<usize>>, part: bool| self.left(chosen, part);
        all.iter()
            .flat_map(|chosen| contents.iter().map(move |part| left(chosen, *part)))
            .collect()
    }

    fn left(&self, chosen: &BTreeMap<&PathBuf, Option<usize>>, part: bool) -> Left {
        let mut left = Left::new();
        for (name, value) in chosen {
            let Some(inode) = value else { continue };
            let parent = name.parent().expect("below the base");
            if parent != self.base && !left.contains_key(parent) {
                continue;
            }
            // A rename takes one name away and gives the other: never both.
            let also = chosen
                .iter()
                .any(|(other, found)| found == value && *other > *name);
            if also && matches!(self.inodes[*inode], Inode::File { .. }) {
                continue;
            }
            let content = match &self.inodes[*inode] {
                Inode::Directory => None,
                Inode::File { mode, seen, synced } => {
                    let extra = if part { (seen.len() - synced.len()) / 2 } else { 0 };
                    Some((*mode, seen[..synced.len() + extra].to_vec()))
                }
            };
            left.insert((*name).clone(), content);
        }
        left
    }

    /// Makes the disk what is left. Leases keep their inodes, which their records name: one that is not there now is
    /// laid aside for the next time.
    pub(crate) fn leave(&self, left: &Left) {
        let stash = self.base.join("stash");
        scene::make(&stash);
        let aside = |path: &Path| stash.join(path.file_name().expect("a name"));
        let is_lease = |path: &Path| path.extension().is_some_and(|e| e == "lease");
        let mut present: Vec<PathBuf> = crate::snapshot(&self.base)
            .into_keys()
            .map(|n| self.base.join(n))
            .collect();
        present.retain(|path| !path.starts_with(&stash) && !path.starts_with(self.base.join("outside")));
        for path in present.iter().rev().filter(|path| !left.contains_key(*path)) {
            if path.is_dir() {
                fs::remove_dir(path).expect("empty by now");
            } else if is_lease(path) {
                fs::rename(path, aside(path)).expect("laid aside");
            } else {
                fs::remove_file(path).expect("removed");
            }
        }
        for (path, content) in left {
            match content {
                None => scene::make(path),
                Some(_) if is_lease(path) && path.exists() => {}
                Some(_) if is_lease(path) => fs::rename(aside(path), path).expect("brought back"),
                Some((mode, bytes)) => {
                    let _ = fs::remove_file(path);
                    scene::write(path, bytes, FileMode::Data);
                    fs::set_permissions(path, fs::Permissions::from_mode(*mode)).expect("its mode");
                }
            }
        }
    }
}

/// What the records of generation `n` say on a disk that is left.
pub(crate) fn state(left: &Left, generations: &Path, n: i64) -> State {
    let file = |kind| {
        let path = generations.join(Name(generation(n), kind).to_string());
        left.get(&path)
            .and_then(|content| content.as_ref())
            .map(|(_, bytes)| bytes)
    };
    let enrolled = n == 1;
    State::of(Files {
        configuration: enrolled || file(Kind::Configuration).is_some(),
        preparing: file(Kind::Preparing).map(|bytes| Plan::decode(bytes).expect("whole").import_started),
        collecting: file(Kind::Collecting)
            .map(|bytes| Collecting::decode(bytes).expect("whole").native_complete),
        dropped: file(Kind::Dropped).is_some(),
    })
}
