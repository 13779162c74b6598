//! Publishing and removing releases.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use oac_model::SourceCommit;
use oac_records::{
    Directory, FileMode, Partial,
    steps::{Step, Verdict, watched},
};
use oac_release::{
    layout,
    manifest::{Artifact, Manifest},
    metadata::{ARTIFACTS, MANIFEST, Metadata, SUMS},
    payload::{self, PayloadError},
    store::{self, Published, Removal, Shelf, StoreError},
};

use oac_release::made::{Made, archive, artifact, commit, made};

pub(crate) struct Shop {
    temp: tempfile::TempDir,
}

/// Path, kind and mode, inode, bytes or target: what a file is to whoever serves it.
pub(crate) type Listing = BTreeMap<PathBuf, (u32, u64, Vec<u8>)>;

impl Shop {
    pub(crate) fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("releases")).unwrap();
        Self { temp }
    }

    pub(crate) fn releases(&self) -> PathBuf {
        self.temp.path().join("releases")
    }

    /// A fresh release directory beside the shop's.
    pub(crate) fn offer(&self, name: &str, made: &Made) -> PathBuf {
        let path = self.temp.path().join(name);
        let _ = std::fs::remove_dir_all(&path);
        made.write(&path)
    }

    pub(crate) fn publish(&self, from: &Path) -> Result<Published, StoreError> {
        store::publish(&self.releases(), from, false)
    }

    pub(crate) fn listing(&self) -> Listing {
        let mut found = Listing::new();
        list(&self.releases(), &mut found);
        found
    }

    pub(crate) fn shelf(&self) -> Shelf {
        Shelf::read(&self.releases(), &Shelf::default(), &Default::default()).unwrap()
    }
}

fn list(at: &Path, found: &mut Listing) {
    for entry in std::fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        let stat = std::fs::symlink_metadata(&path).unwrap();
        if path.ends_with(".publish.lock") {
            continue;
        }
        let bytes = match stat.is_file() {
            true => std::fs::read(&path).unwrap(),
            false => Vec::new(),
        };
        found.insert(path.clone(), (stat.permissions().mode(), stat.ino(), bytes));
        if stat.is_dir() {
            list(&path, found);
        }
    }
}

fn remove(from: &Path, row: &layout::Row, commit: SourceCommit) {
    std::fs::remove_file(from.join(ARTIFACTS).join(row.filename(commit))).unwrap();
}

// req: P-126, P-128
#[test]
fn a_release_is_published_whole_and_later_completed_file_by_file() {
    let shop = Shop::new();
    let made = made(commit('a'), "x");
    let offer = shop.offer("offer", &made);
    for row in [&layout::IMAGE, &layout::MSB] {
        remove(&offer, row, commit('a'));
    }
    let published = shop.publish(&offer).unwrap();
    assert!(published.is_new && published.is_current && published.added.len() == 5);
    let first = shop.listing();
    for (path, (mode, ..)) in &first {
        let expected = if path.is_dir() { 0o040_755 } else { 0o100_444 };
        assert_eq!(*mode, expected, "{}", path.display());
    }
    let again = shop.publish(&offer).unwrap();
    assert!(!again.is_new && again.added.is_empty());
    let offer = shop.offer("offer", &made);
    let added = shop.publish(&offer).unwrap().added;
    let missing = [&layout::IMAGE, &layout::MSB].map(|row| row.filename(commit('a')));
    assert_eq!(
        added.into_iter().collect::<BTreeSet<_>>(),
        BTreeSet::from(missing.clone())
    );
    let whole = shop.listing();
    assert_eq!(whole.len(), first.len() + 2);
    for (path, file) in &first {
        if !path.is_dir() && !path.ends_with("current.json") {
            assert_eq!(whole[path], *file, "{}", path.display());
        }
    }
    for name in missing {
        let file = made.metadata.manifest().named(&name).unwrap();
        let path = shop
            .releases()
            .join(commit('a').to_string())
            .join(ARTIFACTS)
            .join(&name);
        assert_eq!(whole[&path].2.len() as u64, file.size_bytes);
    }
    let second = oac_release::made::made(commit('b'), "y");
    let offer = shop.offer("offer", &second);
    let kept = store::publish(&shop.releases(), &offer, true).unwrap();
    assert!(!kept.is_current);
    assert_eq!(shop.shelf().current(), Some(commit('a')));
    shop.publish(&offer).unwrap();
    assert_eq!(shop.shelf().current(), Some(commit('b')));
}

/// What is wrong with an offered release, given its directory.
type Wrong = (&'static str, fn(&Path));

const WRONG: &[Wrong] = &[
    ("a byte of the manifest", |dir| flip(&dir.join(MANIFEST))),
    ("a byte of the sums", |dir| flip(&dir.join(SUMS))),
    ("a byte of a file", |dir| flip(&of(dir, &layout::SECCOMP))),
    ("a byte more", |dir| {
        let path = of(dir, &layout::NODE);
        let bytes = [std::fs::read(&path).unwrap(), vec![0]].concat();
        std::fs::write(path, bytes).unwrap();
    }),
    ("an empty file", |dir| {
        std::fs::write(of(dir, &layout::HELPER), "").unwrap()
    }),
    ("no manifest", |dir| {
        std::fs::remove_file(dir.join(MANIFEST)).unwrap()
    }),
    ("no sums", |dir| std::fs::remove_file(dir.join(SUMS)).unwrap()),
    ("a name beside", |dir| {
        std::fs::write(dir.join("packages.lock"), "x").unwrap()
    }),
    ("a name more", |dir| {
        std::fs::write(dir.join(ARTIFACTS).join("more"), "x").unwrap()
    }),
    ("a link to a file", |dir| link(&of(dir, &layout::NODE))),
    ("a link to the manifest", |dir| link(&dir.join(MANIFEST))),
    ("a link to the files", |dir| link(&dir.join(ARTIFACTS))),
    ("a folder for a file", |dir| {
        std::fs::remove_file(of(dir, &layout::NODE)).unwrap();
        std::fs::create_dir(of(dir, &layout::NODE)).unwrap();
    }),
    ("a file for the folder", |dir| {
        std::fs::remove_dir_all(dir.join(ARTIFACTS)).unwrap();
        std::fs::write(dir.join(ARTIFACTS), "x").unwrap();
    }),
];

fn of(dir: &Path, row: &layout::Row) -> PathBuf {
    dir.join(ARTIFACTS).join(row.filename(commit('a')))
}

fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    // Read-only, as published files are.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::write(path, bytes).unwrap();
}

fn link(path: &Path) {
    let to = path.with_extension("elsewhere");
    let to = to
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .join(to.file_name().unwrap());
    std::fs::rename(path, &to).unwrap();
    symlink(&to, path).unwrap();
}

// req: P-127, P-129
// inv: INV-R2, INV-R3
#[test]
fn whatever_is_wrong_with_a_release_nothing_of_it_is_published_and_nothing_changes() {
    let good = made(commit('a'), "x");
    for (what, wrong) in WRONG {
        // As a new release.
        let shop = Shop::new();
        let offer = shop.offer("offer", &good);
        wrong(&offer);
        shop.publish(&offer).expect_err(what);
        assert_eq!(shop.listing(), Listing::new(), "{what}");
        // To a release that lacks a file, which the offer has.
        let shop = Shop::new();
        let offer = shop.offer("part", &good);
        remove(&offer, &layout::IMAGE, commit('a'));
        shop.publish(&offer).unwrap();
        let other = shop.offer("other", &made(commit('b'), "y"));
        shop.publish(&other).unwrap();
        let before = shop.listing();
        let offer = shop.offer("offer", &good);
        wrong(&offer);
        shop.publish(&offer).expect_err(what);
        assert_eq!(shop.listing(), before, "{what}");
        // And when it is what was published that went wrong.
        let shop = Shop::new();
        let offer = shop.offer("part", &good);
        remove(&offer, &layout::IMAGE, commit('a'));
        shop.publish(&offer).unwrap();
        wrong(&shop.releases().join(commit('a').to_string()));
        let before = shop.listing();
        let offer = shop.offer("offer", &good);
        shop.publish(&offer).expect_err(what);
        assert_eq!(shop.listing(), before, "{what}");
    }
}

// req: P-129
// inv: INV-R3
#[test]
fn another_release_of_the_same_commit_is_a_conflict() {
    let shop = Shop::new();
    shop.publish(&shop.offer("offer", &made(commit('a'), "x")))
        .unwrap();
    let before = shop.listing();
    let conflict = shop
        .publish(&shop.offer("offer", &made(commit('a'), "y")))
        .unwrap_err();
    assert!(matches!(conflict, StoreError::Conflict { .. }), "{conflict:?}");
    assert_eq!(shop.listing(), before);
}

#[test]
fn a_release_without_its_installer_or_with_an_image_of_a_working_tree_is_not_published() {
    let shop = Shop::new();
    let good = made(commit('a'), "x");
    let offer = shop.offer("offer", &good);
    remove(&offer, &layout::INSTALLER, commit('a'));
    let missing = shop.publish(&offer).unwrap_err();
    assert!(missing.to_string().contains("installer"), "{missing}");

    let tag = |tag: &str| {
        let bytes = archive(&format!("oac-runtime:{}{tag}", commit('a')), "x");
        let mut files: Vec<_> = good
            .metadata
            .manifest()
            .artifacts()
            .iter()
            .cloned()
            .zip(good.files.clone())
            .collect();
        for (file, old) in &mut files {
            if layout::IMAGE.is(&file.key) {
                *file = artifact(&layout::IMAGE, commit('a'), &bytes);
                *old = bytes.clone();
            }
        }
        let (artifacts, files) = files.into_iter().unzip();
        let manifest = good.metadata.manifest();
        let manifest = oac_release::manifest::Manifest::of(commit('a'), manifest.image(), artifacts).unwrap();
        let metadata = Metadata::of(manifest);
        Made { metadata, files }
    };
    let dirty = shop.publish(&shop.offer("offer", &tag("-dirty"))).unwrap_err();
    assert!(dirty.to_string().contains("working tree"), "{dirty}");
    shop.publish(&shop.offer("offer", &tag("-minimal"))).unwrap_err();
    assert_eq!(shop.listing(), Listing::new());
    shop.publish(&shop.offer("offer", &tag(""))).unwrap();
}

// inv: INV-R13
#[test]
fn neither_the_current_release_nor_a_selected_one_is_removed_and_any_other_goes_whole() {
    let shop = Shop::new();
    for (digit, salt) in [('a', "x"), ('b', "y"), ('c', "z")] {
        shop.publish(&shop.offer("offer", &made(commit(digit), salt)))
            .unwrap();
    }
    let before = shop.listing();
    let selected = BTreeSet::from([commit('a')]);
    let remove = |digit| Removal::begin(&shop.releases(), commit(digit), &selected)?.finish(&selected);
    assert!(matches!(remove('c'), Err(StoreError::Current(_))));
    assert!(matches!(remove('a'), Err(StoreError::Selected(_))));
    assert!(matches!(remove('d'), Err(StoreError::Unknown(_))));
    assert_eq!(shop.listing(), before);
    remove('b').unwrap();
    let gone = shop.releases().join(commit('b').to_string());
    let expected: Listing = before
        .into_iter()
        .filter(|(path, _)| !path.starts_with(&gone))
        .collect();
    assert_eq!(shop.listing(), expected);
}

// inv: INV-R13
#[test]
fn a_release_that_is_selected_while_it_is_being_removed_stays() {
    let shop = Shop::new();
    for digit in ['a', 'b'] {
        shop.publish(&shop.offer("offer", &made(commit(digit), "x")))
            .unwrap();
    }
    let before = shop.listing();
    let begin = || Removal::begin(&shop.releases(), commit('a'), &BTreeSet::new()).unwrap();
    let removal = begin();
    assert!(
        shop.shelf().release(commit('a')).is_none(),
        "nobody is served from it any more"
    );
    let late = removal.finish(&BTreeSet::from([commit('a')]));
    assert!(matches!(late, Err(StoreError::Selected(_))), "{late:?}");
    assert_eq!(shop.listing(), before);
    begin().undo().unwrap();
    assert_eq!(shop.listing(), before);
    // Killed before it was certain: whoever changes the directory next gives the name back first.
    drop(begin());
    assert_ne!(shop.listing(), before);
    let needed = Removal::begin(&shop.releases(), commit('a'), &BTreeSet::from([commit('a')]));
    assert!(matches!(needed, Err(StoreError::Selected(_))));
    assert_eq!(shop.listing(), before);
    drop(begin());
    assert!(
        !shop
            .publish(&shop.offer("offer", &made(commit('a'), "x")))
            .unwrap()
            .is_new
    );
    assert!(shop.shelf().release(commit('a')).is_some());
}

#[test]
fn a_publication_that_fails_half_way_leaves_nothing_of_it() {
    for kept in [false, true] {
        let shop = Shop::new();
        let release = made(commit('a'), "x");
        if kept {
            let offer = shop.offer("offer", &release);
            remove(&offer, &layout::NODE, commit('a'));
            shop.publish(&offer).unwrap();
        }
        let before = shop.listing();
        let offer = shop.offer("offer", &release);
        let file = offer.join(ARTIFACTS).join(layout::NODE.filename(commit('a')));
        // It is exchanged when all of it was checked and its copy begins.
        let watch = move |step: &Step| {
            if matches!(step, Step::Create { path, .. } if path.to_string_lossy().contains("-node")) {
                std::fs::write(&file, "another").unwrap();
            }
            Verdict::Go
        };
        let failed = watched(watch, || shop.publish(&offer)).unwrap_err();
        assert!(failed.to_string().contains("changed while"), "{failed}");
        assert_eq!(names(&shop.listing()), names(&before));
    }
}

fn names(listing: &Listing) -> Vec<&PathBuf> {
    listing.keys().collect()
}

#[test]
fn an_archive_with_more_behind_its_end_is_not_the_image_that_the_manifest_states() {
    let shop = Shop::new();
    let good = made(commit('a'), "x");
    let mut longer = good.bytes(&layout::IMAGE).to_vec();
    // Whoever loads it reads both parts, and another image than was checked.
    longer.extend(archive("oac-runtime:another", "y"));
    let file = Artifact {
        unpacked: good.file(&layout::IMAGE).unpacked,
        ..artifact(&layout::IMAGE, commit('a'), &longer)
    };
    let manifest = good.metadata.manifest();
    let kept = manifest.artifacts().iter().cloned().zip(good.files.clone());
    let files = kept.map(|(old, bytes)| match layout::IMAGE.is(&old.key) {
        true => (file.clone(), longer.clone()),
        false => (old, bytes),
    });
    let (artifacts, files) = files.unzip();
    let manifest = Manifest::of(commit('a'), manifest.image(), artifacts).unwrap();
    let metadata = Metadata::of(manifest);
    let refused = shop
        .publish(&shop.offer("offer", &Made { metadata, files }))
        .unwrap_err();
    assert!(refused.to_string().contains("unpacks to"), "{refused}");

    let temp = tempfile::tempdir().unwrap();
    let node = Directory::create(&temp.path().join("node")).unwrap();
    let mut partial = Partial::begin(&node, "archive", FileMode::Data).unwrap();
    partial.append(&longer).unwrap();
    partial.publish().unwrap();
    let unpacked = good.file(&layout::IMAGE).unpacked.unwrap();
    let refused = payload::unpack(&node, "archive", "image", unpacked);
    assert!(matches!(refused, Err(PayloadError::Checksum(_))), "{refused:?}");
}

#[test]
fn one_publishes_at_a_time_and_root_does_not() {
    let shop = Shop::new();
    let offer = shop.offer("offer", &made(commit('a'), "x"));
    let lock = std::fs::File::create(shop.releases().join(".publish.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    assert!(matches!(shop.publish(&offer), Err(StoreError::Busy)));
    drop(lock);
    shop.publish(&offer).unwrap();
    let checked = store::check_owner(&shop.releases());
    match rustix::process::geteuid().is_root() {
        true => assert!(matches!(checked, Err(StoreError::Root)), "{checked:?}"),
        false => checked.unwrap(),
    }
}
