//! The image's archive in a real engine.

use std::process::Command;

use oac_model::SourceCommit;
use oac_release::image::{BuildImage, Variant, build_image};

fn docker(engine: &str, arguments: &[&str]) -> String {
    let output = Command::new("docker")
        .args(["-H", engine])
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "docker {arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

// req: G-155
#[test]
fn docker_the_archive_of_a_release_loads_and_is_known_by_a_digest_that_the_manifest_names() {
    let engine = std::env::var("OAC_TEST_DOCKER")
        .unwrap_or_else(|_| panic!("OAC_TEST_DOCKER is not set: run through cargo xtask test"));
    let temp = tempfile::tempdir().unwrap();
    let runtime = temp.path().join("oac-runtime");
    std::fs::write(&runtime, "not a program").unwrap();
    // Of no commit that anybody has an image of.
    let commit: SourceCommit = format!("{:040x}", 0xdead_0000_0000_u64 + u64::from(std::process::id()))
        .parse()
        .unwrap();
    let built = build_image(&BuildImage {
        base: None,
        runtime: &runtime,
        variant: Variant::Full,
        commit,
        dirty: false,
        created: 1_767_225_600,
        compression: 6,
        out: temp.path(),
    })
    .unwrap();
    let name = format!("oac-{commit}-linux-amd64-runtime.tar.gz");
    assert_eq!(built.archive.file_name().unwrap().to_str(), Some(name.as_str()));
    docker(&engine, &["load", "-i", built.archive.to_str().unwrap()]);
    let id = docker(&engine, &["image", "inspect", "--format", "{{.Id}}", &built.tag]);
    docker(&engine, &["image", "rm", &built.tag]);
    let known = [built.config_digest.to_string(), built.manifest_digest.to_string()];
    assert!(known.contains(&id), "{id}: {known:?}");
}
