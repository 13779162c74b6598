//! `oac-node`: the program that makes a Linux host a node.

fn main() -> std::process::ExitCode {
    // One crypto library for every TLS connection of the process; a second installation is nobody's business here.
    let _ = rustls::crypto::ring::default_provider().install_default();
    oac_node::command::main()
}
