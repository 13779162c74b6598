use std::process::ExitCode;

fn main() -> ExitCode {
    oac_runtime::run(std::env::args_os().skip(1))
}
