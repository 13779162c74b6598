//! `cargo xtask dist`: a release of this commit.

use std::path::Path;

use anyhow::{Result, bail};

pub(crate) fn run(out: Option<&Path>) -> Result<()> {
    let _ = out;
    bail!(
        "building a release is not built yet: the installer and the node files that a release holds come first"
    );
}
