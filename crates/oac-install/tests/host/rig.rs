//! The installer on a scratch root: `oac-install-rig PREFIX SOCKET COMMIT END_AT -- arguments`. What it runs of the host's
//! programs is looked for in `PREFIX/tools` first.

use std::process::ExitCode;

use oac_install::{host::Host, points, run};

fn main() -> ExitCode {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().unwrap_or_default();
    let (prefix, socket, commit, end_at) = (next(), next(), next(), next());
    let _ = next();
    if !end_at.is_empty() {
        points::end_at(end_at);
    }
    if prefix == "/" {
        return run::main(&Host::real(commit.parse().ok()), arguments);
    }
    let host = Host {
        tools: format!("{prefix}/tools:/usr/bin:/bin").into(),
        docker_socket: socket.into(),
        kvm: format!("{prefix}/dev/kvm").into(),
        prefix: prefix.into(),
        commit: commit.parse().ok(),
    };
    run::main(&host, arguments)
}
