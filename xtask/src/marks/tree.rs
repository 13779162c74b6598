//! Which source file is which module of which test binary.
//!
//! nextest names a test by binary id and module path. Both follow from cargo's targets and the `mod` lines, so the
//! module tree of every target is walked the way the compiler walks it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::rust::{self, Item};
use super::{Ignored, Mark, Sources, Subject};
use crate::workspace::{self, Metadata, Package, Target, shown};

/// Adds what the targets' files hold to `sources` and gives the files that were reached.
pub(super) fn read_all(packages: &[Package], sources: &mut Sources) -> Result<BTreeSet<PathBuf>> {
    let mut seen = BTreeSet::new();
    for package in packages {
        for target in &package.targets {
            let Some(suite) = binary_id(&package.name, target) else {
                continue;
            };
            let folder = target.src_path.parent().unwrap_or(Path::new(".")).to_path_buf();
            let mut walk = Walk {
                suite,
                sources: &mut *sources,
                seen: &mut seen,
            };
            walk.file(&target.src_path, &folder, &[])?;
        }
    }
    Ok(seen)
}

pub(super) fn read(metadata: &Metadata, sources: &mut Sources) -> Result<BTreeSet<PathBuf>> {
    read_all(&metadata.packages, sources)
}

/// nextest's binary id; `None` for a target that it does not run.
fn binary_id(package: &str, target: &Target) -> Option<String> {
    let has = |kind: &str| target.kind.iter().any(|found| found == kind);
    if has("lib") || has("rlib") || has("proc-macro") {
        Some(package.to_owned())
    } else if has("test") {
        Some(format!("{package}::{}", target.name))
    } else if has("bin") || has("example") || has("bench") {
        let kind = target.kind.first().map(String::as_str).unwrap_or("bin");
        Some(format!("{package}::{kind}/{}", target.name))
    } else {
        None
    }
}

struct Walk<'a> {
    suite: String,
    sources: &'a mut Sources,
    seen: &'a mut BTreeSet<PathBuf>,
}

impl Walk<'_> {
    /// `folder` is where this file's `mod name;` lines look.
    fn file(&mut self, path: &Path, folder: &Path, module: &[String]) -> Result<()> {
        self.seen.insert(path.to_path_buf());
        let found = rust::parse(&workspace::read(path)?);
        let display = PathBuf::from(shown(path));
        let full = |inside: &[String], name: &str| {
            module
                .iter()
                .chain(inside)
                .map(String::as_str)
                .chain([name])
                .collect::<Vec<_>>()
                .join("::")
        };
        for mark in found.marks {
            let suite = self.suite.clone();
            let subject = match mark.item {
                Item::Test(name) => Subject::Test {
                    suite,
                    name: full(&mark.inside, &name),
                },
                Item::Case {
                    test,
                    number,
                    description,
                } => Subject::Case {
                    suite,
                    test: full(&mark.inside, &test),
                    number,
                    description,
                },
                Item::Named(name) => Subject::Named { name },
            };
            self.sources.marks.push(Mark {
                id: mark.id,
                subject,
                file: display.clone(),
                line: mark.line,
            });
        }
        for (inside, name, why) in found.ignored {
            self.sources.ignored.push(Ignored {
                suite: self.suite.clone(),
                name: full(&inside, &name),
                why,
            });
        }
        for (line, problem) in found.problems {
            let text = format!("{}:{line}: {problem}", display.display());
            if !self.sources.problems.contains(&text) {
                self.sources.problems.push(text);
            }
        }
        for child in found.modules {
            let inner = child
                .inside
                .iter()
                .fold(folder.to_path_buf(), |path, name| path.join(name));
            let candidates = match &child.path {
                Some(named) => vec![path.parent().unwrap_or(folder).join(named)],
                None => vec![
                    inner.join(format!("{}.rs", child.name)),
                    inner.join(&child.name).join("mod.rs"),
                ],
            };
            // A module switched off by `cfg` may have no file; the compiler says so where it matters.
            let Some(file) = candidates.into_iter().find(|candidate| candidate.is_file()) else {
                continue;
            };
            let is_folder_file = child.path.is_some() || file.ends_with("mod.rs");
            let below = if is_folder_file {
                file.parent().unwrap_or(folder).to_path_buf()
            } else {
                inner.join(&child.name)
            };
            let module: Vec<String> = module
                .iter()
                .chain(&child.inside)
                .chain([&child.name])
                .cloned()
                .collect();
            self.file(&file, &below, &module)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_known_by_binary_module_path_and_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
            std::fs::write(&path, text).expect("a file");
            path
        };
        let lib = write("src/lib.rs", "mod frames; mod links { mod deep; }");
        write(
            "src/frames.rs",
            "mod inner; mod tests {\n// req: P-001\n#[test] fn a() {} }",
        );
        write("src/frames/inner.rs", "// req: P-002\n#[test] fn b() {}");
        write("src/links/deep/mod.rs", "mod more;");
        write("src/links/deep/more.rs", "// req: P-003\n#[test] fn c() {}");
        let main = write("src/main.rs", "// req: P-004\n#[test] fn d() {}");
        let test = write("tests/docker_create.rs", "// req: P-005\n#[test] fn e() {}");
        let unreached = write("src/stray.rs", "// req: P-006\n#[test] fn f() {}");
        let target = |name: &str, kind: &str, path: PathBuf| Target {
            name: name.into(),
            kind: vec![kind.into()],
            src_path: path,
        };
        let package = Package {
            name: "oac-wire".into(),
            manifest_path: folder.path().join("Cargo.toml"),
            dependencies: Vec::new(),
            targets: vec![
                target("oac_wire", "lib", lib),
                target("oac-wire-check", "bin", main),
                target("docker_create", "test", test),
            ],
        };
        let mut sources = Sources::default();
        let seen = read_all(&[package], &mut sources).expect("readable");
        assert!(!seen.contains(&unreached));
        let names: Vec<_> = sources
            .marks
            .iter()
            .map(|mark| match &mark.subject {
                Subject::Test { suite, name } => format!("{} {suite} {name}", mark.id),
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(
            names,
            [
                "P-001 oac-wire frames::tests::a",
                "P-002 oac-wire frames::inner::b",
                "P-003 oac-wire links::deep::more::c",
                "P-004 oac-wire::bin/oac-wire-check d",
                "P-005 oac-wire::docker_create e",
            ]
        );
    }
}
