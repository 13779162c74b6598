use std::process::ExitCode;

use oac_cli::{Cli, output};

fn main() -> ExitCode {
    // Fails only when a provider is installed already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(status) => return ExitCode::from(status),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::complain(&format!("cannot start: {error}"));
            return ExitCode::from(125);
        }
    };
    let status = runtime.block_on(cli.run());
    // A read of the terminal that is still waiting must not hold the exit.
    runtime.shutdown_background();
    ExitCode::from(status)
}
