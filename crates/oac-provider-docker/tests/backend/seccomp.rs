//! The seccomp profile of the release.

use oac_model::Digest;
use serde_json::{Value, json};

fn asset(name: &str) -> Vec<u8> {
    std::fs::read(crate::world::seccomp_file().with_file_name(name)).unwrap()
}

#[test]
fn the_profile_is_the_engines_recorded_default_and_one_rule() {
    let source: Value = serde_json::from_slice(&asset("seccomp.source.json")).unwrap();
    assert_eq!(source["package"], "golang-github-docker-docker-dev");
    assert_eq!(
        source["default_sha256"],
        Digest::of(asset("seccomp-default.json")).to_string()
    );
    assert_eq!(
        source["seccomp_sha256"],
        Digest::of(asset("seccomp.json")).to_string()
    );

    let default: Value = serde_json::from_slice(&asset("seccomp-default.json")).unwrap();
    let mut profile: Value = serde_json::from_slice(&asset("seccomp.json")).unwrap();
    let added = profile["syscalls"].as_array_mut().unwrap().pop().unwrap();
    assert_eq!(profile, default);
    assert_eq!(
        added,
        json!({
            "names": ["clone", "unshare", "setns", "mount", "umount2", "pivot_root"],
            "action": "SCMP_ACT_ALLOW",
        })
    );
}
