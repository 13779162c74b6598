//! A publisher that is killed with SIGKILL at each of its steps.

use std::{os::unix::process::ExitStatusExt as _, path::Path, process::Command};

use oac_model::Digest;
use oac_release::{layout, metadata::ARTIFACTS};

use oac_release::made::{Made, commit, made};

use crate::publishing::{Listing, Shop};

/// Whether the publisher ended by itself.
fn publish_until(step: u64, shop: &Shop, offer: &Path) -> bool {
    let mut rig = Command::new(env!("CARGO_BIN_EXE_oac-release-rig"));
    let status = rig
        .arg(step.to_string())
        .arg(shop.releases())
        .arg(offer)
        .status()
        .unwrap();
    if status.signal() == Some(9) {
        return false;
    }
    assert!(status.success(), "step {step}: {status}");
    true
}

/// Every file that is served is complete and right, and says how many there are.
fn served(shop: &Shop) -> usize {
    let shelf = shop.shelf();
    assert_eq!(shelf.problems, []);
    let mut count = 0;
    for (commit, release) in shelf.releases() {
        for artifact in release.metadata.manifest().artifacts() {
            if let Some((mut file, _)) = shelf.open(commit, &artifact.filename).unwrap() {
                let mut bytes = Vec::new();
                std::io::Read::read_to_end(&mut file, &mut bytes).unwrap();
                assert_eq!(Digest::of(&bytes), artifact.sha256, "{}", artifact.filename);
                count += 1;
            }
        }
    }
    count
}

/// Without inodes and folders' sizes: what is there.
fn content(listing: Listing) -> Vec<(std::path::PathBuf, u32, Vec<u8>)> {
    listing
        .into_iter()
        .map(|(path, (mode, _, bytes))| (path, mode, bytes))
        .collect()
}

/// What a publisher finds published before.
fn before(shop: &Shop, part: Option<&Made>) {
    shop.publish(&shop.offer("older", &made(commit('b'), "older")))
        .unwrap();
    if let Some(part) = part {
        let offer = shop.offer("part", part);
        for row in [layout::IMAGE, layout::NODE] {
            std::fs::remove_file(offer.join(ARTIFACTS).join(row.filename(commit('a')))).unwrap();
        }
        oac_release::store::publish(&shop.releases(), &offer, true).unwrap();
    }
}

// req: P-128
// inv: INV-R4
#[test]
fn a_publisher_killed_at_any_step_leaves_only_whole_files_and_the_next_one_succeeds() {
    let release = made(commit('a'), "x");
    for (part, held, all) in [(None, 7, 14), (Some(&release), 12, 14)] {
        let mut step = 0;
        loop {
            let shop = Shop::new();
            before(&shop, part);
            let published = shop.listing();
            let offer = shop.offer("offer", &release);
            let ended = publish_until(step, &shop, &offer);
            let count = served(&shop);
            assert!((held..=all).contains(&count), "step {step}: {count}");
            let now = shop.listing();
            for (path, file) in &published {
                // What was there is there, the same file with the same bytes.
                if !path.ends_with("current.json") {
                    assert_eq!(
                        (now[path].0, now[path].1, &now[path].2),
                        (file.0, file.1, &file.2)
                    );
                }
            }
            let current = shop.shelf().current();
            assert!(
                [Some(commit('b')), Some(commit('a'))].contains(&current),
                "step {step}"
            );
            shop.publish(&offer).unwrap();
            assert_eq!(served(&shop), all, "step {step}");
            assert_eq!(shop.shelf().current(), Some(commit('a')));
            let clean = Shop::new();
            before(&clean, None);
            clean.publish(&clean.offer("offer", &release)).unwrap();
            let moved = |shop: &Shop| {
                let root = shop.releases();
                let content = content(shop.listing()).into_iter();
                content
                    .map(|(path, mode, bytes)| (path.strip_prefix(&root).unwrap().to_owned(), mode, bytes))
                    .collect::<Vec<_>>()
            };
            assert_eq!(moved(&shop), moved(&clean), "step {step}");
            if ended {
                break;
            }
            step += 1;
        }
        assert!(step > 10, "{step}");
    }
}
