//! No file or folder is called after its having no subject.

use std::path::{Path, PathBuf};

const BANNED: &[&str] = &[
    "util",
    "utils",
    "utilities",
    "common",
    "helper",
    "helpers",
    "misc",
];

pub(super) fn check(files: &[PathBuf]) -> Vec<String> {
    let source = |file: &&PathBuf| {
        file.extension().is_some_and(|extension| {
            ["rs", "ts", "tsx", "sh", "py"]
                .iter()
                .any(|known| extension == *known)
        })
    };
    files
        .iter()
        .filter(source)
        .filter_map(|file| problem(file))
        .collect()
}

fn problem(file: &Path) -> Option<String> {
    let stems = file.iter().map(|part| part.to_string_lossy());
    let banned = stems
        .map(|part| part.split('.').next().unwrap_or_default().to_lowercase())
        .find(|stem| {
            // `oac-util` is no better than `util`.
            BANNED.contains(&stem.as_str()) || stem.split(['-', '_']).any(|word| BANNED.contains(&word))
        });
    banned.map(|name| {
        format!(
            "{}: `{name}` says nothing: name it after its subject",
            file.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_subject_is_refused_anywhere_in_the_path() {
        for refused in [
            "crates/oac-util/src/lib.rs",
            "a/src/helpers.rs",
            "tests/common/mod.rs",
            "b/test_utils.rs",
        ] {
            assert!(problem(Path::new(refused)).is_some(), "{refused}");
        }
        for fine in [
            "crates/oac-core/src/http/error.rs",
            "a/src/utilization.rs",
            "a/src/microsandbox_helper_program/mod.rs",
        ] {
            let expected = fine.contains("helper");
            assert_eq!(problem(Path::new(fine)).is_some(), expected, "{fine}");
        }
    }
}
