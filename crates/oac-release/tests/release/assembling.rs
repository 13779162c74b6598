//! A release directory from built parts to a published release.

use std::path::{Path, PathBuf};

use oac_model::ProviderKind;
use oac_release::{
    assemble::{AssembleError, Part, assemble},
    image::{BuildImage, Standing, Variant, build_image},
    layout::{self, Row},
    made::commit,
    manifest::Image,
    metadata::{ARTIFACTS, Metadata},
    store::StoreError,
};

use crate::publishing::Shop;

const RELEASE: (Standing, Variant) = (Standing::Commit, Variant::Full);

/// Builds image and release in `folder`, as from a checkout.
fn build(
    folder: &Path,
    (standing, variant): (Standing, Variant),
    installer: &[u8],
) -> Result<Metadata, AssembleError> {
    std::fs::create_dir_all(folder).unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let built = build_image(&BuildImage {
        base: None,
        runtime: &file("oac-runtime", b"a runtime"),
        variant,
        commit: commit('a'),
        standing,
        created: 1_767_225_600,
        compression: 6,
        out: &folder.join("image"),
    })
    .unwrap();
    let image = Image {
        config_digest: built.config_digest,
        manifest_digest: built.manifest_digest,
    };
    let part = |row: Row, path| Part {
        row,
        version: String::new(),
        path,
    };
    let parts = [
        part(layout::NODE, file("oac-node", b"a node program")),
        part(layout::INSTALLER, file("oac-node-install", installer)),
        part(
            layout::SECCOMP,
            file("seccomp.json", oac_release::SECCOMP_PROFILE.as_bytes()),
        ),
        part(layout::IMAGE, built.archive),
    ];
    let dirty = standing == Standing::WorkingTree;
    assemble(commit('a'), image, &parts, &folder.join("release"), dirty)
}

/// Every file of a release directory.
pub(crate) fn listing(release: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = ["manifest.json", "SHA256SUMS"]
        .iter()
        .map(|name| release.join(name))
        .collect();
    let artifacts = std::fs::read_dir(release.join(ARTIFACTS)).unwrap();
    files.extend(artifacts.map(|entry| entry.unwrap().path()));
    files.sort();
    let named = files.into_iter().map(|path| {
        let name = path.strip_prefix(release).unwrap().to_owned();
        (name, std::fs::read(&path).unwrap())
    });
    named.collect()
}

#[test]
fn the_same_parts_give_the_same_release_which_is_published() {
    let temp = tempfile::tempdir().unwrap();
    let (one, two) = (temp.path().join("one"), temp.path().join("elsewhere/two"));
    let metadata = build(&one, RELEASE, b"an installer").unwrap();
    assert_eq!(build(&two, RELEASE, b"an installer").unwrap(), metadata);
    let listing = |folder: &Path| listing(&folder.join("release"));
    assert_eq!(listing(&one), listing(&two));
    assert!(metadata.manifest().runtime(ProviderKind::Docker).is_some());
    assert!(metadata.manifest().runtime(ProviderKind::Microsandbox).is_none());
    let shop = Shop::new();
    assert!(shop.publish(&one.join("release")).unwrap().is_new);
    // The second is the same release, not another one.
    assert!(!shop.publish(&two.join("release")).unwrap().is_new);
    assert!(matches!(build(&one, RELEASE, b"x"), Err(AssembleError::Taken(_))));
}

#[test]
fn a_release_of_a_working_tree_is_built_and_never_published() {
    let temp = tempfile::tempdir().unwrap();
    build(
        temp.path(),
        (Standing::WorkingTree, Variant::Full),
        b"an installer",
    )
    .unwrap();
    let refused = Shop::new().publish(&temp.path().join("release")).unwrap_err();
    assert!(matches!(refused, StoreError::Invalid { .. }), "{refused:?}");
    let large = tempfile::tempdir().unwrap();
    let refused = build(
        large.path(),
        (Standing::WorkingTree, Variant::Full),
        &vec![0; (24 << 20) + 1],
    );
    assert!(matches!(refused, Err(AssembleError::Installer(_))), "{refused:?}");
}

#[test]
fn a_minimal_image_is_published_only_for_tests() {
    let published = |standing| {
        let temp = tempfile::tempdir().unwrap();
        build(temp.path(), (standing, Variant::Minimal), b"an installer")?;
        Ok::<_, AssembleError>(Shop::new().publish(&temp.path().join("release"))?.is_new)
    };
    let refused = published(Standing::Commit);
    assert!(matches!(refused, Err(AssembleError::Refused(_))), "{refused:?}");
    let refused = published(Standing::WorkingTree);
    assert!(matches!(refused, Err(AssembleError::Refused(_))), "{refused:?}");
    assert!(published(Standing::Trial).unwrap());
}
