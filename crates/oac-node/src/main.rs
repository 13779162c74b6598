//! `oac-node`: the program that makes a Linux host a node.

fn main() -> std::process::ExitCode {
    // First of all: descriptors 3 and 4 are handed to children under these numbers, and nothing else may have them.
    oac_generations::inherit::reserve();
    // One crypto library for every TLS connection of the process; a second installation is nobody's business here.
    let _ = rustls::crypto::ring::default_provider().install_default();
    oac_node::command::main()
}
