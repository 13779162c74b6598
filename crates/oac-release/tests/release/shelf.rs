//! What Core may serve of a release directory.

use std::{
    io::Read as _,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
};

use oac_release::{
    layout,
    metadata::ARTIFACTS,
    store::{self, Holding, Shelf, Verdicts},
};

use oac_release::made::{commit, made, made_of};

use crate::publishing::Shop;

/// Reads the shelf and hashes everything, as Core does in the background.
fn hashed(shop: &Shop, before: &Shelf, verdicts: &mut Verdicts) -> Shelf {
    loop {
        let shelf = Shelf::read(&shop.releases(), before, verdicts).unwrap();
        let Some((commit, artifact, key)) = shelf.unread().next() else {
            return shelf;
        };
        let verdict = store::verify(&shop.releases(), commit, &artifact, key).unwrap();
        verdicts.insert((key, artifact.sha256), verdict.unwrap());
    }
}

// inv: INV-R6
#[test]
fn a_file_whose_bytes_are_wrong_counts_as_missing_and_is_never_opened() {
    let shop = Shop::new();
    let release = made(commit('a'), "x");
    shop.publish(&shop.offer("offer", &release)).unwrap();
    let mut verdicts = Verdicts::new();
    let shelf = hashed(&shop, &Shelf::default(), &mut verdicts);
    assert!(shelf.problems.is_empty() && verdicts.values().all(|right| *right));
    let name = layout::SECCOMP.filename(commit('a'));
    let path = shop
        .releases()
        .join(commit('a').to_string())
        .join(ARTIFACTS)
        .join(&name);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    // Not looked at again yet, and already another file than the one that was hashed.
    assert!(shelf.open(commit('a'), &name).unwrap().is_none());
    let after = hashed(&shop, &shelf, &mut verdicts);
    assert!(after.open(commit('a'), &name).unwrap().is_none());
    assert_eq!(after.problems.len(), 1);
    let index = after.index(false).unwrap();
    assert!(!index.providers.docker && index.providers.microsandbox);
    assert!(after.index(true).unwrap().providers.docker);
    let other = layout::NODE.filename(commit('a'));
    let (mut file, _) = after.open(commit('a'), &other).unwrap().unwrap();
    let mut served = Vec::new();
    file.read_to_end(&mut served).unwrap();
    assert_eq!(served, release.bytes(&layout::NODE));
}

// inv: INV-R5
#[test]
fn what_metadata_said_once_it_goes_on_saying() {
    let shop = Shop::new();
    let release = made(commit('a'), "x");
    shop.publish(&shop.offer("offer", &release)).unwrap();
    let before = shop.shelf();
    // Somebody exchanges the whole release by hand.
    let folder = shop.releases().join(commit('a').to_string());
    std::fs::remove_dir_all(&folder).unwrap();
    made(commit('a'), "other").write(&folder);
    let after = hashed(&shop, &before, &mut Verdicts::new());
    let shelved = after.release(commit('a')).unwrap();
    assert_eq!(*shelved.metadata, release.metadata);
    assert!(
        shelved
            .files
            .iter()
            .all(|holding| matches!(holding, Holding::Wrong))
    );
}

#[test]
fn what_cannot_be_read_now_stays_what_it_was() {
    let shop = Shop::new();
    shop.publish(&shop.offer("offer", &made(commit('a'), "x")))
        .unwrap();
    let mut verdicts = Verdicts::new();
    let release = shop.releases().join(commit('a').to_string());
    let name = layout::SECCOMP.filename(commit('a'));
    // Of a socket the system says that it cannot be opened, and nothing about bytes.
    for path in [
        release.join(ARTIFACTS).join(&name),
        shop.releases().join("current.json"),
    ] {
        let before = hashed(&shop, &Shelf::default(), &mut verdicts);
        let aside = path.with_extension("aside");
        std::fs::rename(&path, &aside).unwrap();
        // Made where its path is short enough for a socket's.
        let made = tempfile::tempdir().unwrap();
        let socket = std::os::unix::net::UnixListener::bind(made.path().join("s")).unwrap();
        std::fs::rename(made.path().join("s"), &path).unwrap();
        let during = hashed(&shop, &before, &mut verdicts);
        assert_eq!(during.current(), Some(commit('a')));
        assert_eq!(
            during.release(commit('a')).unwrap().files,
            before.release(commit('a')).unwrap().files
        );
        // Read for the first time, it is not there, and no file is called wrong.
        let first = Shelf::read(&shop.releases(), &Shelf::default(), &verdicts).unwrap();
        assert!(
            !first
                .release(commit('a'))
                .unwrap()
                .files
                .contains(&Holding::Wrong)
        );
        drop(socket);
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&aside, &path).unwrap();
    }
}

// inv: INV-R2
#[test]
fn a_release_with_invalid_metadata_is_no_release() {
    let shop = Shop::new();
    shop.publish(&shop.offer("offer", &made(commit('a'), "x")))
        .unwrap();
    let folder = shop.releases().join(commit('a').to_string());
    for (name, text) in [("manifest.json", "{}"), ("SHA256SUMS", "")] {
        let path = folder.join(name);
        let good = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, text).unwrap();
        let shelf = shop.shelf();
        assert_eq!(
            (shelf.current(), shelf.releases().count(), shelf.problems.len()),
            (None, 0, 1)
        );
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, good).unwrap();
    }
    // Under another commit's name it is none either.
    std::fs::rename(&folder, shop.releases().join(commit('b').to_string())).unwrap();
    assert_eq!(shop.shelf().releases().count(), 0);
}

// inv: INV-R15
#[test]
fn a_provider_is_complete_when_each_file_it_needs_is_held_or_found_elsewhere() {
    let rows = [layout::NODE, layout::INSTALLER, layout::IMAGE, layout::SECCOMP];
    let release = made_of(commit('a'), &rows, |row| row.key.into());
    let shop = Shop::new();
    shop.publish(&shop.offer("offer", &release)).unwrap();
    let index = shop.shelf().index(true).unwrap();
    // It holds no file of microsandbox at all, wherever they might be redirected to.
    assert!(index.providers.docker && !index.providers.microsandbox);
    assert_eq!(index.manifest_sha256, release.metadata.manifest_sha256());
    assert_eq!(index.releases, [commit('a')]);
    let installer = index.installer.0.unwrap();
    assert_eq!(installer.filename, layout::INSTALLER.filename(commit('a')));
    for row in [layout::IMAGE, layout::SECCOMP, layout::NODE, layout::INSTALLER] {
        let shop = Shop::new();
        shop.publish(&shop.offer("offer", &release)).unwrap();
        let path = shop.releases().join(commit('a').to_string()).join(ARTIFACTS);
        std::fs::remove_file(path.join(row.filename(commit('a')))).unwrap();
        assert!(
            !shop.shelf().index(false).unwrap().providers.docker,
            "{}",
            row.key
        );
        // The installer is never found elsewhere.
        let elsewhere = shop.shelf().index(true).unwrap();
        assert_eq!(elsewhere.providers.docker, row != layout::INSTALLER);
        assert_eq!(elsewhere.installer.0.is_some(), row != layout::INSTALLER);
    }
    assert!(Shop::new().shelf().index(true).is_none());
}

// inv: INV-R6
#[test]
fn a_file_that_is_right_in_one_release_is_not_thereby_right_in_another() {
    let shop = Shop::new();
    let (right, wrong) = (made(commit('a'), "one"), made(commit('b'), "two"));
    for release in [&right, &wrong] {
        shop.publish(&shop.offer("offer", release)).unwrap();
    }
    let path = |digit| {
        let folder = shop.releases().join(commit(digit).to_string()).join(ARTIFACTS);
        folder.join(layout::SECCOMP.filename(commit(digit)))
    };
    // One file with two names, of one size, as a copying program that saves room leaves it.
    std::fs::remove_file(path('b')).unwrap();
    std::fs::hard_link(path('a'), path('b')).unwrap();
    let shelf = hashed(&shop, &Shelf::default(), &mut Verdicts::new());
    let name = |digit| layout::SECCOMP.filename(commit(digit));
    assert!(shelf.open(commit('a'), &name('a')).unwrap().is_some());
    assert!(shelf.open(commit('b'), &name('b')).unwrap().is_none());
    assert!(!shelf.release(commit('b')).unwrap().is_held(&name('b')));
}

#[test]
fn a_name_that_is_no_text_hides_no_release() {
    let shop = Shop::new();
    let stray = shop.releases().join(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
    std::fs::write(&stray, "").unwrap();
    shop.publish(&shop.offer("offer", &made(commit('a'), "x")))
        .unwrap();
    assert_eq!(shop.shelf().current(), Some(commit('a')));
    // In a release it is as foreign as any other name.
    let offer = shop.offer("offer", &made(commit('b'), "x"));
    std::fs::write(offer.join(ARTIFACTS).join(stray.file_name().unwrap()), "").unwrap();
    let refused = shop.publish(&offer).unwrap_err();
    assert!(
        matches!(refused, store::StoreError::Invalid { .. }),
        "{refused:?}"
    );
    // What a killed publisher left goes whatever its name.
    let left = shop
        .releases()
        .join(std::ffi::OsStr::from_bytes(b".\xff.partial"));
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join(stray.file_name().unwrap()), "").unwrap();
    shop.publish(&shop.offer("offer", &made(commit('b'), "x")))
        .unwrap();
    assert!(!left.exists() && stray.exists());
}
