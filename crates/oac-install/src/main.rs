//! `oac-node-install`: makes this Linux host a node, and gives it back.

use std::process::ExitCode;

use oac_install::{host::Host, run};

fn main() -> ExitCode {
    // One crypto library for every TLS connection; a second installation is nobody's business here.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The release build says which commit this is (releases.md section 7).
    let commit = option_env!("OAC_SOURCE_COMMIT").and_then(|commit| commit.parse().ok());
    run::main(&Host::real(commit), std::env::args().skip(1))
}
