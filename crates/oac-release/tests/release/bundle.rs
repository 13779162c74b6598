//! A release from a local folder.

use std::os::unix::fs::symlink;

use oac_release::{
    bundle::Bundle,
    layout,
    payload::{self, PayloadError},
    progress::Silent,
    source::{self, ReadError},
};

use oac_release::made::commit;

use crate::reader::{Node, sized, whole};

fn get(node: &Node, bundle: &mut Bundle) -> Result<(), PayloadError> {
    let release = source::release(bundle, commit('a'), None)?;
    let missing = payload::missing(&node.root, release.manifest().artifacts(), &mut Silent)?;
    payload::fetch(&node.root, bundle, commit('a'), &missing, &mut Silent)
}

// req: P-124
// inv: INV-R12
#[test]
fn a_bundle_is_read_by_the_rules_of_a_server_and_without_following_links() {
    let made = sized(commit('a'));
    let temp = tempfile::tempdir().unwrap();
    let good = made.write(&temp.path().join("good"));
    let node = Node::new();
    get(&node, &mut Bundle::open(&good).unwrap()).unwrap();
    assert_eq!(node.files(), whole(&made));

    let other = source::release(&mut Bundle::open(&good).unwrap(), commit('b'), None).unwrap_err();
    assert!(
        matches!(other, ReadError::NoRelease(missing) if missing == commit('b')),
        "{other:?}"
    );

    let program = layout::NODE.filename(commit('a'));
    let bytes = made.bytes(&layout::NODE).to_vec();
    let mut flipped = bytes.clone();
    flipped[1000] ^= 1;
    let changed = [
        flipped,
        bytes[1..].to_vec(),
        [&bytes[..], b"x"].concat(),
        Vec::new(),
    ];
    for (at, changed) in changed.iter().enumerate() {
        let bad = made.write(&temp.path().join(format!("bad{at}")));
        std::fs::write(bad.join("artifacts").join(&program), changed).unwrap();
        let node = Node::new();
        get(&node, &mut Bundle::open(&bad).unwrap()).unwrap_err();
        assert!(node.files().iter().all(|(key, ..)| key != "bin/oac-node"), "{at}");
    }

    for name in [
        "manifest.json",
        "SHA256SUMS",
        "artifacts",
        &format!("artifacts/{program}"),
    ] {
        let bad = made.write(&temp.path().join(name.replace('/', "-")));
        let target = temp.path().join(format!("target-{}", name.replace('/', "-")));
        std::fs::rename(bad.join(name), &target).unwrap();
        let missing = get(&Node::new(), &mut Bundle::open(&bad).unwrap());
        assert!(
            matches!(missing, Err(PayloadError::Source(ReadError::Local { .. }))),
            "{name}: {missing:?}"
        );
        symlink(&target, bad.join(name)).unwrap();
        let linked = get(&Node::new(), &mut Bundle::open(&bad).unwrap());
        assert!(
            matches!(linked, Err(PayloadError::Source(ReadError::Local { .. }))),
            "{name}: {linked:?}"
        );
    }
    symlink(&good, temp.path().join("link")).unwrap();
    Bundle::open(&temp.path().join("link")).unwrap_err();
    // A pipe holds nobody up.
    let piped = made.write(&temp.path().join("piped"));
    let path = piped.join("artifacts").join(&program);
    std::fs::remove_file(&path).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    get(&Node::new(), &mut Bundle::open(&piped).unwrap()).unwrap_err();
}
