//! Names that a sandbox lists. They are a stranger's words: one may become a file's name here only if it cannot be
//! anything else.

/// The last component of a listed path, if it is a plain name. `None` for what could lead elsewhere, and for a name that
/// is not UTF-8 in the sandbox, which a listing cannot say exactly.
pub(super) fn plain(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let usable = !matches!(name, "" | "." | "..") && !name.contains(['\0', '\u{FFFD}']) && name.len() <= 255;
    usable.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_name_is_a_name() {
        for (path, name) in [
            ("/workspace/a.txt", Some("a.txt")),
            ("a", Some("a")),
            ("x/..b", Some("..b")),
            ("line\nbreak", Some("line\nbreak")),
            ("..", None),
            ("a/..", None),
            ("a/.", None),
            ("a/", None),
            ("", None),
            ("nul\0", None),
            ("not\u{FFFD}utf8", None),
        ] {
            assert_eq!(plain(path), name, "{path:?}");
        }
        // Whatever comes before the last slash is not believed.
        assert_eq!(plain("../../etc/passwd"), Some("passwd"));
        assert_eq!(plain(&"x".repeat(256)), None);
    }
}
