//! Files that a program writes are what that program writes today.
//!
//! The generator of such a file is a test of the crate that knows its content: it compares, or writes when
//! `OAC_WRITE_GENERATED` is set. So the whole test run checks it as well, and there is one generator.

use anyhow::Result;

use crate::process;
use crate::workspace::Metadata;

/// A checked-in file and the test that compares and writes it.
struct Generated {
    file: &'static str,
    package: &'static str,
    target: &'static str,
    test: &'static str,
}

/// The requirement table is not among them: only a full test run can write it.
const FILES: &[Generated] = &[
    Generated {
        file: "docs/openapi.json",
        package: "oac-core",
        target: "edge",
        test: "openapi::the_checked_in_openapi_document_is_current",
    },
    // Its generator writes the file of a new version and never replaces one.
    Generated {
        file: "crates/oac-wire/surface-v1.txt",
        package: "oac-wire",
        target: "surface",
        test: "the_checked_in_surface_of_this_version_is_what_the_types_say",
    },
];

/// Compares, or with `write` replaces. A generator that does not build is a problem like any other.
pub(super) fn check(metadata: &Metadata, write: bool) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for generated in FILES {
        if !metadata.has_test(generated.package, generated.target) {
            problems.push(format!(
                "{} has no generator: see xtask/src/tidy/generated.rs",
                generated.file
            ));
            continue;
        }
        let mut test = process::cargo();
        // The whole workspace selected and one target of it: the same features, so the same build, as the test run.
        test.args([
            "test",
            "--quiet",
            "--workspace",
            "--test",
            generated.target,
            "--",
            "--exact",
            generated.test,
        ]);
        test.env_remove("OAC_WRITE_GENERATED");
        if write {
            test.env("OAC_WRITE_GENERATED", "1");
        }
        let output = process::output(&mut test)?;
        if !output.success {
            let built = output.text.contains("test result:");
            let remedy = if built {
                "is out of date: write it with `cargo xtask tidy --write`"
            } else {
                "cannot be compared: its crate does not build"
            };
            problems.push(format!("{} {remedy}", generated.file));
        } else if !output.text.contains("1 passed") {
            problems.push(format!(
                "{}: its generator `{}` is gone: see xtask/src/tidy/generated.rs",
                generated.file, generated.test
            ));
        }
    }
    Ok(problems)
}
