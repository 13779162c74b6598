//! Every member inherits the workspace's lints.

use anyhow::{Context as _, Result};

use crate::workspace::{Metadata, read, shown};

pub(super) fn check(metadata: &Metadata) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for package in &metadata.packages {
        let manifest: toml::Table = toml::from_str(&read(&package.manifest_path)?)
            .with_context(|| format!("{} is not readable", shown(&package.manifest_path)))?;
        if !inherits(&manifest) {
            problems.push(format!(
                "{}: add `[lints]` with `workspace = true`",
                shown(&package.manifest_path)
            ));
        }
    }
    Ok(problems)
}

fn inherits(manifest: &toml::Table) -> bool {
    manifest.get("lints").and_then(|lints| lints.get("workspace")) == Some(&toml::Value::Boolean(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_true_inherits() {
        let of = |text: &str| inherits(&toml::from_str(text).expect("readable"));
        assert!(of("[lints]\nworkspace = true\n"));
        assert!(!of("[package]\nname = \"a\"\n"));
        assert!(!of("[lints.rust]\nunsafe_code = \"allow\"\n"));
    }
}
