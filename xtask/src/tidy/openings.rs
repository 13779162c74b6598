//! A library opens with what it is for, and a program's `main.rs` stays thin: parse, configure, call, exit code.

use std::path::{Path, PathBuf};

use anyhow::Result;

const MAIN_LINES: usize = 120;

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for file in files {
        let ends = |name: &str| file.ends_with(Path::new("src").join(name));
        if ends("lib.rs") || ends("main.rs") {
            problems.extend(problem(file, &crate::workspace::read(&root.join(file))?));
        }
    }
    Ok(problems)
}

fn problem(file: &Path, text: &str) -> Option<String> {
    let lines = text.lines().count();
    if file.ends_with("lib.rs") && !text.starts_with("//! ") {
        Some(format!(
            "{}: begin with a paragraph: what it is for, what goes in and out, what it never does",
            file.display()
        ))
    } else if file.ends_with("main.rs") && lines > MAIN_LINES {
        Some(format!(
            "{} has {lines} lines: move all but parsing and the exit code into the library",
            file.display()
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_without_a_paragraph_and_a_long_main_are_refused() {
        assert!(problem(Path::new("a/src/lib.rs"), "pub mod b;\n").is_some());
        assert!(problem(Path::new("a/src/lib.rs"), "//! What a is.\n").is_none());
        assert!(problem(Path::new("a/src/main.rs"), &"x\n".repeat(121)).is_some());
        assert!(problem(Path::new("a/src/main.rs"), &"x\n".repeat(120)).is_none());
    }
}
