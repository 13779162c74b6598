//! The two images and the packages each is made of.
//!
//! A list is a checked-in file: groups of package names, each group under one line that says why it is there. What
//! packages depend on comes with them; what they merely recommend does not.

use std::fmt;

/// How much a Runtime image holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, clap::ValueEnum)]
pub enum Variant {
    /// Shell, version control, compilers, interpreters and common tools: what a release ships
    Full,
    /// Shell and core tools: for tests and the demo
    Minimal,
}

impl Variant {
    /// The checked-in list.
    fn list(self) -> &'static str {
        match self {
            Self::Full => include_str!("../../assets/packages/full.txt"),
            Self::Minimal => include_str!("../../assets/packages/minimal.txt"),
        }
    }

    /// Names of the packages beside Debian's essential ones, in the order of the list.
    pub fn packages(self) -> Vec<&'static str> {
        self.list()
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect()
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Minimal => "minimal",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const BOTH: [Variant; 2] = [Variant::Full, Variant::Minimal];

    #[test]
    fn a_list_is_groups_with_one_reason_each_and_their_packages_in_order() {
        for variant in BOTH {
            for group in variant.list().trim_end().split("\n\n") {
                let lines: Vec<&str> = group.lines().collect();
                let (reason, packages) = lines.split_first().unwrap();
                assert!(
                    reason.starts_with("# ") && reason.len() > 5,
                    "{variant}: {reason}"
                );
                assert!(!packages.is_empty(), "{variant}: {reason} has no package");
                assert!(packages.is_sorted(), "{variant}: {packages:?} is not in order");
                for package in packages {
                    let first = package.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
                    let rest = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b);
                    assert!(
                        first && package.len() >= 2 && package.bytes().all(rest),
                        "{variant}: `{package}` is no name of a Debian package"
                    );
                }
            }
            assert!(variant.list().ends_with('\n') && !variant.list().ends_with("\n\n"));
        }
    }

    #[test]
    fn no_package_is_listed_twice_and_the_full_image_holds_all_of_the_minimal_one() {
        for variant in BOTH {
            let all = variant.packages();
            let unique: BTreeSet<_> = all.iter().collect();
            assert_eq!(unique.len(), all.len(), "{variant}");
        }
        let full = Variant::Full.packages();
        for package in Variant::Minimal.packages() {
            assert!(full.contains(&package), "{package}");
        }
    }
}
