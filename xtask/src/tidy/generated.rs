//! Files that a program writes are what that program writes today.

use std::path::Path;

use anyhow::Result;

use crate::process;
use crate::workspace::Metadata;

/// A checked-in file and the example program that prints it.
struct Generated {
    file: &'static str,
    package: &'static str,
    example: &'static str,
}

/// The requirement table is not among them: only a full test run can write it.
const FILES: &[Generated] = &[Generated {
    file: "docs/openapi.json",
    package: "oac-core",
    example: "openapi",
}];

/// Compares, or with `write` replaces. A generator that does not build is a problem like any other.
pub(super) fn check(root: &Path, metadata: &Metadata, write: bool) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for generated in FILES
        .iter()
        .filter(|generated| metadata.has_example(generated.package, generated.example))
    {
        let path = root.join(generated.file);
        let run = [
            "run",
            "--quiet",
            "-p",
            generated.package,
            "--example",
            generated.example,
        ];
        let expected = match process::output_of(process::cargo().args(run)) {
            Ok(text) => text,
            Err(error) => {
                process::go_on()?;
                problems.push(format!("{} cannot be compared: {error:#}", generated.file));
                continue;
            }
        };
        if std::fs::read_to_string(&path).ok().as_deref() == Some(expected.as_str()) {
            continue;
        }
        if write {
            std::fs::write(&path, expected)?;
            println!("    wrote {}", generated.file);
        } else {
            problems.push(format!(
                "{} is out of date: write it with `cargo xtask tidy --write`",
                generated.file
            ));
        }
    }
    Ok(problems)
}
